package locktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// settled bounds the life of what a lost reply left behind: the release is repeated after 0.1 and 0.5 s.
const settled = 1500 * time.Millisecond

// step is something that happens to a lock. It leaves so many levels on the server.
type step struct {
	name   string
	levels int
	do     func(t *testing.T, p *patient)
}

// life is what may happen to a lock, step by step.
//
//nolint:gochecknoglobals // a constant table
var life = []step{
	{"Lock", 1, func(t *testing.T, p *patient) { p.outer = Acquire(t, t.Context(), p.lock) }},
	{"nested Lock", 2, func(t *testing.T, p *patient) { p.inner = Acquire(t, p.outer.Context(), p.lock) }},
	{"Extend", 2, func(t *testing.T, p *patient) { require.NoError(t, p.inner.Extend(t.Context(), 20*time.Second)) }},
	{"nested Unlock", 1, func(t *testing.T, p *patient) { Unlock(t, p.inner) }},
	{"Unlock", 0, func(t *testing.T, p *patient) { Unlock(t, p.outer) }},
	{"wait", 1, func(t *testing.T, p *patient) {
		theirs := Acquire(t, t.Context(), p.stranger)
		waiting := waits(t.Context(), t, p.proxy, p.lock)
		Unlock(t, theirs)
		p.outer = Next(t, waiting)
	}},
	{"downgrade", 1, func(t *testing.T, p *patient) {
		p.inner = Acquire(t, p.outer.Context(), p.shared)
		Unlock(t, p.outer)
		p.outer = p.inner
	}},
	{"hand-over", 0, func(t *testing.T, p *patient) {
		waiting := waits(t.Context(), t, p.beside, p.stranger)
		Unlock(t, p.outer)
		Unlock(t, Next(t, waiting))
	}},
	{"wait that is given up", 0, func(t *testing.T, p *patient) {
		theirs := Acquire(t, t.Context(), p.stranger)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := waits(ctx, t, p.proxy, p.lock)
		cancel()
		Failed(t, waiting, context.Canceled)
		Unlock(t, theirs)
	}},
}

// waits begins to acquire a lock that is held. It has asked twice when waits returns.
func waits(ctx context.Context, t *testing.T, proxy *faulttest.Proxy, l rlock.Locker) <-chan Outcome {
	t.Helper()
	scripts := func() int { sent := proxy.Commands(); return sent["EVAL"] + sent["EVALSHA"] }
	before := scripts()
	waiting := Begin(func() (*rlock.Hold, error) { return l.Lock(ctx) })
	redistest.Eventually(t, limit, "it waits", func() error {
		if scripts() < before+2 {
			return errors.New("it has not asked twice")
		}
		return nil
	})
	return waiting
}

// patient is a lock that loses replies.
type patient struct {
	env           Env
	rdb           *redis.Client // goes past the proxies
	lock          rlock.Locker
	shared        rlock.Locker // with which its holder may go on
	stranger      rlock.Locker // excludes holders of the lock, and loses nothing
	proxy, beside *faulttest.Proxy
	name          string
	outer, inner  *rlock.Hold
}

// LoseReplies tests a kind of lock on a real server, of which each reply to a script of each step is lost in turn: every
// call succeeds, one hold of the right levels is there, and nothing is left after it.
func LoseReplies(t *testing.T, env Env) {
	t.Helper()
	if env.Keys == nil {
		env.Keys = func(name string) []string { return []string{name} }
	}
	server := redistest.Start(t)
	rdb := server.Client(t)
	steps := life
	if env.Downgraded == nil {
		steps = slices.DeleteFunc(slices.Clone(life), func(s step) bool { return s.name == "downgrade" })
	}
	const some, tooMany = 6, 30 // replies to a step
	lag := faulttest.MeasureLag(t, server.Addr())
	for sick, step := range steps {
		for n, lost := 1, true; n <= some || lost && n <= tooMany; n++ {
			lost = t.Run(fmt.Sprintf("%s: %d", step.name, n), func(t *testing.T) {
				require.Less(t, n, tooMany)
				p := &patient{
					env: env, rdb: rdb, name: fmt.Sprintf("lost:%d:%d", sick, n),
					proxy: faulttest.NewProxy(t, server.Addr()), beside: faulttest.NewProxy(t, server.Addr()),
				}
				c := clientAt(t, p.proxy.Addr())
				p.lock = env.New(c, p.name)
				if env.Downgraded != nil {
					p.shared = env.Downgraded(c, p.name)
				}
				p.stranger = (&rig{env: env}).rivalOf(clientAt(t, p.beside.Addr()), p.name)
				for i, step := range steps {
					if i == sick {
						p.proxy.DropReply(faulttest.Script, n)
					}
					step.do(t, p)
					redistest.Eventually(t, settled+lag.Late(), step.name, func() error { return p.has(t, step.levels) })
					if i == sick {
						lost = p.proxy.Dropped() > 0
						require.True(t, lost || n > 1, "%s has lost a reply", step.name)
					}
					if step.levels > 0 {
						Live(t, p.outer.Context())
						Refused(t, p.stranger)
					}
				}
				redistest.Eventually(t, settled+lag.Late(), "free", func() error { // what was given up on its way may come late
					h, err := p.stranger.TryLock(t.Context())
					if err == nil {
						err = h.Unlock(t.Context())
					}
					return err
				})
			}) && lost
		}
	}
}

// clientAt returns a client of the server at an address, closed when the test ends.
func clientAt(t *testing.T, addr string) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { closeClient(t, rdb) })
	c, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// has returns nil if each key of the lock has one holder of so many levels; where some of the keys are enough, if a majority has, and no
// key has more. Without levels the server must have no key but those of tokens, which stay.
func (p *patient) has(t *testing.T, levels int) error {
	t.Helper()
	if levels == 0 {
		keys, err := p.rdb.Keys(t.Context(), "*").Result()
		keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") })
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("%v are left", keys)
		}
		return err
	}
	keys, sound := p.env.Keys(p.name), 0
	var all []error
	for _, key := range keys {
		fields, err := p.rdb.HGetAll(t.Context(), key).Result()
		delete(fields, "mode")
		have := 0
		for _, value := range fields {
			n, bad := strconv.Atoi(value)
			have, err = max(have, n), errors.Join(err, bad)
		}
		switch {
		case err != nil || len(fields) > 1 || have > levels:
			return errors.Join(err, fmt.Errorf("%s is %v", key, fields))
		case have == levels:
			sound++
		default:
			all = append(all, fmt.Errorf("%s is %v", key, fields))
		}
	}
	if sound == len(keys) || p.env.Some && sound > len(keys)/2 {
		return nil
	}
	return errors.Join(all...)
}
