package locktest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Wires are the connections of one client. They may be watched and broken from any goroutine.
type Wires struct {
	bubble *Bubble

	mu     sync.Mutex // guards all below
	open   []*wire
	black  bool // nothing passes, in either direction
	refuse bool // dials fail
	lose   int  // so many scripts will run whose replies are lost
	hold   int  // so many scripts are held back
	held   [][]byte
	hang   int // so many scripts will run whose connections fall silent
	pass   int // so many scripts pass before those
	sent   []string
	trips  int // writes that carried scripts
}

// Refuse has dials fail while it is on. Existing connections go on.
func (w *Wires) Refuse(on bool) { w.set(func() { w.refuse = on }) }

// Blackhole loses everything in both directions while it is on, on new connections too. Those that existed at any
// time while it was on are cut when it goes off.
func (w *Wires) Blackhole(on bool) {
	if !on {
		w.Cut() // first: what is stuck in them must not get through
	}
	w.set(func() { w.black = on })
	if !on {
		w.Cut()
	}
}

// LoseReplies has the next n scripts run, and cuts their connections instead of delivering the replies.
func (w *Wires) LoseReplies(n int) { w.set(func() { w.lose = n }) }

// Withhold has the next n scripts stay on their way, and cuts their connections, until Deliver has the server run them:
// as requests do that were given up and arrive late.
func (w *Wires) Withhold(n int) { w.set(func() { w.hold = n }) }

// Deliver has the scripts that were held back arrive, and returns how many when the server has run them.
func (w *Wires) Deliver(tb testing.TB) int {
	tb.Helper()
	var held [][]byte
	w.set(func() { held, w.held = w.held, nil })
	for _, request := range held {
		conn, err := w.bubble.Mini.Dial()
		require.NoError(tb, err)
		_, err = conn.Write(request)
		require.NoError(tb, err)
		reply := make([]byte, 4096)
		n, err := conn.Read(reply)
		require.NoError(tb, err)
		require.False(tb, bytes.HasPrefix(reply[:n], []byte("-")), "%s", reply[:n])
		require.NoError(tb, conn.Close())
	}
	return len(held)
}

// HangReplies has the next n scripts run, and nothing more come over their connections, which stay open.
func (w *Wires) HangReplies(n int) { w.set(func() { w.pass, w.hang = 0, n }) }

// HangReply has the n-th script from now on run, counted from 1, and nothing more come over its connection, which stays open.
func (w *Wires) HangReply(n int) { w.set(func() { w.pass, w.hang = n-1, 1 }) }

// Cut closes all connections.
func (w *Wires) Cut() {
	var open []*wire
	w.set(func() { open, w.open = w.open, nil })
	for _, c := range open {
		_ = c.Close() // it may be closed already
	}
}

// Sent returns the names of the commands sent so far, in lower case, those of handshakes excepted.
func (w *Wires) Sent() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// Count returns how many commands of these names were sent so far.
func (w *Wires) Count(names ...string) int {
	n := 0
	for _, sent := range w.Sent() {
		if slices.Contains(names, sent) {
			n++
		}
	}
	return n
}

// Trips returns in how many round trips scripts were sent so far.
func (w *Wires) Trips() (n int) {
	w.set(func() { n = w.trips })
	return n
}

// Scripts returns how many scripts were sent so far.
func (w *Wires) Scripts() int { return w.Count("eval", "evalsha") }

func (w *Wires) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

var errRefused = &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}

func (w *Wires) dial() (net.Conn, error) {
	var refuse bool
	w.set(func() { refuse = w.refuse })
	if refuse {
		return nil, errRefused
	}
	// Not under the mutex: the server's own is held while it publishes, until a reader that needs ours has read.
	conn, err := w.bubble.Mini.Dial()
	if err != nil {
		return nil, err
	}
	c := &wire{Conn: conn, wires: w, filled: make(chan struct{}, 1), closed: make(chan struct{})}
	w.set(func() {
		if refuse = w.refuse; !refuse {
			w.open = append(w.open, c)
		}
	})
	if refuse { // meanwhile
		return nil, errors.Join(errRefused, conn.Close())
	}
	go c.pump()
	return c, nil
}

// wire is one connection. Its writes are buffered, as those of a socket: on a bare pipe a server that answers the first
// of many commands, and a client that is still sending them, would wait for each other.
type wire struct {
	net.Conn
	wires  *Wires
	filled chan struct{} // 1: something is to be written
	closed chan struct{} // closed by Close
	end    sync.Once

	lost    bool   // the next reply is lost; guarded by the wires' mu
	silent  bool   // no reply comes any more; guarded by the wires' mu
	written []byte // not yet sent; guarded by the wires' mu
}

// pump sends what was written until the connection is closed.
func (c *wire) pump() {
	for {
		select {
		case <-c.filled:
		case <-c.closed:
			return
		}
		var b []byte
		c.wires.set(func() { b, c.written = c.written, nil })
		if _, err := c.Conn.Write(b); err != nil {
			_ = c.Close() // the reader hears of it
			return
		}
	}
}

func (c *wire) Close() error {
	c.end.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *wire) Write(b []byte) (int, error) {
	w := c.wires
	w.mu.Lock()
	stays := w.black
	names := commands(string(b))
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "eval") }) {
		w.trips++
	}
	for _, name := range names {
		if name == "hello" || name == "client" {
			continue
		}
		w.sent = append(w.sent, name)
		switch script := strings.HasPrefix(name, "eval"); {
		case script && w.lose > 0:
			w.lose--
			c.lost = true
		case script && w.hang > 0 && w.pass > 0:
			w.pass--
		case script && w.hang > 0:
			w.hang--
			c.silent = true
		}
		if w.hold > 0 && strings.HasPrefix(name, "eval") {
			w.hold--
			w.held = append(w.held, slices.Clone(b))
			stays = true
			defer c.Close() // the client hears of it
		}
	}
	if !stays {
		c.written = append(c.written, b...)
	}
	w.mu.Unlock()
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case c.filled <- struct{}{}:
	default: // a token is there already
	}
	return len(b), nil
}

func (c *wire) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		var black, lost bool
		c.wires.set(func() { black, lost = c.wires.black || c.silent, c.lost })
		switch {
		case err != nil:
			return n, err
		case lost:
			_ = c.Close() // the reply is lost with it
			return 0, io.EOF
		case !black:
			return n, nil
		}
	}
}

// commands returns the names of the commands in one write: go-redis writes whole ones.
func commands(b string) []string {
	var names []string
	for strings.HasPrefix(b, "*") {
		head, rest, _ := strings.Cut(b, "\r\n")
		args, err := strconv.Atoi(head[1:])
		if err != nil {
			return names
		}
		for i := range args {
			size, body, _ := strings.Cut(rest, "\r\n")
			n, err := strconv.Atoi(strings.TrimPrefix(size, "$"))
			if err != nil || len(body) < n+2 {
				return names
			}
			if i == 0 {
				names = append(names, strings.ToLower(body[:n]))
			}
			rest = body[n+2:]
		}
		b = rest
	}
	return names
}
