package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// pipes is a listener in a bubble of fake time, where there are no sockets.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- pipe.Buffer(far)
	return near, nil
}

// viewer is a browser that follows a page.
type viewer struct {
	mu    sync.Mutex // guards the rest
	at    []time.Time
	sizes []int
	text  bytes.Buffer // since the last call of seen
}

func (v *viewer) note(b []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = append(v.at, time.Now())
	v.sizes = append(v.sizes, len(b))
	v.text.Write(b)
}

// seen returns what has come since it was called before.
func (v *viewer) seen() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.text.Reset()
	return v.text.String()
}

// most returns how many bytes came in the minute in which most came.
func (v *viewer) most() (most int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sum, from := 0, 0
	for i, at := range v.at {
		for sum += v.sizes[i]; at.Sub(v.at[from]) >= time.Minute; from++ {
			sum -= v.sizes[from]
		}
		most = max(most, sum)
	}
	return most
}

// unhurried returns a client with a connection for each lock of a page. If they had to wait for one another, go-redis would do so by
// timers that it keeps for the next bubble.
func unhurried(t *testing.T, b *locktest.Bubble) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Dialer: pipe.Dialer(func() (net.Conn, error) {
			conn, err := b.Mini.Dial()
			return pipe.Buffer(conn), err
		}),
		PoolSize: 10 * pageSize, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	client, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// watch follows a page in a bubble, and connects again at once each time that a stream ends.
func watch(t *testing.T, client *redlatch.Client, page string, opts ...Option) *viewer {
	t.Helper()
	listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: Handler(client, opts...), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	browser := &http.Client{Transport: &http.Transport{DialContext: listener.dial}}
	ctx, leave := context.WithCancel(context.Background())
	v := &viewer{}
	left := make(chan error, 1)
	go func() { left <- v.follow(ctx, browser, page) }()
	t.Cleanup(func() {
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		browser.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return v
}

func (v *viewer) follow(ctx context.Context, browser *http.Client, page string) error {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://console/events?page="+url.QueryEscape(page), nil)
		if err != nil {
			return err
		}
		answer, err := browser.Do(r)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("the status is %s", answer.Status)
		}
		buf := make([]byte, 64<<10)
		for err == nil {
			var n int
			n, err = answer.Body.Read(buf)
			v.note(buf[:n])
		}
		_ = answer.Body.Close() // read to its end
		if err != io.EOF {      //nolint:errorlint // never wrapped
			return err
		}
	}
}

// The leases of the locks run down all the time, and twice other locks take their place.
func TestOneViewerReceivesAtMostAMegabyteAMinute(t *testing.T) {
	type crowd struct {
		locks, size int // of a name
		letter      string
	}
	for what, c := range map[string]struct {
		before, then crowd
		followed     bool // the page shows what is held then
		least        int  // reads
	}{
		"few locks":             {crowd{1, 20, "x"}, crowd{3, 20, "x"}, true, 50},
		"as many as a page has": {crowd{200, 20, "x"}, crowd{100, 30, "x"}, true, 40},
		"names grow":            {crowd{100, 20, "x"}, crowd{100, 500, "x"}, true, 20},
		"names of quotes":       {crowd{100, 20, "x"}, crowd{100, 500, `"`}, false, 20},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				v := watch(t, unhurried(t, b), "locks?sort=name")
				last := ""
				hold := func(c crowd) {
					b.Mini.FlushAll()
					for i := range c.locks {
						last = fmt.Sprintf("order:%d:%d:", c.size, i)
						b.Foreign(t, last+strings.Repeat(c.letter, c.size-len(last)), 10*time.Minute)
					}
				}
				hold(c.before)
				time.Sleep(50 * time.Second)
				assert.Contains(t, v.seen(), fmt.Sprintf("order:%d:", c.before.size))
				hold(c.then)
				time.Sleep(70 * time.Second) // past the end of a stream
				after := v.seen()
				assert.Equal(t, c.followed, strings.Contains(after, last), last)
				assert.Equal(t, !c.followed, strings.Contains(after, "too large for live updates"))
				hold(crowd{1, 40, "x"})
				time.Sleep(20 * time.Second)
				after = v.seen()
				assert.Contains(t, after, last)
				assert.NotContains(t, after, "too large for live updates")
				t.Logf("%d bytes in a minute, %d reads", v.most(), len(v.at))
				assert.LessOrEqual(t, v.most(), liveMinute)
				assert.GreaterOrEqual(t, len(v.at), c.least)
			})
		})
	}
}

// A page that does not change has no event after the first one, and its stream ends as all do.
func TestStreamOfAPageThatDoesNotChangeLastsItsMinute(t *testing.T) {
	for what, set := range map[string]func(*http.Protocols){
		"HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
		"HTTP/1": func(p *http.Protocols) { p.SetHTTP1(true) },
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
				var protocols http.Protocols
				set(&protocols)
				server := &http.Server{
					Handler: Handler(unhurried(t, b), WithLogger(slog.New(slog.DiscardHandler))), ReadHeaderTimeout: time.Minute, Protocols: &protocols,
				}
				served := make(chan error, 1)
				go func() { served <- server.Serve(listener) }()
				browser := &http.Client{Transport: &http.Transport{DialContext: listener.dial, Protocols: &protocols}}
				began := time.Now()
				answer, err := browser.Get("http://console/events?page=queue%3Fname=mails")
				require.NoError(t, err)
				_, err = io.ReadAll(answer.Body)
				assert.NoError(t, err)
				assert.GreaterOrEqual(t, time.Since(began), liveFor)
				_ = answer.Body.Close() // read to its end
				browser.CloseIdleConnections()
				require.NoError(t, server.Close())
				require.ErrorIs(t, <-served, http.ErrServerClosed)
			})
		})
	}
}

func TestTooLargePageIsNotFollowed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		client := unhurried(t, b)
		q := redlatch.GetDelayedQueue[string](client, "mails")
		offer(t, client, "mails", "m-1", strings.Repeat("x", liveMinute+1), time.Hour)
		v := watch(t, client, "message?name=mails&id=m-1", WithPayloads())
		time.Sleep(90 * time.Second) // past the end of a stream
		assert.Contains(t, v.seen(), "too large for live updates")
		assert.Less(t, v.most(), 10_000)
		_, err := q.Cancel(t.Context(), "m-1")
		require.NoError(t, err)
		offer(t, client, "mails", "m-1", "hello", time.Hour)
		time.Sleep(5 * time.Second)
		after := v.seen()
		assert.Contains(t, after, "hello")
		assert.NotContains(t, after, "too large for live updates")
	})
}
