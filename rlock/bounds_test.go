package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	callPatience = 300 * time.Millisecond // of a caller
	callSlack    = 50 * time.Millisecond  // by which a call may outlast it
)

// settings are ways in which users configure go-redis, which decide what it does about a context.
var settings = map[string]redis.Options{
	"default options":       {},
	"ContextTimeoutEnabled": {ContextTimeoutEnabled: true},
	"ReadTimeout -1":        {ReadTimeout: -1, WriteTimeout: -1},
}

// absence is a way in which Redis goes away.
type absence struct {
	name string
	down func(p *faulttest.Proxy, s *redistest.Server)
	up   func(p *faulttest.Proxy, s *redistest.Server)
	// answers says that calls may learn at once that there is no Redis.
	answers bool
	// forgets says that what was held is gone afterwards.
	forgets bool
}

var absences = []absence{
	{
		name: "blackhole",
		down: func(p *faulttest.Proxy, _ *redistest.Server) { p.Blackhole(true) },
		up:   func(p *faulttest.Proxy, _ *redistest.Server) { p.Blackhole(false) },
	},
	{
		name: "half-open", // each script is executed, and nobody hears of it
		down: func(p *faulttest.Proxy, _ *redistest.Server) {
			p.OnCommand(func(cmd []string) {
				if faulttest.Script(cmd) {
					p.HalfOpen()
				}
			})
		},
		up: func(p *faulttest.Proxy, _ *redistest.Server) { p.OnCommand(nil) },
	},
	{
		name:    "refuse",
		down:    func(_ *faulttest.Proxy, s *redistest.Server) { s.Kill() },
		up:      func(_ *faulttest.Proxy, s *redistest.Server) { s.Restart() },
		answers: true,
		forgets: true,
	},
}

// verb is a call that is made while Redis is away. Prepared while it is there, on a name of its own.
type verb struct {
	name string
	call func(ctx context.Context, l *rlock.Lock, h *rlock.Hold) error
	// takes says that the call needs the lock taken by the client before; waits, by another one; forces, that it frees
	// the lock whoever has it.
	takes, waits, forces bool
}

func nothing(context.Context) error { return nil }

var verbs = []verb{
	{name: "TryLock", call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
		_, err := l.TryLock(ctx)
		return err
	}},
	{name: "TryLock with a wait", call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
		_, err := l.TryLock(ctx, rlock.WithWait(time.Minute))
		return err
	}},
	{name: "Lock", call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
		_, err := l.Lock(ctx)
		return err
	}},
	{name: "Lock of a taken lock", waits: true, call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
		_, err := l.Lock(ctx)
		return err
	}},
	{name: "Lock under a hold", takes: true, call: func(ctx context.Context, l *rlock.Lock, h *rlock.Hold) error {
		_, err := l.Lock(under(ctx, h))
		return err
	}},
	{name: "Do", call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error { return l.Do(ctx, nothing) }},
	{name: "Extend", takes: true, call: func(ctx context.Context, _ *rlock.Lock, h *rlock.Hold) error {
		return h.Extend(ctx, time.Minute)
	}},
	{name: "IsLocked", call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
		_, err := l.IsLocked(ctx)
		return err
	}},
	{name: "TTL", call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
		_, err := l.TTL(ctx)
		return err
	}},
	{name: "HoldCount", takes: true, call: func(ctx context.Context, l *rlock.Lock, h *rlock.Hold) error {
		_, err := l.HoldCount(under(ctx, h))
		return err
	}},
	{name: "ForceUnlock", forces: true, call: func(ctx context.Context, l *rlock.Lock, _ *rlock.Hold) error {
		_, err := l.ForceUnlock(ctx)
		return err
	}},
}

// under returns a context that ends with ctx and descends from the hold.
func under(ctx context.Context, h *rlock.Hold) context.Context {
	return lineage{Context: ctx, hold: h.Context()}
}

type lineage struct {
	context.Context
	hold context.Context
}

func (l lineage) Value(key any) any {
	if v := l.hold.Value(key); v != nil {
		return v
	}
	return l.Context.Value(key)
}

// ending is how a caller's callPatience ends.
type ending struct {
	name string
	want error
	make func(context.Context) (context.Context, context.CancelFunc)
}

var endings = []ending{
	{"deadline", context.DeadlineExceeded, func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, callPatience)
	}},
	{"cancel", context.Canceled, func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(callPatience, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}},
}

// F16
func TestCallsEndWithTheirContextAndRecover(t *testing.T) {
	redistest.Long(t)
	for title, options := range settings {
		for _, fault := range absences {
			t.Run(title+"/"+fault.name, func(t *testing.T) {
				t.Parallel()
				endInTime(t, options, fault)
			})
		}
	}
}

// endInTime makes every call at once while Redis is away, and again once it is back.
func endInTime(t *testing.T, options redis.Options, fault absence) {
	server := serve(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	options.Addr = proxy.Addr()
	client := clientOver(t, &options, redlatch.WithCloseGrace(0))
	other := clientAt(t, server.Addr(), redlatch.WithCloseGrace(0))

	var all []*attempt
	for _, end := range endings {
		for _, v := range verbs {
			a := newAttempt(client, v, end)
			a.prepare(t, other)
			all = append(all, a)
		}
	}
	lag := faulttest.MeasureLag(t, "")
	fault.down(proxy, server)
	var calls sync.WaitGroup
	for _, a := range all {
		calls.Go(func() { a.run(t, fault, lag) })
	}
	calls.Wait()
	fault.up(proxy, server)
	for _, a := range all {
		a.recovers(t, fault, other)
	}
}

// attempt is one call, and what it needs.
type attempt struct {
	verb
	ending
	lock  *rlock.Lock
	again *rlock.Lock // another one of the same client
	hold  *rlock.Hold
}

func newAttempt(c *redlatch.Client, v verb, e ending) *attempt {
	name := v.name + " " + e.name
	return &attempt{verb: v, ending: e, lock: c.GetLock(name), again: c.GetLock(name + " again")}
}

func (a *attempt) prepare(t *testing.T, other *redlatch.Client) {
	t.Helper()
	var err error
	switch {
	case a.takes:
		a.hold, err = a.lock.Lock(t.Context())
	case a.waits:
		a.hold, err = other.GetLock(a.lock.Name()).Lock(t.Context())
	default:
		_, err = a.lock.IsLocked(t.Context())
	}
	require.NoError(t, err)
}

// run makes the call, and again if its answer came as its context ended: it may say either then.
func (a *attempt) run(t *testing.T, fault absence, lag *faulttest.Lag) {
	var err error
	for range 3 {
		var took time.Duration
		took, err = a.once(t)
		assert.Less(t, took, callPatience+callSlack+lag.Late(), a.lock.Name())
		if errors.Is(err, a.want) || fault.answers && gone(err) && (took < callPatience || errors.Is(err, redlatch.ErrUnknown)) {
			return
		}
		if !fault.answers || !gone(err) {
			break
		}
	}
	assert.ErrorIs(t, err, a.want, a.lock.Name())
}

// once makes the call.
func (a *attempt) once(t *testing.T) (took time.Duration, err error) {
	ctx, cancel := a.make(t.Context())
	defer cancel()
	started := time.Now()
	err = a.call(ctx, a.lock, a.hold)
	return time.Since(started), err
}

// gone reports whether the error says that there is no Redis, or none any more.
func gone(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}

// recovers sees to it that the client works again, with nothing held that nobody knows of.
func (a *attempt) recovers(t *testing.T, fault absence, other *redlatch.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	what := a.lock.Name()
	if a.hold != nil {
		if err := a.hold.Unlock(ctx); !fault.forgets {
			require.NoError(t, err, what)
		}
	}
	lock := a.lock
	if a.forces { // it may arrive yet, and free whatever it finds
		lock = a.again
	}
	hold, err := lock.Lock(ctx)
	require.NoError(t, err, what)
	for _, v := range verbs {
		if v.takes {
			require.NoError(t, v.call(ctx, lock, hold), "%s after %s", v.name, what)
		}
	}
	taken, err := other.GetLock(lock.Name()).IsLocked(ctx)
	require.NoError(t, err, what)
	require.True(t, taken, what)
	freed, err := lock.ForceUnlock(ctx)
	require.NoError(t, err, what)
	require.True(t, freed, what)
}

// F16
func TestUnlockHasABoundOfItsOwn(t *testing.T) {
	redistest.Long(t)
	for title, options := range settings {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			proxy := faulttest.NewProxy(t, server.Addr())
			options.Addr = proxy.Addr()
			long := clientOver(t, &options)
			brief := clientOver(t, &options, redlatch.WithWatchdogTimeout(shortLease))
			boundedUnlocks(t, proxy, long, brief)
		})
	}
}

func boundedUnlocks(t *testing.T, proxy *faulttest.Proxy, long, brief *redlatch.Client) {
	deadline, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	cases := []struct {
		what        string
		client      *redlatch.Client
		ctx         func() context.Context
		least, most time.Duration
		also        error // joined with ErrUnknown
	}{
		{"a deadline ahead", long, func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), callPatience)
			context.AfterFunc(ctx, cancel)
			return ctx
		}, callPatience - callSlack, callPatience, context.DeadlineExceeded},
		{"a deadline that is far", long, func() context.Context { return deadline }, callPatience, 3 * time.Second, nil},
		{"cancelled before", long, func() context.Context { return cancelled }, callPatience, 3 * time.Second, nil},
		{"cancelled meanwhile", long, func() context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(callPatience, cancel)
			return ctx
		}, 2 * callPatience, 3 * time.Second, nil},
		{"no end", long, func() context.Context { return context.WithoutCancel(t.Context()) }, callPatience, 3 * time.Second, nil},
		{"a short lease", brief, t.Context, 0, shortLease, nil},
	}
	lag := faulttest.MeasureLag(t, "")
	var holds []*rlock.Hold
	for _, tc := range cases {
		hold, err := tc.client.GetLock(tc.what).Lock(t.Context())
		require.NoError(t, err)
		holds = append(holds, hold)
	}
	proxy.Blackhole(true)
	var calls sync.WaitGroup
	for i, tc := range cases {
		calls.Go(func() {
			started := time.Now()
			err := holds[i].Unlock(tc.ctx())
			took := time.Since(started)
			assert.ErrorIs(t, err, redlatch.ErrUnknown, tc.what)
			assert.Equal(t, tc.also != nil, errors.Is(err, context.DeadlineExceeded), "%s: %v", tc.what, err)
			assert.GreaterOrEqual(t, took, tc.least, tc.what)
			assert.Less(t, took, tc.most+callSlack+lag.Late(), tc.what)
		})
	}
	calls.Wait()
	proxy.Blackhole(false)
	for _, tc := range cases { // the releases go on in the background
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		hold, err := tc.client.GetLock(tc.what).Lock(ctx)
		cancel()
		require.NoError(t, err, tc.what)
		require.NoError(t, hold.Unlock(t.Context()), tc.what)
	}
}

// F16
func TestCloseReturnsAfterItsGraceAndThreeSeconds(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const grace = 200 * time.Millisecond
	lag := faulttest.MeasureLag(t, "")
	var closing sync.WaitGroup
	for title, options := range settings {
		for _, fault := range absences {
			server := serve(t)
			proxy := faulttest.NewProxy(t, server.Addr())
			options.Addr = proxy.Addr()
			client := clientOver(t, &options, redlatch.WithCloseGrace(grace))
			other := clientAt(t, server.Addr(), redlatch.WithCloseGrace(0))
			taken, err := other.GetLock("taken").Lock(t.Context())
			require.NoError(t, err)
			for i := range 20 {
				_, err := client.GetLock(fmt.Sprint("held ", i)).Lock(t.Context())
				require.NoError(t, err)
			}
			closing.Go(func() {
				what := title + "/" + fault.name
				took := timeToClose(t, what, client, func() { fault.down(proxy, server) })
				assert.Less(t, took, grace+3*time.Second+callSlack+lag.Late(), what)
				fault.up(proxy, server)
				_ = taken.Unlock(t.Context()) // gone with the server, in one case
			})
		}
	}
	closing.Wait()
}

// timeToClose closes a client that holds locks and waits for others when Redis has gone away.
func timeToClose(t *testing.T, what string, client *redlatch.Client, down func()) time.Duration {
	var waiters sync.WaitGroup
	down()
	for range 3 {
		waiters.Go(func() {
			_, err := client.GetLock("taken").Lock(t.Context())
			assert.Error(t, err, what)
		})
	}
	started := time.Now()
	assert.NoError(t, client.Close(), what)
	took := time.Since(started)
	waiters.Wait()
	return took
}

// F16
func TestClusterThatStopsAnswering(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	for _, node := range cluster.Nodes() {
		faulttest.LeakCheck(t, node.Addr())
	}
	rdb := cluster.Client(t)
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	client, err := redlatch.New(rdb, quiet, redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })

	var all []*attempt
	for _, end := range endings {
		for _, v := range verbs {
			if !v.waits {
				a := newAttempt(client, v, end)
				a.prepare(t, nil)
				all = append(all, a)
			}
		}
	}
	lag := faulttest.MeasureLag(t, "")
	for _, node := range cluster.Nodes() {
		node.Pause()
	}
	var calls sync.WaitGroup
	for _, a := range all {
		calls.Go(func() { a.run(t, absence{}, lag) })
	}
	calls.Wait()
	for _, node := range cluster.Nodes() {
		node.Resume()
	}
	for _, a := range all {
		a.recovers(t, absence{}, client)
	}
	for _, node := range cluster.Nodes() {
		node.Pause()
	}
	started := time.Now()
	assert.NoError(t, client.Close())
	assert.Less(t, time.Since(started), 3*time.Second+callSlack+lag.Late())
	for _, node := range cluster.Nodes() {
		node.Resume()
	}
}

// F27
func TestOperationsOfAHoldEndWithTheCallTimeout(t *testing.T) {
	const limit = 500 * time.Millisecond
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCallTimeout(limit))
		l := p.GetLock("orders")
		locktest.Free(t, p.GetLock("others"))
		hold := locktest.Acquire(t, t.Context(), l)
		require.NoError(t, hold.Extend(t.Context(), time.Minute)) // Redis knows the script
		p.Blackhole(true)
		for what, call := range map[string]func() error{
			"extend": func() error { return hold.Extend(t.Context(), time.Minute) },
			"nested": func() error { _, err := l.TryLock(hold.Context()); return err },
		} {
			began := time.Now()
			err := call()
			require.ErrorIs(t, err, redlatch.ErrUnknown, what)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "%s: the caller's context has not ended", what)
			assert.LessOrEqual(t, time.Since(began), limit, what)
		}
		began := time.Now()
		require.ErrorIs(t, hold.Unlock(t.Context()), redlatch.ErrUnknown)
		assert.LessOrEqual(t, time.Since(began), limit)
		p.Blackhole(false)
	})
}

// F27
func TestUnlockBehindAnUnansweredExtendEndsWithItsContext(t *testing.T) {
	const limit = 200 * time.Millisecond
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCallTimeout(time.Second))
		hold := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		p.Blackhole(true)
		var extend sync.WaitGroup
		extend.Go(func() { assert.ErrorIs(t, hold.Extend(t.Context(), time.Minute), redlatch.ErrUnknown) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, hold.Unlock(ctx), redlatch.ErrUnknown)
		assert.Equal(t, limit, time.Since(began))
		extend.Wait()
		p.Blackhole(false)
	})
}
