package faulttest

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// link is one client's connection with the one to the server behind it. Each direction has a goroutine that reads, and
// one that delivers what is due; all end with the link.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	server *net.TCPConn // set before the goroutines start

	muted   atomic.Bool // what the server sends is lost
	hard    atomic.Bool // the link ended by a reset
	severed atomic.Bool // a reply was dropped: nothing passes any more, but the server may finish
	spoiled bool        // a blackhole took something; guarded by proxy.mu
	hooking bool        // a hook stands before a request; guarded by proxy.mu

	once sync.Once
	done chan struct{} // closed by the first end

	mu         sync.Mutex // guards all below
	pending    []expected // requests that are not answered yet, oldest first
	subscribed bool       // the client has asked for a channel
	open       int        // directions that have not ended
}

// parcel is a frame on its way.
type parcel struct {
	due     time.Time
	raw     []byte
	cmd     []string // of a request
	message bool     // of a reply: a channel's message
	drop    bool     // of a reply: lose it, and close
	end     bool     // the sender has closed
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	return &link{proxy: p, client: client, done: make(chan struct{}), open: 2}
}

// run serves the link until it has ended.
func (l *link) run() {
	defer l.proxy.forget(l)
	defer l.reset()
	server, err := l.proxy.dial(l)
	if err != nil {
		return
	}
	l.server = server
	up, down := newQueue(), newQueue()
	var wg sync.WaitGroup
	defer wg.Wait() // for the goroutines below, all of which end when done is closed and both connections are
	wg.Go(func() { l.readRequests(up) })
	wg.Go(func() { l.readReplies(down) })
	wg.Go(func() { l.deliver(up, l.sendRequests) })
	wg.Go(func() { l.deliver(down, l.sendReplies) })
	<-l.done
	if l.hard.Load() {
		reset(server)
	}
	_, _ = l.client.Close(), server.Close() // They fail only when reset.
}

// reset ends the link at once; what is under way is lost.
func (l *link) reset() {
	l.once.Do(func() {
		l.hard.Store(true)
		reset(l.client) // before run, which closes it in order, hears of the end
		close(l.done)
	})
}

// finish ends the link once nothing is left to deliver.
func (l *link) finish() { l.once.Do(func() { close(l.done) }) }

func (l *link) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// endDirection ends the link with its second direction.
func (l *link) endDirection() {
	l.mu.Lock()
	l.open--
	last := l.open == 0
	l.mu.Unlock()
	if last {
		l.finish()
	}
}

// readRequests queues what the client sends. What arrives together stays together, as one batch.
func (l *link) readRequests(q *queue) {
	p := newParser(l.client)
	var batch []parcel
	for {
		raw, cmd, err := p.request()
		if err != nil {
			q.push(append(batch, parcel{due: l.proxy.due(), end: true}))
			return
		}
		batch = append(batch, parcel{due: l.proxy.due(), raw: raw, cmd: cmd})
		if !p.buffered() {
			q.push(batch)
			batch = nil
		}
	}
}

// readReplies queues what the server sends.
func (l *link) readReplies(q *queue) {
	p := newParser(l.server)
	for {
		f, err := p.reply()
		if err != nil {
			q.push([]parcel{{due: l.proxy.due(), end: true}})
			return
		}
		message, drop := l.answer(f)
		q.push([]parcel{{due: l.proxy.due(), raw: f.raw, message: message, drop: drop}})
	}
}

// deliver sends what is due, until send says that it was the last.
func (l *link) deliver(q *queue, send func([]parcel) (last bool)) {
	for {
		batch := q.take(l.done)
		if batch == nil || send(batch) {
			return
		}
	}
}

// sendRequests passes a batch on to the server, in one piece where no hook wants to stand in between.
func (l *link) sendRequests(batch []parcel) (last bool) {
	var out []byte
	for _, p := range batch {
		if p.end {
			l.send(l.server, out)
			l.endRequests()
			return true
		}
		if hook := l.proxy.hooked(); hook != nil && len(p.cmd) > 0 {
			l.send(l.server, out)
			out = nil
			l.proxy.callHook(l, hook, p.cmd)
		}
		if l.ended() || l.severed.Load() || l.proxy.swallows(l) {
			continue
		}
		if len(p.cmd) > 0 {
			l.expect(p.cmd, l.proxy.drops(p.cmd))
			l.proxy.count(p.cmd)
		}
		out = append(out, p.raw...)
	}
	l.send(l.server, out)
	return false
}

// endRequests tells the server that the client has closed. Requests before that are still executed.
func (l *link) endRequests() {
	if l.proxy.awaitLight(l) {
		_ = l.server.CloseWrite() // It fails only where the server has closed too.
	}
	l.endDirection()
}

func (l *link) sendReplies(batch []parcel) (last bool) {
	var out []byte
	for _, p := range batch {
		switch {
		case p.end:
			l.send(l.client, out)
			l.endReplies()
			return true
		case l.severed.Load(), l.muted.Load(), l.proxy.swallows(l):
			continue
		case p.drop:
			l.send(l.client, out)
			out = nil
			l.sever()
		case p.message && l.proxy.dropsMessages():
			redistest.Injected("message of a channel lost")
		default:
			out = append(out, p.raw...)
		}
	}
	l.send(l.client, out)
	return false
}

// endReplies closes the client's connection because the server has closed its own; a muted link keeps the silence.
func (l *link) endReplies() {
	if l.muted.Load() || l.severed.Load() {
		l.endDirection()
		return
	}
	if l.proxy.awaitLight(l) {
		l.finish()
	}
}

// sever closes the client's connection in order, so that earlier replies arrive, and lets the server finish what it was
// sent.
func (l *link) sever() {
	l.severed.Store(true)
	l.proxy.countDropped()
	_, _ = l.client.CloseWrite(), l.server.CloseWrite() // They fail only on closed connections.
}

func (l *link) send(conn *net.TCPConn, raw []byte) {
	if len(raw) == 0 {
		return
	}
	// A failed write shows in the reader of the other direction, which sees the end of the connection.
	_, _ = conn.Write(raw)
}
