// Package wires breaks the connections of a client to an in-memory server.
package wires

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/pipe"
)

// Wires are the connections of one client. They may be watched and broken from any goroutine.
type Wires struct {
	server func() (net.Conn, error) // dials

	mu      sync.Mutex // guards all below
	open    []*wire
	black   bool // nothing passes, in either direction
	refuse  bool // dials fail
	down    bool // the server is down: they fail too
	refused bool // one has failed
	lose    int  // so many scripts will run whose replies are lost
	results bool // of those, a reply that Redis lacks the script does not count
	hold    int  // so many scripts are held back
	held    [][]byte
	hang    int  // so many scripts will run whose connections fall silent
	pass    int  // so many scripts pass before those
	any     bool // commands of any name count as scripts for those two
	sent    []string
	trips   int // writes that carried scripts
}

// New returns the wires of a client to a server that is dialed like this.
func New(server func() (net.Conn, error)) *Wires { return &Wires{server: server} }

// Refuse has dials fail while it is on. Existing connections go on.
func (w *Wires) Refuse(on bool) { w.set(func() { w.refuse = on }) }

// Down has dials fail while it is on, and closes all connections.
func (w *Wires) Down(on bool) {
	w.set(func() { w.down = on })
	if on {
		w.Cut()
	}
}

// Refused reports whether a dial has failed.
func (w *Wires) Refused() (refused bool) {
	w.set(func() { refused = w.refused })
	return refused
}

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
func (w *Wires) LoseReplies(n int) { w.set(func() { w.lose, w.results = n, false }) }

// LoseResults is LoseReplies for scripts that Redis has: of one that it lacks the client learns that, and sends it anew.
func (w *Wires) LoseResults(n int) { w.set(func() { w.lose, w.results = n, true }) }

// Withhold has the next n scripts stay on their way, and cuts their connections, until Deliver has the server run them:
// as requests do that were given up and arrive late.
func (w *Wires) Withhold(n int) { w.set(func() { w.hold = n }) }

// Deliver has the scripts that were held back arrive, and returns how many when the server has run them.
func (w *Wires) Deliver() (int, error) {
	var held [][]byte
	w.set(func() { held, w.held = w.held, nil })
	for _, request := range held {
		if err := w.deliver(request); err != nil {
			return 0, err
		}
	}
	return len(held), nil
}

func (w *Wires) deliver(request []byte) error {
	conn, err := w.server()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it is done with
	if _, err := conn.Write(request); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, err := conn.Read(reply)
	if err == nil && bytes.HasPrefix(reply[:n], []byte("-")) {
		err = errors.New(string(reply[:n]))
	}
	return err
}

// HangReplies has the next n scripts run, and nothing more come over their connections, which stay open.
func (w *Wires) HangReplies(n int) { w.set(func() { w.pass, w.hang, w.any = 0, n, false }) }

// HangReply has the n-th script from now on run, counted from 1, and nothing more come over its connection, which stays open.
func (w *Wires) HangReply(n int) { w.set(func() { w.pass, w.hang, w.any = n-1, 1, false }) }

// HangAnyReply is HangReply for commands of any name, those of handshakes excepted.
func (w *Wires) HangAnyReply(n int) { w.set(func() { w.pass, w.hang, w.any = n-1, 1, true }) }

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

// Scripts returns how many scripts were sent so far, PUBLISH included.
func (w *Wires) Scripts() (n int) {
	for _, sent := range w.Sent() {
		if isScript(sent) {
			n++
		}
	}
	return n
}

// isScript reports whether a command counts as a script. Those do that objects send by themselves: the PUBLISH of a topic, which a script
// does on a cluster, and the commands of the grid.
func isScript(name string) bool {
	return strings.HasPrefix(name, "eval") || slices.Contains(ofObjects, name)
}

//nolint:gochecknoglobals // a constant list
var ofObjects = strings.Fields("publish pttl get set getdel incrby incrbyfloat " +
	"hget hmget hset hsetnx hdel hexists hlen hincrby hincrbyfloat hpexpire hpttl " +
	"sadd srem sismember smismember scard spop srandmember smove " +
	"zadd zincrby zscore zrem zrank zrevrank zcard zcount zrange zrevrange zrangebyscore zpopmin zpopmax")

func (w *Wires) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

var errRefused = &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}

// Dial returns a new connection.
func (w *Wires) Dial() (net.Conn, error) {
	var refuse bool
	w.set(func() {
		refuse = w.refuse || w.down
		w.refused = w.refused || refuse
	})
	if refuse {
		return nil, errRefused
	}
	// Not under the mutex: the server's own is held while it publishes, until a reader that needs ours has read.
	conn, err := w.server()
	if err != nil {
		return nil, err
	}
	c := &wire{Conn: pipe.Buffer(conn), wires: w}
	w.set(func() {
		if refuse = w.refuse || w.down; !refuse {
			w.open = append(w.open, c)
		}
	})
	if refuse { // meanwhile
		return nil, errors.Join(errRefused, c.Close())
	}
	return c, nil
}

// wire is one connection. What it has of its own is guarded by the wires' mu.
type wire struct {
	net.Conn
	wires *Wires

	lost   int  // the next reply is lost, with which so many scripts of one write lose theirs
	silent bool // no reply comes any more
}

func (c *wire) Write(b []byte) (int, error) {
	w := c.wires
	w.mu.Lock()
	stays := w.black
	names := commands(string(b))
	if slices.ContainsFunc(names, isScript) {
		w.trips++
	}
	for _, name := range names {
		if name == "hello" || name == "client" {
			continue
		}
		w.sent = append(w.sent, name)
		script := isScript(name)
		switch hangs := script || w.any; {
		case script && w.lose > 0:
			w.lose--
			c.lost++
		case hangs && w.hang > 0 && w.pass > 0:
			w.pass--
		case hangs && w.hang > 0:
			w.hang--
			c.silent = true
		}
		if w.hold > 0 && script {
			w.hold--
			w.held = append(w.held, slices.Clone(b))
			stays = true
			defer func() { _ = c.Close() }() // the client hears of it
		}
	}
	w.mu.Unlock()
	if stays {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wire) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		var black, lost, results bool
		c.wires.set(func() { black, lost, results = c.wires.black || c.silent, c.lost > 0, c.wires.results })
		switch {
		case err != nil:
			return n, err
		case lost && results && bytes.HasPrefix(b[:n], []byte("-NOSCRIPT")):
			c.wires.set(func() {
				c.wires.lose += c.lost
				c.lost = 0
			})
			return n, nil
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
