package rcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/once"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	patience = time.Second // with Redis, of a cache that fails open; and for how long it keeps what it loads without it
	overtime = time.Second // for which a loader has its claim after the load timeout
	reads    = 128         // keys that one call asks for at a time
)

// load is a call of the loader.
type load[V any] struct {
	terms *terms
	done  chan struct{} // closed when it has ended
	value V             // set before done is closed, as what follows
	data  []byte        // the encoded value
	err   error
	left  atomic.Bool // nobody waits for it
}

// terms are what the loader of a key may say, and from where it was called.
type terms struct {
	core  *core.Core
	key   string
	ttl   atomic.Int64
	outer *terms // of the load in whose context this one began
}

type termsKey struct{}

func termsOf(ctx context.Context) *terms {
	t, _ := ctx.Value(termsKey{}).(*terms)
	return t
}

// KeepFor says, in a loader, with its context, for how long its result is kept: the value, or that there is none. From 10 ms to ten years,
// else the load fails with redlatch.ErrInvalid. The last call counts. With any other context it does nothing.
func KeepFor(ctx context.Context, d time.Duration) {
	if t := termsOf(ctx); t != nil {
		t.ttl.Store(max(1, int64(d)))
	}
}

// panicked is a panic of a loader, or the end of its goroutine, on the way to the caller.
type panicked struct {
	value any
	exit  bool
}

func (p *panicked) Error() string {
	if p.exit {
		return "the loader ended its goroutine"
	}
	return fmt.Sprint("panic: ", p.value)
}

func (p *panicked) goOn() {
	if p.exit {
		runtime.Goexit()
	}
	panic(p.value)
}

// missing returns the value of a key that Redis does not have, or was asked for without an answer.
func (c *Cache[K, V]) missing(ctx context.Context, k K, p place, asked error) (v V, err error) {
	if asked != nil && !c.failsOpen(ctx, asked) {
		return v, asked
	}
	c.counts().misses.Add(1)
	if c.loader == nil {
		return v, ErrNotFound
	}
	for t := termsOf(ctx); t != nil; t = t.outer {
		if t.key == p.key && t.core == c.core {
			return v, fmt.Errorf("%w: the loader asks for its own key, and would wait for itself", errs.ErrInvalid)
		}
	}
	if asked == nil {
		if v, err = c.loadOnce(ctx, k, p); !c.failsOpen(ctx, err) {
			return v, err
		}
	}
	return c.loadAlone(ctx, k, p)
}

// failsOpen reports whether a call is to load without Redis after an error.
func (c *Cache[K, V]) failsOpen(ctx context.Context, err error) bool {
	down := errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknown)
	return down && c.opts.failOpen && c.loader != nil && ctx.Err() == nil && !c.core.Closed()
}

// loadOnce claims the key and loads its value, or waits for the load of another.
func (c *Cache[K, V]) loadOnce(ctx context.Context, k K, p place) (v V, err error) {
	for {
		claim, err := c.claim(ctx, p)
		if err == nil {
			l := c.newLoad(ctx, p)
			c.manager.loads.Go(func() { c.run(ctx, k, l, claim, false) }) // ends with the loader; Wait waits for it
			return c.await(ctx, l)
		}
		var kept *once.Result
		if !errors.As(err, &kept) {
			return v, err
		}
		v, ok, err := c.answer(*kept)
		if ok {
			return v, err
		}
		if err := c.drop(ctx, p, *kept); err != nil {
			return v, err
		}
	}
}

// claim claims a key, and waits for those who have it. A cache that fails open asks Redis every second meanwhile, for the wait to end
// when it does not answer.
func (c *Cache[K, V]) claim(ctx context.Context, p place) (*lease.Hold, error) {
	name := c.manager.claims.Key(p.key, nil)
	if !c.opts.failOpen {
		return name.Acquire(ctx, &c.acquire, locker.Forever)
	}
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.manager.loads.Go(func() { // ends with the call; Wait waits for it
		for core.Sleep(waiting, patience) == nil {
			if _, _, err := c.read(waiting, p); c.failsOpen(waiting, err) {
				end(err)
			}
		}
	})
	claim, err := name.Acquire(waiting, &c.acquire, locker.Forever)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		err = context.Cause(waiting)
	}
	return claim, err
}

// refresh loads an old value again in the background, unless another does so.
func (c *Cache[K, V]) refresh(ctx context.Context, k K, p place) {
	if _, busy := c.refreshing.LoadOrStore(p.key, struct{}{}); busy {
		return
	}
	ctx = context.WithoutCancel(ctx)
	c.manager.loads.Go(func() { // ends with the loader; Wait waits for it
		defer c.refreshing.Delete(p.key)
		name := c.manager.claims.Key(p.key, nil)
		claim, err := name.Acquire(ctx, &c.acquire, locker.Once)
		if err != nil {
			return // another refreshes it, or the next Get tries again
		}
		l := c.newLoad(ctx, p)
		l.left.Store(true)
		c.run(ctx, k, l, claim, true)
	})
}

// loadAlone loads the value of a key for this process.
func (c *Cache[K, V]) loadAlone(ctx context.Context, k K, p place) (v V, err error) {
	c.mu.Lock()
	l, shared := c.alone[p.key]
	if !shared {
		l = c.newLoad(ctx, p)
		c.alone[p.key] = l
		c.manager.loads.Go(func() { c.run(ctx, k, l, nil, false) }) // ends with the loader; Wait waits for it
	}
	c.mu.Unlock()
	v, err = c.await(ctx, l)
	select {
	case <-l.done:
	default:
		return v, err // its own ctx
	}
	if !shared {
		return v, err
	}
	return c.shared(l)
}

// loadedAlone returns the load of a value that this process has loaded without Redis a moment ago; nil if it has not.
func (c *Cache[K, V]) loadedAlone(key string) *load[V] {
	if !c.opts.failOpen {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.alone[key]
	if l == nil {
		return nil
	}
	select {
	case <-l.done:
		return l
	default:
		return nil
	}
}

// shared returns what a load came to, for another caller than the one it was made for.
func (c *Cache[K, V]) shared(l *load[V]) (v V, err error) {
	switch {
	case l.err == nil:
		return c.decode(l.data)
	case errors.Is(l.err, ErrNotFound):
		return v, ErrNotFound
	}
	return v, &LoadError{Text: once.Failed(l.err).Data}
}

// forget has a value be loaded again that this process has loaded without Redis; which one, nil for any.
func (c *Cache[K, V]) forget(key string, which *load[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.alone[key]; l != nil && (which == nil || l == which) {
		delete(c.alone, key)
	}
}

func (c *Cache[K, V]) newLoad(ctx context.Context, p place) *load[V] {
	return &load[V]{terms: &terms{core: c.core, key: p.key, outer: termsOf(ctx)}, done: make(chan struct{})}
}

// await waits for a load.
func (c *Cache[K, V]) await(ctx context.Context, l *load[V]) (v V, err error) {
	select {
	case <-l.done:
		return l.value, l.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.core.Closing():
		err = errs.ErrClosed
	}
	l.left.Store(true)
	return v, err
}

// run calls the loader, and turns the claim, if there is one, into the result.
func (c *Cache[K, V]) run(ctx context.Context, k K, l *load[V], claim *lease.Hold, refresh bool) {
	deliver := sync.OnceFunc(func() { close(l.done) })
	defer deliver()
	c.counts().loads.Add(1)
	ctx = context.WithValue(context.WithoutCancel(ctx), termsKey{}, l.terms)
	timed, cancel := context.WithTimeout(ctx, c.opts.loadTimeout)
	defer cancel()
	loading, end := context.WithCancelCause(timed)
	defer end(nil)
	defer context.AfterFunc(c.manager.life, func() { end(errs.ErrClosed) })()
	if claim != nil {
		claim.OnEnd(end)
	}
	var o outcome
	l.value, l.err = c.call(loading, k)
	o, l.data, l.err = c.outcome(l, l.err, refresh)
	if l.err != nil {
		var zero V
		l.value = zero
	}
	if claim == nil {
		c.keepAlone(l)
	} else {
		cause := context.Cause(loading)
		if l.err != nil && errors.Is(cause, errs.ErrLost) {
			l.err = errors.Join(l.err, once.ErrLost)
		}
		if c.opts.failOpen {
			defer time.AfterFunc(patience, deliver).Stop()
		}
		c.keep(ctx, l, claim, o, errors.Is(cause, errs.ErrClosed))
	}
	if l.err != nil && !errors.Is(l.err, ErrNotFound) {
		c.counts().failures.Add(1)
		c.log(l)
	}
}

// call calls the loader, and returns its panic as an error.
func (c *Cache[K, V]) call(ctx context.Context, k K) (v V, err error) {
	done := make(chan struct{})
	go func() { // ends with the loader, which may end its goroutine; waited for below
		defer close(done)
		returned := false
		defer func() {
			if !returned {
				value := recover()
				err = &panicked{value: value, exit: value == nil}
			}
		}()
		v, err = c.loader(ctx, k)
		returned = true
	}()
	<-done
	return v, err
}

// outcome returns what is to be kept of a load, the encoded value, and the load's error.
func (c *Cache[K, V]) outcome(l *load[V], failure error, refresh bool) (o outcome, data []byte, err error) {
	ttl := time.Duration(l.terms.ttl.Load())
	if bad := errs.Between("the time of KeepFor", ttl, shortest, longest); ttl != 0 && bad != nil && (failure == nil || errors.Is(failure, ErrNotFound)) {
		failure = bad
	}
	if failure == nil {
		data, failure = c.encode(l.value)
	}
	switch {
	case failure == nil:
		ttl = cmp.Or(ttl, c.opts.ttl)
		return outcome{once.Result{Kind: once.Value, Data: string(data)}, ttl, c.opts.freshFor(ttl)}, data, nil
	case errors.Is(failure, ErrNotFound):
		return outcome{once.Result{Kind: none}, cmp.Or(ttl, c.opts.missTTL), 0}, nil, failure
	}
	o.Result = once.Failed(failure)
	if c.opts.errors != nil && !refresh {
		o.ttl = *c.opts.errors
	} else {
		o.Kind = failed
	}
	return o, nil, failure
}

// keep turns a claim into the result of its load. The end of the client is nobody else's failure.
func (c *Cache[K, V]) keep(ctx context.Context, l *load[V], claim *lease.Hold, o outcome, closed bool) {
	claims, owner := c.manager.claims, claim.Owner()
	var err error
	if closed && l.err != nil {
		err = claim.Unlock(ctx)
	} else {
		err = claim.UnlockBy(ctx, func() *script.Call { return keep(l.terms.key, owner, o) })
	}
	claims.LogUnreleased(claim, claims.Ended(claim, err))
}

// keepAlone keeps the result of a load without Redis for a moment.
func (c *Cache[K, V]) keepAlone(l *load[V]) {
	if l.err != nil && !errors.Is(l.err, ErrNotFound) {
		c.forget(l.terms.key, l)
		return
	}
	time.AfterFunc(patience, func() { c.forget(l.terms.key, l) })
}

// log logs, at most once a second, a load whose failure no caller receives.
func (c *Cache[K, V]) log(l *load[V]) {
	last, now := c.loggedAt.Load(), int64(c.core.Clock.Now())
	if !l.left.Load() || c.core.Closed() || last != 0 && now-last < int64(time.Second) || !c.loggedAt.CompareAndSwap(last, now) {
		return
	}
	c.core.Logger.Warn("redlatch: a load in the background failed", "kind", kinds.Cache, "name", c.Name(), "key", l.terms.key, "cause", l.err)
}
