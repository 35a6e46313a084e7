package pubsub_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch/pubsub"
)

// rig is an in-memory server, and a router whose connections to it can be watched and broken.
type rig struct {
	*pubsub.Router
	server *miniredis.Miniredis
	rdb    *redis.Client

	mu      sync.Mutex // guards what follows
	wires   []*wire
	refuse  bool // dials fail
	hang    bool // dials wait for the end of their context
	dead    bool // dials give connections that swallow everything
	refused int
}

// inBubble runs test on a new rig, with time under control.
func inBubble(t *testing.T, o pubsub.Options, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{server: miniredis.NewMiniRedis()}
		r.rdb = redis.NewClient(options(r.dial))
		r.Router = pubsub.New(r.rdb, o)
		defer r.server.Close()
		defer r.rdb.Close()
		defer r.Close()
		test(t, r)
	})
}

// options are those of a client that looks up no address by itself: the resolver does not work in a bubble.
func options(dial func(context.Context, string, string) (net.Conn, error)) *redis.Options {
	return &redis.Options{
		Dialer:                   dial,
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	}
}

func (r *rig) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	r.mu.Lock()
	hang := r.hang
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse {
		r.refused++
		return nil, errors.New("refused")
	}
	conn, err := r.server.Dial()
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, dead: r.dead}
	w.released = sync.NewCond(&w.mu)
	r.wires = append(r.wires, w)
	return w, nil
}

func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// subscriptions returns the wires that carried a SUBSCRIBE, oldest first.
func (r *rig) subscriptions() []*wire {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.wires), func(w *wire) bool { return w.count("subscribe") == 0 })
}

// wire returns the newest subscription connection.
func (r *rig) wire(t *testing.T) *wire {
	t.Helper()
	all := r.subscriptions()
	if len(all) == 0 {
		t.Fatal("no subscription connection")
	}
	return all[len(all)-1]
}

// wire is a connection that counts commands, holds replies back, or plays dead.
type wire struct {
	net.Conn

	mu       sync.Mutex // guards what follows
	released *sync.Cond // held or closed has changed
	held     bool       // replies wait
	dead     bool       // nothing passes
	broken   bool       // writes fail, and reads wait
	closed   bool
	sent     []string // names of the commands sent
}

func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	if parts := bytes.SplitN(b, []byte("\r\n"), 4); len(parts) > 2 && b[0] == '*' {
		w.sent = append(w.sent, string(parts[2]))
	}
	dead, broken := w.dead, w.broken
	w.mu.Unlock()
	switch {
	case broken:
		return 0, errors.New("broken")
	case dead:
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		w.mu.Lock()
		for w.held && !w.closed {
			w.released.Wait()
		}
		dead := w.dead
		w.mu.Unlock()
		if err != nil || !dead {
			return n, err
		}
	}
}

func (w *wire) Close() error {
	w.set(func() { w.closed = true })
	return w.Conn.Close()
}

func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.released.Broadcast()
}

func (w *wire) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sent)
}

// count returns how many commands of this name were sent.
func (w *wire) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, sent := range w.sent {
		if sent == name {
			n++
		}
	}
	return n
}

// ear is a listener that remembers.
type ear struct {
	mu         sync.Mutex // guards what follows
	subscribed int
	lost       int
	gone       bool // the last of Subscribed and Lost was Lost
	messages   []string
}

func (e *ear) Subscribed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscribed++
	e.gone = false
}

func (e *ear) Lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost++
	e.gone = true
}

func (e *ear) Message(payload string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.messages = append(e.messages, payload)
}

func (e *ear) confirmations() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.subscribed
}

// losses returns how often the subscription was lost, and whether it is lost now.
func (e *ear) losses() (n int, gone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost, e.gone
}

func (e *ear) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.messages)
}
