package locktest

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// settled bounds the life of what a lost reply left behind: the release is repeated after 0.1 and 0.5 s.
const settled = 1500 * time.Millisecond

// life is what may happen to a lock, step by step. Each step leaves so many levels on the server.
//
//nolint:gochecknoglobals // a constant table
var life = []struct {
	name   string
	levels int
	do     func(t *testing.T, p *patient)
}{
	{"Lock", 1, func(t *testing.T, p *patient) { p.outer = Acquire(t, t.Context(), p.lock) }},
	{"nested Lock", 2, func(t *testing.T, p *patient) { p.inner = Acquire(t, p.outer.Context(), p.lock) }},
	{"Extend", 2, func(t *testing.T, p *patient) { require.NoError(t, p.inner.Extend(t.Context(), 20*time.Second)) }},
	{"nested Unlock", 1, func(t *testing.T, p *patient) { Unlock(t, p.inner) }},
	{"Unlock", 0, func(t *testing.T, p *patient) { Unlock(t, p.outer) }},
}

// patient is a lock that loses replies.
type patient struct {
	env          Env
	rdb          *redis.Client // goes past the proxy
	lock         rlock.Locker
	name         string
	outer, inner *rlock.Hold
}

// LoseReplies tests a kind of lock on a real server, of which each of the first replies to each step is lost in turn: every
// call succeeds, one hold of the right levels is there, and nothing is left after it.
func LoseReplies(t *testing.T, env Env) {
	t.Helper()
	if env.Keys == nil {
		env.Keys = func(name string) []string { return []string{name} }
	}
	server := redistest.Start(t)
	rdb := server.Client(t)
	for sick, step := range life {
		for n := 1; n <= 6; n++ {
			t.Run(fmt.Sprintf("%s: %d", step.name, n), func(t *testing.T) {
				proxy := faulttest.NewProxy(t, server.Addr())
				name := fmt.Sprintf("lost:%d:%d", sick, n)
				p := &patient{env: env, rdb: rdb, name: name, lock: env.New(clientAt(t, proxy.Addr()), name)}
				rival := env.New
				if env.Rival != nil {
					rival = env.Rival
				}
				stranger := rival(clientAt(t, server.Addr()), name)
				for i, step := range life {
					if i == sick {
						proxy.DropReply(faulttest.Script, n)
					}
					step.do(t, p)
					redistest.Eventually(t, settled, step.name, func() error { return p.has(t, step.levels) })
					if step.levels > 0 {
						Live(t, p.outer.Context())
						Refused(t, stranger)
					}
				}
				Free(t, stranger)
			})
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
// key has more. Without levels the server must have no key.
func (p *patient) has(t *testing.T, levels int) error {
	t.Helper()
	if levels == 0 {
		keys, err := p.rdb.Keys(t.Context(), "*").Result()
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
