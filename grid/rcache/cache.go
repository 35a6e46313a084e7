package rcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/once"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
)

// manager is a client's state for its caches.
type manager struct {
	core   *core.Core
	claims *once.Claims
	loads  core.Goroutines
	life   context.Context //nolint:containedctx // until the client closes
	end    context.CancelCauseFunc

	mu     sync.Mutex         // guards counts
	counts map[string]*counts // by name, with the client's prefix
}

var _ core.Holder = (*manager)(nil)

func newManager(c *core.Core) *manager {
	m := &manager{core: c, claims: once.New(c, kind()), counts: map[string]*counts{}}
	m.life, m.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // Closing ends it
	c.Register(m)
	presence.Of(c).AddCaches(m)
	return m
}

// Closing ends the contexts of all loads.
func (m *manager) Closing() { m.end(errs.ErrClosed) }

// Wait waits until then for loads whose loaders go on.
func (m *manager) Wait(until time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), until) //nolint:forbidigo // bounded by the time
	defer cancel()
	m.loads.Wait(ctx)
}

// Verify, Open and Drain do nothing: the claims of loads are the namespace's.
func (*manager) Verify()             {}
func (*manager) Open() int           { return 0 }
func (*manager) Drain(time.Duration) {}

// Cache keeps values by keys for all processes, and loads those that are missing. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	core    *core.Core
	manager *manager
	name    string // with the client's prefix
	loader  func(context.Context, K) (V, error)
	opts    options
	acquire locker.Options
	near    *near.Cache[K, V] // nil without WithNear
	channel string            // of near caches; empty without WithNear
	err     error             // of the name or the options
	counts  func() *counts    // those of the name

	readings   readings
	refreshing sync.Map // Redis keys that this client is about to refresh
	loggedAt   atomic.Int64

	mu    sync.Mutex // guards alone
	alone map[string]*load[V]
}

// New returns the cache with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error of
// every method. Two caches of one name in a client share what is in Redis, and have near values of their own.
//
// loader returns the value of a key from where it really is. An error that wraps [ErrNotFound] says that there is none. Its context has
// the values of the context of the Get that it runs for, not its end: it ends after [WithLoadTimeout], when the claim is lost (with the
// cause rlock.ErrLost), and when the client closes (redlatch.ErrClosed). Under it, a Get that would load the same key is
// redlatch.ErrInvalid. Without a loader, if it is nil, Get returns ErrNotFound for what is missing.
func New[K comparable, V any](client core.Client, name string, loader func(ctx context.Context, k K) (V, error), opts ...Option) *Cache[K, V] {
	c := core.Of(client)
	cache := &Cache[K, V]{core: c, manager: core.Manager(c, newManager), name: c.Prefix + name, loader: loader, alone: map[string]*load[V]{}}
	cache.counts = sync.OnceValue(func() *counts { return cache.manager.countsOf(cache.name) })
	cache.readings.keys = map[string]*turns{}
	cache.opts, cache.err = collect(opts)
	cache.err = cmp.Or(core.CheckUserName(name, cache.name), cache.err, grid.CheckIdentity[K](cache.opts.keys, "key"))
	hold := cache.opts.loadTimeout + overtime
	cache.acquire = locker.Options{Term: lease.Term{MaxHold: &hold}}
	if cache.opts.near != nil && cache.err == nil {
		topic := topicOf(cache.name)
		cache.channel = topic.Channel
		cache.near = near.New[K](c, topic, near.Options[V]{
			Entries: *cache.opts.near, MaxStale: cache.opts.maxStale,
			Decode: func(encoded []byte) (V, error) { return cache.decode(encoded) },
		})
	}
	return cache
}

// Name returns the cache's name as it was given to New.
func (c *Cache[K, V]) Name() string { return c.core.UserName(c.name) }

// Key returns the Redis key of a key; empty if that is redlatch.ErrInvalid.
func (c *Cache[K, V]) Key(k K) string {
	p, _ := c.place(k)
	return p.key
}

// place is where a key is kept.
type place struct {
	key     string // in Redis
	encoded []byte
}

func (c *Cache[K, V]) place(k K) (p place, err error) {
	if c.err != nil {
		return p, c.err
	}
	p.encoded, err = codec.Marshal(c.opts.keys, k)
	if err != nil {
		return p, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if err := core.CheckKey(string(p.encoded)); err != nil {
		return p, err
	}
	p.key = names.KeyOf(c.name, string(p.encoded))
	return p, nil
}

func (c *Cache[K, V]) places(keys []K) ([]place, error) {
	all := make([]place, len(keys))
	for i, k := range keys {
		var err error
		if all[i], err = c.place(k); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Get returns the value of a key: the one that is kept, or what the loader returns, which is kept then. While another caller loads it, in
// any process, Get waits for its value. An old value ([WithRefresh]) is returned at once.
//
// It blocks until there is a value, ctx is done, the client closes (redlatch.ErrClosed), or an error occurs. What it loads goes on when
// ctx is done. A Get that began after Invalidate had returned never gets what was read before; a near value (see [WithNear]) of another
// client may be older, by about a millisecond and at the most by [WithMaxStale].
//
//   - [ErrNotFound]: the loader found nothing, now or less than [WithMissTTL] ago.
//   - The error of the loader, or as [*LoadError] the one of the load that Get waited for. The next Get loads, unless it is kept
//     ([WithErrors]). A panic of the loader goes on in the caller; one whose caller has left is logged.
//   - redlatch.ErrInvalid: the value cannot be encoded, or has more than 1 MiB then.
//   - redlatch.ErrUnavailable, redlatch.ErrUnknown: Redis did not answer, for one lease (30 s by default) while Get waited, or refuses
//     writes (redlatch.ErrUnwritable) and there is something to load; see [WithFailOpen].
//   - redlatch.ErrNotConfirmed, with redlatch.WithReplicas or redlatch.WithDurability: a load was not begun.
//
// A value that was loaded is returned although it could not be kept, unless that is redlatch.ErrInvalid. One that cannot be decoded is
// deleted, and loaded again.
//
// A near value costs no I/O, a kept one a round trip, and a load three. Calls for a key that come while Redis is asked for it share the
// next read, which begins after that one, or after 100 ms. A call that waits for a load costs two; all that wait in one client cost one
// or two more together when the load ends, and about one a second until then.
func (c *Cache[K, V]) Get(ctx context.Context, k K) (V, error) {
	if v, ok := c.nearby(ctx, k); ok {
		return v, nil
	}
	p, err := c.place(k)
	if err != nil {
		var none V
		return none, c.wrap("get", err)
	}
	v, ok, err := c.look(ctx, k, p)
	if !ok {
		v, err = c.missing(ctx, k, p, err)
	}
	return v, c.wrap("get", err)
}

// nearby returns the near value of a key.
func (c *Cache[K, V]) nearby(ctx context.Context, k K) (v V, ok bool) {
	if c.near == nil || ctx == nil || ctx.Err() != nil || c.core.Closed() {
		return v, false
	}
	return c.near.Get(k)
}

// look asks Redis. If ok is true there is a result: a value, or err is that of the result.
func (c *Cache[K, V]) look(ctx context.Context, k K, p place) (v V, ok bool, err error) {
	if l := c.loadedAlone(p.key); l != nil && ctx != nil && ctx.Err() == nil {
		v, err = c.shared(l)
		return v, true, err
	}
	var ticket near.Ticket
	if c.near != nil && ctx != nil {
		ticket = c.near.Ask(p.encoded)
	}
	f, ok, err := c.read(ctx, p)
	if err != nil || !ok {
		return v, false, err
	}
	v, ok, err = c.answer(f.Result)
	if !ok {
		return v, false, c.drop(ctx, p, f.Result)
	}
	n := c.counts()
	n.hits.Add(1)
	if f.fresh == 0 {
		n.stale.Add(1)
	}
	if err == nil && c.near != nil && f.fresh > 0 {
		c.near.Store(k, v, []byte(f.Data), f.fresh, ticket)
	}
	if f.due && c.loader != nil {
		c.refresh(ctx, k, p)
	}
	return v, true, err
}

// answer returns what a result means to a caller. ok is false if it cannot be decoded.
func (c *Cache[K, V]) answer(r once.Result) (v V, ok bool, err error) {
	switch r.Kind {
	case none:
		return v, true, ErrNotFound
	case once.Failure:
		return v, true, &LoadError{Text: r.Data}
	}
	v, err = c.decode([]byte(r.Data))
	return v, err == nil, nil
}

func (c *Cache[K, V]) decode(encoded []byte) (v V, err error) {
	if err := codec.Unmarshal(c.opts.codec, encoded, &v); err != nil {
		var none V
		return none, err
	}
	return v, nil
}

// drop deletes a result that cannot be decoded, so that it is loaded again: a claim is not granted while there is a result.
func (c *Cache[K, V]) drop(ctx context.Context, p place, r once.Result) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	_, _, err := c.core.Query(ctx, func() *script.Call { return drop(p.key, r.Data) })
	return err
}

// GetAll returns the values of those keys that have one. What is missing is loaded, 8 at a time unless [WithParallel] says otherwise. The
// first error, but [ErrNotFound], ends it, and is returned without any value; what it loads goes on. Otherwise it does for each key as
// Get does.
//
// The keys cost round trips together, one for each 128 keys that are not near.
func (c *Cache[K, V]) GetAll(ctx context.Context, keys []K) (map[K]V, error) {
	if ctx == nil {
		return nil, c.wrap("get all", core.ErrNilContext)
	}
	all, err := c.places(keys)
	if err != nil {
		return nil, c.wrap("get all", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := gathering[K, V]{ctx: ctx, cancel: cancel, found: make(map[K]V, len(keys))}
	var ask []int
	asked := make(map[K]struct{}, len(keys))
	for i, k := range keys {
		if _, twice := asked[k]; twice {
			continue
		}
		asked[k] = struct{}{}
		if v, ok := c.nearby(ctx, k); ok {
			g.found[k] = v
		} else {
			ask = append(ask, i)
		}
	}
	var load []func()
	each(len(ask), reads, func(n int) {
		k, p := keys[ask[n]], all[ask[n]]
		v, ok, err := c.look(ctx, k, p)
		if ok {
			g.add(k, v, err)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		load = append(load, func() {
			v, err := c.missing(ctx, k, p, err)
			g.add(k, v, err)
		})
	})
	each(len(load), c.opts.parallel, func(n int) { load[n]() })
	if g.err != nil {
		return nil, c.wrap("get all", g.err)
	}
	return g.found, nil
}

// gathering is a GetAll.
type gathering[K comparable, V any] struct {
	ctx    context.Context //nolint:containedctx // of the call
	cancel context.CancelFunc

	mu    sync.Mutex // guards what follows
	found map[K]V
	err   error // the first one
}

func (g *gathering[K, V]) add(k K, v V, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.found[k] = v
	case g.err == nil && !errors.Is(err, ErrNotFound):
		g.err = err
		g.cancel()
	}
}

// each calls fn for the numbers below n, of which some at a time, and waits for all.
func each(n, atATime int, fn func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, atATime) {
		all.Go(func() { // ends with the numbers
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	all.Wait()
}

// Peek returns the value that is kept for a key, and reports whether there is one. It neither loads nor waits for a load. A failure that
// is kept is returned as [*LoadError]. It costs one round trip, unless the value is near.
func (c *Cache[K, V]) Peek(ctx context.Context, k K) (v V, ok bool, err error) {
	if v, ok := c.nearby(ctx, k); ok {
		return v, true, nil
	}
	p, err := c.place(k)
	if err != nil {
		return v, false, c.wrap("peek", err)
	}
	call, err := c.core.Read(ctx, func() *script.Call { return read(p.key) })
	if err != nil {
		return v, false, c.wrap("peek", err)
	}
	f, ok, err := readFound(call)
	if err == nil && ok {
		v, ok, err = c.answer(f.Result)
	}
	if errors.Is(err, ErrNotFound) {
		return v, false, nil
	}
	return v, ok && err == nil, c.wrap("peek", err)
}

// Set keeps a value for the TTL of the cache. The result of a load that is under way will not be kept, and those who wait for it get the
// value. After redlatch.ErrUnknown it may be kept, or may be later: the call is sent once. It costs one round trip.
func (c *Cache[K, V]) Set(ctx context.Context, k K, v V) error {
	p, err := c.place(k)
	if err != nil {
		return c.wrap("set", err)
	}
	data, err := c.encode(v)
	if err != nil {
		return c.wrap("set", err)
	}
	o := outcome{once.Result{Data: string(data)}, c.opts.ttl, c.opts.freshFor(c.opts.ttl)}
	return c.wrap("set", c.change(p, func(channel string, message []byte) error {
		_, err := c.core.Once(ctx, func() *script.Call { return set(p.key, o, channel, message) })
		return err
	}))
}

func (c *Cache[K, V]) encode(v V) ([]byte, error) {
	data, err := codec.Marshal(c.opts.codec, v)
	if err == nil {
		err = once.CheckSize(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	return data, nil
}

// Invalidate deletes what is kept for keys. The result of a load that is under way will not be kept: its caller gets it, and those who
// wait for it ask again. Change what the loader reads first, then invalidate.
//
// It is repeated until Redis answers, ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout). After an
// error each of the keys may or may not be invalidated. The keys cost round trips together, one for each 128 of them.
func (c *Cache[K, V]) Invalidate(ctx context.Context, keys ...K) error {
	all, err := c.places(keys)
	if err == nil && ctx == nil {
		err = core.ErrNilContext
	}
	if err != nil {
		return c.wrap("invalidate", err)
	}
	failed := make([]error, len(keys))
	each(len(keys), reads, func(i int) {
		failed[i] = c.change(all[i], func(channel string, message []byte) error {
			_, _, err := c.core.Query(ctx, func() *script.Call { return invalidate(all[i].key, channel, message) })
			return err
		})
	})
	return c.wrap("invalidate", cmp.Or(failed...))
}

// change sends a change with its message for near caches, and has this client forget what it has itself.
func (c *Cache[K, V]) change(p place, send func(channel string, message []byte) error) error {
	defer c.forget(p.key, nil)
	if c.near == nil {
		return send("", nil)
	}
	w := c.near.Write(p.encoded)
	err := send(c.channel, w.Message())
	if err == nil {
		w.Answered()
	}
	return err
}

// wrap says what was being done. The panic of a loader goes on here.
func (c *Cache[K, V]) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	var p *panicked
	if errors.As(err, &p) {
		p.goOn()
	}
	return errs.Wrap("rcache", verb, c.Name(), err)
}
