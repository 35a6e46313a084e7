// Package pipeline sends script calls, many in one round trip when there are many.
//
// A lone call is sent at once. Calls that arrive while earlier ones are in flight are collected and sent as one pipeline
// when one of those returns, so batches grow with the load and no call waits for a timer.
//
// Concurrency properties: a node has at most two flushes in flight that are younger than [stall]; older ones count as
// stuck and no longer hold others up, until there are 16 in all. Calls that have to be confirmed have a queue of their own,
// with two flushes at most, stuck or not. A client that does not pipeline has only that limit. Urgent calls (renewals,
// releases) leave a queue first, and leave a quarter of each pipeline to others that wait.
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	maxBatch    = 200                    // calls in one pipeline, by weight
	urgentShare = 150                    // of it for urgent calls while others wait
	maxFlushes  = 2                      // young flushes of a node at a time
	maxStuck    = 16                     // flushes of a node at a time, stuck ones included
	crowd       = 3                      // calls in a flush from which on it pays to wait for more
	stall       = 100 * time.Millisecond // a flush older than this is taken for stuck
	ioLimit     = Usual                  // bound on one flush where the connection allows one
	ioFloor     = time.Second            // the least such bound, for clients of short leases
	closeSlack  = 300 * time.Millisecond // how much longer than its bound a flush may take to end
	parkedLimit = 4                      // workers kept for the next flush
)

// Usual is the limit from which on a call costs no timer of its own: it ends with the bound on a flush, which is this long or, for
// clients of short leases, less.
const Usual = 3 * time.Second

// Class says how urgent a call is.
type Class int

const (
	// Normal is the class of acquisitions and queries.
	Normal Class = iota
	// Urgent is the class of renewals and releases, which never queue behind acquisitions.
	Urgent
)

// SendOptions says how a call is to be sent.
type SendOptions struct {
	Class Class
	// Limit bounds the wait beside ctx; one of [Usual] or more is the bound on a flush. 0 is for no bound.
	Limit time.Duration
	// Deaf says that the end of ctx does not end the wait; its values are kept.
	Deaf bool
	// Late, if set, is notified of a call that finished after its caller had given it up.
	Late Listener
}

// Listener is notified of calls that finished while nobody waited. It must return at once.
type Listener interface{ Late(*script.Call) }

// Leaver is a Listener that is told when the caller is about to leave a call to it. If the call finishes just then, Stay is called in
// place of Late. All must return at once.
type Leaver interface {
	Listener
	Leave()
	Stay()
}

// Func is a function as a Listener.
type Func func(*script.Call)

// Late calls the function.
func (f Func) Late(c *script.Call) { f(c) }

// Batcher sends calls over one go-redis client. It is safe for concurrent use.
type Batcher struct {
	// OnAnswered, if set before the first call, is called whenever Abandoned has become less. It must return at once.
	OnAnswered func()
	// Sharded, if set before the first call, has scripts publish by SPUBLISH.
	Sharded bool
	// Observer, if set before the first call, is told of each call that is sent.
	Observer *Observer
	// Confirmations, if set before the first call, are what calls wait for that have to be confirmed.
	Confirmations []Confirmation

	rdb       redis.UniversalClient
	hooks     []redis.Hook
	cluster   *redis.ClusterClient // nil unless rdb is one
	layout    layout
	limit     time.Duration   // bound on one flush
	life      context.Context //nolint:containedctx // the batcher's own life, ended by Close
	end       context.CancelFunc
	waits     context.Context //nolint:containedctx // ended by EndWaits
	endWaits  context.CancelFunc
	bounded   atomic.Pointer[bound]
	endBy     atomic.Pointer[time.Time] // of a client that closes
	jobs      chan job                  // hands a flush to a parked worker
	parked    atomic.Int32
	workers   sync.WaitGroup // of those that Close waits for
	known     atomic.Bool    // a cluster's layout has been loaded
	flushes   atomic.Int64
	abandoned atomic.Int64 // see Abandoned
	free      sync.Pool    // of *pending; the batcher's own, since channels belong to one synctest bubble
	mu        sync.Mutex   // guards closed and nodes
	closed    bool         // Close waits for the workers that there are
	nodes     map[lane]*nodeQueue
	only      *nodeQueue // of a client that is not a cluster, and of a cluster until its layout is known
	confirmed *nodeQueue // as only, for calls that have to be confirmed: they take longer
}

// Observer is told of a call when it is sent, with the script's name and the node, and when it was answered, or was not. Start returns
// the context of End.
type Observer struct {
	Start func(ctx context.Context, script, node string) context.Context
	End   func(ctx context.Context, script, node string, took time.Duration, err error)
}

// lane says which calls share a queue.
type lane struct {
	node     *redis.Client
	confirms bool
}

// bound is a context shared by the calls of half a second.
type bound struct {
	ctx  context.Context //nolint:containedctx // it is what is shared
	made time.Time
}

// Hook has go-redis call hooks for what the batcher sends through views of its own: all of a single server, and on a cluster what has to
// go to one node. It is to be called before the first call.
func (b *Batcher) Hook(hooks []redis.Hook) {
	b.hooks = hooks
	if single, ok := b.rdb.(*redis.Client); ok {
		b.rdb = b.hooked(single)
	}
}

func (b *Batcher) hooked(view *redis.Client) *redis.Client {
	for _, h := range b.hooks {
		view.AddHook(h)
	}
	return view
}

// New returns a batcher over rdb. A call that is not answered within the lease is of
// no use to anybody: its connection is given up.
func New(rdb redis.UniversalClient, lease time.Duration) *Batcher {
	life, end := context.WithCancel(context.Background()) //nolint:forbidigo // ended by Close
	b := &Batcher{rdb: rdb, limit: min(ioLimit, max(lease, ioFloor)), life: life, end: end, jobs: make(chan job), nodes: map[lane]*nodeQueue{}}
	b.waits, b.endWaits = context.WithCancel(life)
	b.cluster, _ = rdb.(*redis.ClusterClient)
	b.layout.cluster, b.layout.life = b.cluster, life
	if single, ok := rdb.(*redis.Client); ok {
		b.rdb = boundedClient(single, 0)
	}
	b.only, b.confirmed = &nodeQueue{batcher: b}, &nodeQueue{batcher: b, confirms: true}
	return b
}

// boundedClient returns a view of the user's client, on the same pool, whose reads and writes end with their context and
// after [ioLimit] and so much more at the latest. It does without the client's hooks: go-redis has no way to take them along.
func boundedClient(single *redis.Client, more time.Duration) *redis.Client {
	timeout := single.Options().ReadTimeout
	if timeout <= 0 || timeout > ioLimit {
		timeout = ioLimit
	}
	view := single.WithTimeout(timeout + more)
	view.Options().ContextTimeoutEnabled = true // the view's own copy
	view.AddHook(handshake{})
	return view
}

// Bounded reports whether calls on their caller's own goroutine end with their limit, and within about [ioLimit] in any
// case, when Redis is silent. On a cluster only the user's settings bound them.
func (b *Batcher) Bounded() bool { return b.cluster == nil }

// Reload asks a cluster for its layout, since a node does not answer: a few times a second at the most.
func (b *Batcher) Reload() { b.layout.reload() }

// Flushes returns how many round trips were made.
func (b *Batcher) Flushes() int64 { return b.flushes.Load() }

// EndBy has everything that is sent from now on end by the given time, where the connection allows it.
func (b *Batcher) EndBy(t time.Time) {
	b.endBy.Store(&t)
	b.bounded.Store(nil)
}

// EndWaits gives up all calls that somebody waits for on another goroutine, now and from now on, as if their contexts had ended. They
// return [errs.ErrClosed].
func (b *Batcher) EndWaits() { b.endWaits() }

// AfterWaits has fn called on a goroutine of its own by EndWaits, for a call that [Batcher.Start] sends. The result takes that back.
func (b *Batcher) AfterWaits(fn func()) (stop func() bool) { return context.AfterFunc(b.waits, fn) }

// Stop refuses calls from now on, and ends the waits for those in flight.
func (b *Batcher) Stop() { b.end() }

// Close stops the batcher and waits for its workers, but not much longer than EndBy said: on a cluster that is silent,
// those that wait for a reply end only with the user's own read time-out.
func (b *Batcher) Close() {
	b.end()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the workers
		b.workers.Wait()
		close(ended)
	}()
	left := ioLimit
	if t := b.endBy.Load(); t != nil {
		left = time.Until(*t) + closeSlack
	}
	timer := time.NewTimer(max(left, closeSlack))
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// Do sends a call and waits for its reply, for ctx or for the limit. Its error is that of the call, or that of
// the context; an error that wraps [script.ErrNotSent] says that the call will never run.
//
// The caller must not look at the call after an error that is not the call's own.
func (b *Batcher) Do(ctx context.Context, call *script.Call, ask SendOptions) error {
	if b.life.Err() != nil {
		return fmt.Errorf("%w: %w", script.ErrNotSent, errs.ErrClosed)
	}
	n := b.queue(call)
	// A limit can be a deadline of the connection's; a cancellation cannot, and needs a goroutine that waits for it.
	if n.confirms || ctx.Done() != nil && !ask.Deaf || ask.Limit > 0 && !b.Bounded() {
		return n.wait(ask.heeded(ctx), call, ask)
	}
	slot, ok := n.enter()
	if !ok {
		return n.wait(ask.heeded(ctx), call, ask)
	}
	io, cancel := b.ioContext(ctx), func() {}
	if ask.Limit > 0 && ask.Limit < Usual {
		io, cancel = context.WithTimeout(io, ask.Limit)
	}
	b.send(io, call)
	cancel()
	n.leave(slot)
	return call.Err()
}

// heeded returns the context whose end ends the wait.
func (a SendOptions) heeded(ctx context.Context) context.Context {
	if a.Deaf {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Start sends a call and returns at once; done is called with it when it has finished, on a goroutine that it must not
// hold up. After Stop it may never be called; the result is false if it certainly will not.
func (b *Batcher) Start(call *script.Call, class Class, done func(*script.Call)) bool {
	if b.life.Err() != nil {
		return false
	}
	p := &pending{call: call, late: Func(done)}
	p.state.Store(abandoned) // nobody waits
	b.queue(call).submit(class, p)
	return true
}

// A Sending is a call, and the function that is called with it as [Batcher.Start] says.
type Sending struct {
	Call *script.Call
	Done func(*script.Call)
}

// StartAll is Start for several calls: those of a node leave in one pipeline.
func (b *Batcher) StartAll(class Class, calls []Sending) bool {
	if b.life.Err() != nil {
		return false
	}
	queues := make(map[*nodeQueue][]*pending, 1)
	for _, s := range calls {
		p := &pending{call: s.Call, late: Func(s.Done)}
		p.state.Store(abandoned) // nobody waits
		q := b.queue(s.Call)
		queues[q] = append(queues[q], p)
	}
	for q, together := range queues {
		q.submit(class, together...)
	}
	return true
}

// queue prepares a call that is about to be sent, and returns the queue of the node that it goes to. Before a cluster's layout is
// known all calls share one.
func (b *Batcher) queue(call *script.Call) *nodeQueue {
	if b.Sharded {
		call.Shard()
	}
	confirms := call.Confirms && b.Confirmations != nil
	only := b.only
	if confirms {
		only = b.confirmed
	}
	if b.cluster == nil || !b.known.Load() {
		return only
	}
	node, err := b.cluster.MasterForKey(b.life, call.Key())
	if err != nil {
		return only
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	of := lane{node, confirms}
	n := b.nodes[of]
	if n == nil {
		if len(b.nodes) >= 1024 { // most have left the cluster
			b.nodes = map[lane]*nodeQueue{}
		}
		n = &nodeQueue{batcher: b, confirms: confirms}
		b.nodes[of] = n
	}
	return n
}

// Node returns the address of the server that has a key; "" before a cluster's layout is known.
func (b *Batcher) Node(key string) string {
	node := b.Master(key)
	if node == nil {
		return ""
	}
	return node.Options().Addr
}

// Master returns the client of the server that has a key; nil before a cluster's layout is known.
func (b *Batcher) Master(key string) *redis.Client {
	if b.cluster == nil {
		single, _ := b.rdb.(*redis.Client)
		return single
	}
	if !b.known.Load() {
		return nil
	}
	node, err := b.cluster.MasterForKey(b.life, key)
	if err != nil {
		return nil
	}
	return node
}

// Go calls fn on a goroutine of its own with a client of one server, which follows no redirection. What that does ends with its context.
// It returns false, and calls nothing, once Close has begun and for a server that is nil.
func (b *Batcher) Go(node *redis.Client, fn func(ctx context.Context, node *redis.Client)) bool {
	if node == nil || !b.hire() {
		return false
	}
	go func() { // Close waits for it
		defer b.workers.Done()
		ctx, cancel := context.WithDeadline(b.life, b.flushEnd(time.Now().Add(b.limit)))
		defer cancel()
		fn(ctx, b.hooked(boundedClient(node, 0)))
	}()
	return true
}

// EachNode calls fn with a client of each node, of the replicas too, at the same time, and returns the first error. What the clients
// do ends with its context.
func (b *Batcher) EachNode(ctx context.Context, fn func(ctx context.Context, node *redis.Client) error) error {
	if single, ok := b.rdb.(*redis.Client); ok {
		return fn(ctx, single)
	}
	return b.cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		return fn(ctx, b.hooked(boundedClient(node, 0)))
	})
}

// Masters returns a client of each master. What they do ends with its context.
func (b *Batcher) Masters(ctx context.Context) ([]*redis.Client, error) {
	if single, ok := b.rdb.(*redis.Client); ok {
		return []*redis.Client{single}, nil
	}
	var mu sync.Mutex
	var all []*redis.Client
	err := b.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		all = append(all, b.hooked(boundedClient(node, 0)))
		mu.Unlock()
		return nil
	})
	return all, err
}

// ioContext returns the context for a call on its caller's own goroutine: the caller's values, and a bound.
func (b *Batcher) ioContext(ctx context.Context) context.Context {
	if ctx == context.Background() { //nolint:forbidigo // compared, not used
		return b.bound()
	}
	return valuesOf{Context: b.bound(), values: ctx}
}

// bound returns a context that ends with the bound on a flush, or up to half a second sooner, or with the batcher. One serves many
// calls: a timer each would cost more than the rest of this package.
func (b *Batcher) bound() context.Context {
	now := time.Now()
	if s := b.bounded.Load(); s != nil && now.Sub(s.made) < 500*time.Millisecond {
		return s.ctx
	}
	ctx, cancel := context.WithDeadline(b.life, b.flushEnd(now.Add(b.limit)))
	context.AfterFunc(ctx, cancel)
	b.bounded.Store(&bound{ctx: ctx, made: now})
	return ctx
}

// flushEnd returns when a flush ends that may last until then: sooner if the batcher closes.
func (b *Batcher) flushEnd(end time.Time) time.Time {
	if t := b.endBy.Load(); t != nil && t.Before(end) {
		return *t
	}
	return end
}

// valuesOf is a context with the values of another one.
type valuesOf struct {
	context.Context //nolint:containedctx // a context made of two
	values          context.Context
}

func (v valuesOf) Value(key any) any {
	// The bound first, which has no values but its own: package context finds by one what ends a context.
	if found := v.Context.Value(key); found != nil {
		return found
	}
	return v.values.Value(key)
}

// send runs one call, a second time with its full text if Redis does not know the script.
func (b *Batcher) send(ctx context.Context, call *script.Call) {
	if o := b.Observer; o != nil {
		name, node, began := call.ScriptName(), b.Node(call.Key()), time.Now()
		ctx = o.Start(ctx, name, node)
		defer func() { o.End(ctx, name, node, time.Since(began), call.Err()) }()
	}
	b.flushes.Add(1)
	_ = b.rdb.Process(ctx, call) // the error stays in the call
	if call.Missing() {
		call.Resend()
		_ = b.rdb.Process(ctx, call) // as above
	}
	b.judgeUnsent(call)
	b.learn(call)
	b.layout.doubt(call.Err())
}

// observeAll tells the observer that the calls of a pipeline are sent, each with a context of its own. The result tells it of the
// answers.
func (b *Batcher) observeAll(ctx context.Context, calls []*script.Call) func() {
	if b.Observer == nil {
		return func() {}
	}
	type sent struct {
		ctx        context.Context //nolint:containedctx // that of the call's end
		name, node string
	}
	all, began := make([]sent, len(calls)), time.Now()
	for i, call := range calls {
		name, node := call.ScriptName(), b.Node(call.Key())
		all[i] = sent{b.Observer.Start(ctx, name, node), name, node}
	}
	return func() {
		took := time.Since(began)
		for i, s := range all {
			b.Observer.End(s.ctx, s.name, s.node, took, calls[i].Err())
		}
	}
}

// sendAll runs calls in one pipeline, and those whose script Redis did not know in a second one.
func (b *Batcher) sendAll(ctx context.Context, calls []*script.Call) {
	defer b.observeAll(ctx, calls)()
	b.pipeline(ctx, calls)
	var missing []*script.Call
	for _, call := range calls {
		if call.Missing() {
			call.Resend()
			missing = append(missing, call)
		}
	}
	if missing != nil {
		b.pipeline(ctx, missing)
	}
	b.learn(calls[0])
}

func (b *Batcher) pipeline(ctx context.Context, calls []*script.Call) {
	b.flushes.Add(1)
	pipe := b.rdb.Pipeline()
	for _, call := range calls {
		_ = pipe.Process(ctx, call) // it only queues
	}
	_, err := pipe.Exec(ctx)
	for _, call := range calls {
		b.stamp(call, err)
		b.layout.doubt(call.Err())
	}
}

// stamp gives a call of a pipeline the error that is its own.
func (b *Batcher) stamp(call *script.Call, pipelineErr error) {
	b.unanswered(call, pipelineErr)
	if b.cluster != nil && redirected(call.Err()) {
		call.SetErr(errRedirected)
	}
}

// unanswered gives a call of a pipeline that has neither reply nor error the reason, and judges whether it was sent.
func (b *Batcher) unanswered(call *script.Call, pipelineErr error) {
	if call.Err() == nil && call.Val() == nil {
		// Redis answered the connection's greeting with an error, which go-redis gives to no call.
		call.SetErr(cmp.Or(pipelineErr, errNoReply))
	}
	b.judgeUnsent(call)
}

// errNoReply is the error of a call that came back with neither a reply nor an error.
var errNoReply = errors.New("no reply")

// errRedirected is the error of a call in a pipeline that a node sent to another one. Go-redis leaves the first node's
// answer in the call although the second one may have run it: where that one's answers end, only one call gets its error.
var errRedirected = errors.New("redirected, and no answer came")

func redirected(err error) bool {
	if err == nil { // what follows allocates
		return false
	}
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// judgeUnsent says of a call that waited for a connection until its bound that it was not sent. Go-redis returns a context's bare error only
// for that: what it has sent ends with an error of the connection. On a cluster an earlier attempt may have been sent.
func (b *Batcher) judgeUnsent(call *script.Call) {
	err := call.Err()
	if err != context.DeadlineExceeded && err != context.Canceled || !b.Bounded() { //nolint:errorlint // as said above
		return
	}
	reason := fmt.Errorf("no connection in time: %w", redis.ErrPoolTimeout)
	if b.life.Err() != nil {
		reason = errs.ErrClosed
	}
	call.SetErr(fmt.Errorf("%w: %w", script.ErrNotSent, reason))
}

func (b *Batcher) learn(call *script.Call) {
	if b.cluster != nil && !b.known.Load() && script.Judge(call.Err()) == script.Done {
		b.known.Store(true)
	}
}

// gaveUp returns why a call was given up that waited for ctx. The end of a context of the library's own is no error of its caller's.
func (b *Batcher) gaveUp(ctx context.Context) error {
	switch {
	case errors.Is(context.Cause(ctx), script.ErrNoAnswer):
		return script.ErrNoAnswer
	case ctx.Err() != nil:
		return ctx.Err()
	case b.waits.Err() != nil:
		return fmt.Errorf("%w: %w", script.ErrNoAnswer, errs.ErrClosed)
	}
	return script.ErrNoAnswer
}
