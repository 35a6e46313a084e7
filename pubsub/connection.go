package pubsub

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/backoff"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 800 * time.Millisecond
	dialTimeout  = 10 * time.Second
	writeTimeout = time.Second
	maxScratch   = 1024 // largest capacity of the reader's buffer that is kept
)

// run holds one connection at a time while there are channels.
func (r *Router) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	lost, failures, plain := false, 0, !r.opts.Sharded
	for r.needed() {
		c := &connection{router: r, replaces: lost, sharded: !plain}
		err := c.serve(ctx, failures)
		switch {
		case errors.Is(err, errIdle), errors.Is(err, errOversized):
			lost, failures = false, 0
			continue
		case errors.Is(err, errPlain):
			lost, plain = false, true // one that was lost has been replaced by then
			continue
		}
		plain = !r.opts.Sharded // a server that went down may come back as a newer one
		if ctx.Err() != nil {
			continue
		}
		if !errors.Is(err, errMoved) {
			r.lost(err)
		}
		r.opts.OnFailure()
		if c.open() {
			lost = !errors.Is(err, errMoved)
			if time.Since(c.opened) >= maxBackoff {
				failures = 0
			}
		}
		if failures > 0 { // the first try follows at once
			sleep(ctx, backoff.Pause(failures-1, firstBackoff, maxBackoff))
		}
		failures++
	}
}

// needed reports whether the run goes on; if not, the next Join starts another.
func (r *Router) needed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = !r.closed && len(r.table.channels) > 0
	if !r.running {
		r.failed = time.Time{} // nobody waits for the end of an outage
		r.stop()
	}
	return r.running
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// connection is one subscription connection, from the dial to its end. The goroutine in serve sends, another one reads.
// It never outlives an error: the Redis client would reconnect by itself, but the confirmations that follow would then
// belong to no known command, and whoever needs its mutex would wait for the dial (see [noDial]). A sharded one ends too when
// a slot leaves its node.
type connection struct {
	router   *Router
	sharded  bool // it subscribes by SSUBSCRIBE
	pubsub   *redis.PubSub
	replaces bool          // it replaces a lost connection
	opened   time.Time     // when the first command was sent; zero before
	ended    chan struct{} // closed by the reader when it has ended
	cause    error         // why the reader ended; set before ended is closed
	targets  []Listener    // the reader's buffer
}

func (c *connection) open() bool { return !c.opened.IsZero() }

// serve sends what is due until the connection fails, is no longer needed, or ctx is done. When it returns, the reader
// has ended.
func (c *connection) serve(ctx context.Context, failures int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.pubsub = c.router.subscriber.Subscribe(ctx) // no I/O without channels
	var err error
	if failures > 0 {
		// A cluster client sends SUBSCRIBE to the master of the first channel, which may be the dead one, and PING to any
		// node: all nodes receive all messages.
		err = c.send(ctx, c.router.ping())
	}
	if err == nil {
		err = c.sendAll(ctx)
	}
	cancel()
	_ = c.pubsub.Close() // nothing can be done about an error
	if c.open() {
		<-c.ended
		if errors.Is(err, context.Canceled) { // the reader had an error first
			err = c.cause
		}
	}
	c.router.mu.Lock()
	lost := c.router.table.confirmed(nil)
	c.router.table.reset()
	c.router.mu.Unlock()
	notifyLost(lost)
	return err
}

func (c *connection) sendAll(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		cmd, wait, err := c.router.next(c.open())
		if err != nil {
			return err
		}
		if cmd != nil {
			if err := c.send(ctx, cmd); err != nil {
				return err
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return c.cause
		case <-c.router.wake:
		case <-timer.C:
		}
	}
}

// ping returns a PING, which is in flight from now on.
func (r *Router) ping() *command {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.launch(&command{verb: ping}, time.Now())
}

func (r *Router) next(open bool) (*command, time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.next(time.Now(), open)
}

// send writes one command. The first one dials.
func (c *connection) send(ctx context.Context, cmd *command) error {
	limit := dialTimeout
	if c.open() {
		ctx, limit = noDial(ctx), writeTimeout
	}
	sendCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	switch {
	case cmd.verb == subscribe && cmd.pattern:
		err = c.pubsub.PSubscribe(sendCtx, cmd.names()...)
	case cmd.verb == unsubscribe && cmd.pattern:
		err = c.pubsub.PUnsubscribe(sendCtx, cmd.names()...)
	case cmd.verb == subscribe && c.sharded:
		err = c.pubsub.SSubscribe(sendCtx, cmd.names()...)
	case cmd.verb == subscribe:
		err = c.pubsub.Subscribe(sendCtx, cmd.names()...)
	case cmd.verb == unsubscribe && c.sharded:
		err = c.pubsub.SUnsubscribe(sendCtx, cmd.names()...)
	case cmd.verb == unsubscribe:
		err = c.pubsub.Unsubscribe(sendCtx, cmd.names()...)
	case cmd.verb == ping:
		err = c.pubsub.Ping(sendCtx)
	}
	if err == nil && !c.open() {
		c.start(ctx)
	}
	return err
}

// noDial returns a context that has ended. With it the Redis client writes and reads, for which only a deadline counts, but
// does not dial, unless its Dialer ignores contexts. Otherwise it would replace a broken connection, with its mutex held,
// before it reports the error.
func noDial(ctx context.Context) context.Context {
	ended, end := context.WithCancel(ctx)
	end()
	return ended
}

// start notes that the connection is open and starts its reader, for which serve waits. A reader started earlier would
// dial by itself.
func (c *connection) start(ctx context.Context) {
	r := c.router
	r.mu.Lock()
	c.opened = time.Now()
	r.table.received = c.opened
	if c.replaces {
		r.reconnects++
	}
	r.mu.Unlock()
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		if c.replaces {
			r.opts.OnReconnect()
		}
		c.cause = c.read(noDial(ctx))
	}()
}

// read receives replies until the connection fails or is closed. It sets no time limit, since a timeout within a
// message would cut it in two: [table.next] detects a dead connection.
func (c *connection) read(ctx context.Context) error {
	for {
		reply, err := c.pubsub.ReceiveTimeout(ctx, 0)
		var answer redis.Error
		if err != nil && !errors.As(err, &answer) {
			return err
		}
		if m, ok := reply.(*redis.Message); ok {
			c.deliver(m)
		} else if err := c.settle(reply, err); err != nil {
			return err
		}
	}
}

// deliver passes a message to the listeners of its channel.
func (c *connection) deliver(m *redis.Message) {
	r := c.router
	r.mu.Lock()
	r.messages++
	r.table.received = time.Now()
	k := key{name: m.Channel}
	if m.Pattern != "" {
		k = key{m.Pattern, true}
	}
	c.targets = r.table.listeners(c.targets, k)
	r.mu.Unlock()
	for _, l := range c.targets {
		if p, ok := l.(patterned); ok {
			p.PatternListener.Message(m.Channel, m.Payload)
		} else {
			l.Message(m.Payload)
		}
	}
	c.clearTargets()
}

// settle records the reply to a command, and notifies the listeners whose subscription it confirms or refuses.
func (c *connection) settle(reply any, refusal error) error {
	if refusal != nil && c.sharded {
		if err := ending(refusal); err != nil {
			return err
		}
	}
	err := c.record(reply, refusal)
	c.router.back()
	news := len(c.targets) == 0
	for _, l := range c.targets {
		if refusal == nil {
			l.Subscribed()
		} else if refused, ok := l.(Refused); !ok || !refused.Refused(refusal) {
			news = true
		}
	}
	c.clearTargets()
	if refusal != nil && news && !redis.HasErrorPrefix(refusal, "ASK") { // Redis 8.2 says so to SUNSUBSCRIBE while a slot moves
		c.router.refused(refusal)
	}
	return err
}

// ending returns an error if a refused SSUBSCRIBE is to end the connection: its channels belong to another node, or to none just now, or
// the server does not know the command.
func ending(refusal error) error {
	switch {
	case redis.HasErrorPrefix(refusal, "MOVED"), redis.HasErrorPrefix(refusal, "CLUSTERDOWN"), redis.HasErrorPrefix(refusal, "TRYAGAIN"):
		return errMoved
	case strings.Contains(refusal.Error(), "unknown command"):
		return errPlain
	}
	return nil
}

// record collects the listeners to notify in targets.
func (c *connection) record(reply any, refusal error) (err error) {
	r := c.router
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.table.received = now
	switch reply := reply.(type) {
	case *redis.Subscription:
		c.targets, err = r.table.confirm(c.targets, verbOf(reply.Kind), key{reply.Channel, reply.Kind[0] == 'p'})
		if err != nil && reply.Kind == "sunsubscribe" {
			err = errMoved // nobody asked for it: the slot has left the node
		}
	case *redis.Pong:
		r.table.pong()
	default:
		c.targets, err = r.table.refuse(c.targets, now, script.Transient(refusal))
	}
	r.pokeLocked()
	return err
}

// clearTargets empties the buffer, so that it retains no listener, and drops a large one.
func (c *connection) clearTargets() {
	clear(c.targets)
	c.targets = c.targets[:0]
	if cap(c.targets) > maxScratch {
		c.targets = nil
	}
}
