package faulttest

import (
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// closeLimit bounds the wait for the proxy's goroutines when its test ends.
const closeLimit = 5 * time.Second

// Proxy passes connections on to a server, and damages them when told to. It understands RESP2 and RESP3; a connection
// that speaks anything else is closed. CLIENT REPLY, and commands after MONITOR, are beyond it.
//
// All methods may be called at any time from any goroutine. They apply to the connections that exist and to new ones,
// where they do not say otherwise.
type Proxy struct {
	tb       testing.TB
	target   string
	listener net.Listener
	wg       sync.WaitGroup // the accept loop and all goroutines of links

	mu           sync.Mutex // guards all below
	links        map[*link]struct{}
	closed       bool
	black        bool
	lifted       chan struct{} // closed when black ends
	refuse       bool
	dropMessages bool
	delay        time.Duration
	hook         func(cmd []string)
	rules        []*dropRule
	commands     map[string]int
	dropped      int
}

// NewProxy starts a proxy in front of the server at target. It ends with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("faulttest: proxy: %v", err)
	}
	p := &Proxy{
		tb: tb, target: target, listener: l,
		links: map[*link]struct{}{}, lifted: make(chan struct{}), commands: map[string]int{},
	}
	p.wg.Go(p.accept) // close waits for it
	tb.Cleanup(p.close)
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed || p.refuse {
			p.mu.Unlock()
			reset(conn)
			continue
		}
		l := newLink(p, conn.(*net.TCPConn))
		p.links[l] = struct{}{}
		p.wg.Go(l.run) // close waits for it
		p.mu.Unlock()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	if err := p.listener.Close(); err != nil {
		p.tb.Errorf("faulttest: close proxy: %v", err)
	}
	for _, l := range p.all() {
		l.reset()
	}
	done := make(chan struct{})
	go func() { // ends with the last link, or stays for as long as the hook that blocks it
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeLimit):
		p.tb.Errorf("faulttest: a hook of the proxy still blocks %v after the test", closeLimit)
	}
}

// Disturb does something to one request in ten, until the test ends or [Proxy.Calm]: a reply is lost, all connections are
// cut, or what follows takes up to 3 ms longer.
func (p *Proxy) Disturb() {
	p.OnCommand(func([]string) {
		switch dice := rand.N(100); {
		case dice < 4:
			p.DropReply(Script, 1)
		case dice < 5:
			p.Cut()
		case dice < 8:
			p.Delay(rand.N(3 * time.Millisecond))
		case dice < 11:
			p.Delay(0)
		}
	})
	p.tb.Cleanup(p.Calm) // before what the test has set up earlier is closed
}

// Calm ends what [Proxy.Disturb] began.
func (p *Proxy) Calm() {
	p.OnCommand(nil)
	p.Delay(0)
}

// Blackhole loses everything in both directions while it is on: connections are accepted and stay open, nothing arrives,
// the end of a connection included. Connections that lost something are reset when it goes off, the others go on.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	if p.black == on {
		p.mu.Unlock()
		return
	}
	p.black = on
	var spoiled []*link
	if on {
		redistest.Injected("network silent")
		p.lifted = make(chan struct{})
		for l := range p.links {
			l.spoiled = l.spoiled || l.hooking // its request is lost, however soon the blackhole ends
		}
	} else {
		for l := range p.links {
			if l.spoiled {
				spoiled = append(spoiled, l)
			}
		}
	}
	lifted := p.lifted
	p.mu.Unlock()
	for _, l := range spoiled {
		l.reset()
	}
	if !on {
		close(lifted)
	}
}

// swallows reports whether the blackhole takes what l would now deliver; it takes all from a link that lost something.
func (p *Proxy) swallows(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.spoiled = l.spoiled || p.black
	return l.spoiled
}

// awaitLight waits until there is no blackhole, and reports false if l has ended by then.
func (p *Proxy) awaitLight(l *link) bool {
	for {
		p.mu.Lock()
		black, lifted := p.black, p.lifted
		p.mu.Unlock()
		if !black {
			return !l.ended()
		}
		select {
		case <-lifted:
		case <-l.done:
			return false
		}
	}
}

// Cut resets all connections, on both sides. What they had on the way is lost.
func (p *Proxy) Cut() {
	for _, l := range p.all() {
		redistest.Injected("connection reset")
		l.reset()
	}
}

// Refuse resets new connections at once while it is on. Existing ones go on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on && !p.refuse {
		redistest.Injected("connections refused")
	}
	p.refuse = on
}

// Delay has everything that the proxy reads from now on arrive d later, in each direction, in order. Many requests may be
// on their way at a time.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d > 0 {
		redistest.Injected("network slow")
	}
	p.delay = d
}

func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}

// HalfOpen loses all that the server sends on the connections that exist, for good; what clients send still arrives. New
// connections work.
func (p *Proxy) HalfOpen() {
	for _, l := range p.all() {
		redistest.Injected("connection half open")
		l.muted.Store(true)
	}
}

// DropMessages loses the messages of channels while it is on. Confirmations and replies pass.
func (p *Proxy) DropMessages(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropMessages = on
}

func (p *Proxy) dropsMessages() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropMessages
}

// OnCommand has fn called before each request is passed on, with the connection waiting for it to return. It may block,
// and use the proxy; what it cuts or blackholes meets the request that it was called for. Handshakes are requests too.
// Nil removes it.
func (p *Proxy) OnCommand(fn func(cmd []string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = fn
}

func (p *Proxy) hooked() func(cmd []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hook
}

// callHook calls fn with the request that l is about to pass on.
func (p *Proxy) callHook(l *link, fn func(cmd []string), cmd []string) {
	p.setHooking(l, true)
	defer p.setHooking(l, false)
	fn(cmd)
}

func (p *Proxy) setHooking(l *link, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.hooking = on
}

// Commands counts the requests that were passed on, by the command's name in capitals.
func (p *Proxy) Commands() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.commands)
}

// Total counts all requests that were passed on.
func (p *Proxy) Total() int {
	total := 0
	for _, n := range p.Commands() {
		total += n
	}
	return total
}

func (p *Proxy) count(cmd []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands[strings.ToUpper(cmd[0])]++
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.links))
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// reset closes a connection so that its other end sees a reset instead of an orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // It fails only on a connection that is closed already, as does Close.
	}
	_ = conn.Close()
}

// dial connects to the target; while there is a blackhole, a failure shows only after it.
func (p *Proxy) dial(l *link) (*net.TCPConn, error) {
	conn, err := net.DialTimeout("tcp", p.target, closeLimit)
	if err != nil {
		p.awaitLight(l)
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}
