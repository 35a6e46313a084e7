package redlatch_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// change is a call that changes an object, and the object's state before it and after it.
type change struct {
	name          string
	before, after []int
	// unsure is the state once a call has settled whose outcome is unknown; nil if that may be either.
	unsure []int
	// ends says that the call ends a hold: what Redis refuses goes on in the background. begins, that it acquires one: what it was granted
	// before an error is released in the background.
	ends, begins bool
	// prepare makes the object. The result makes the call, once or again.
	prepare func(t *testing.T, c *redlatch.Client) (call func() error)
	state   func(t *testing.T, rdb *redis.Client) []int
}

// lockChanges are the steps of a lock, of each kind.
func lockChanges() (changes []change) {
	all := maps.Clone(steps)
	all["wait"] = step{0, 1, steps["acquire"].prepare, func(t *testing.T, l rlock.Locker, _ *rlock.Hold) error {
		t.Helper()
		_, err := l.Lock(t.Context())
		return err
	}}
	for kind, get := range lockKinds {
		for verb, s := range all {
			one := change{
				name: kind + " " + verb, before: []int{s.before}, after: []int{s.after}, unsure: []int{min(s.before, s.after)}, ends: s.after < s.before, begins: s.before == 0,
				prepare: func(t *testing.T, c *redlatch.Client) func() error {
					t.Helper()
					l := get(c, "object")
					h := s.prepare(t, l)
					return func() error { return s.run(t, l, h) }
				},
				state: func(t *testing.T, rdb *redis.Client) []int {
					t.Helper()
					return []int{levels(t, rdb, "object")}
				},
			}
			changes = append(changes, one)
		}
	}
	return changes
}

// permitChanges are calls on a semaphore of 5 leased permits, of which one is held.
func permitChanges() []change {
	one := func(verb string, free, leased int, unsure []int, call func(t *testing.T, s *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error) change {
		return change{
			name: "permit " + verb, before: []int{4, 1}, after: []int{free, leased}, unsure: unsure, ends: leased == 0, begins: leased > 1,
			prepare: func(t *testing.T, c *redlatch.Client) func() error {
				t.Helper()
				s := c.GetPermitSemaphore("object")
				require.NoError(t, s.SetPermits(t.Context(), 5))
				held, err := s.Acquire(t.Context())
				require.NoError(t, err)
				return func() error { return call(t, s, held) }
			},
			state: func(t *testing.T, rdb *redis.Client) []int {
				t.Helper()
				free, err := rdb.Get(t.Context(), "object").Int()
				require.NoError(t, err)
				leased, err := rdb.ZCard(t.Context(), "{object}:timeout").Result()
				require.NoError(t, err)
				return []int{free, int(leased)}
			},
		}
	}
	return []change{
		one("acquire", 3, 2, []int{4, 1}, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			_, err := s.TryAcquire(t.Context())
			return err
		}),
		one("wait", 3, 2, []int{4, 1}, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			_, err := s.Acquire(t.Context())
			return err
		}),
		one("acquire 3", 1, 4, []int{4, 1}, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			_, err := s.AcquireN(t.Context(), 3, rsemaphore.WithWait(0))
			return err
		}),
		one("extend", 4, 1, []int{4, 1}, func(t *testing.T, _ *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error {
			t.Helper()
			return held.Extend(t.Context(), time.Minute)
		}),
		one("release", 5, 0, []int{5, 0}, func(t *testing.T, _ *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error {
			t.Helper()
			return held.Release(t.Context())
		}),
		one("add", 6, 1, nil, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			return s.AddPermits(t.Context(), 2)
		}),
		one("set", 7, 1, nil, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			return s.SetPermits(t.Context(), 8)
		}),
	}
}

// refusals are what may happen to the repetition of a call: a reply, or what is done to the connections, and its end.
var refusals = map[string]struct {
	reply string
	begin func(t *testing.T, p *locktest.Peer) (end func())
}{
	"READONLY": {reply: "READONLY You can't write against a read only replica."},
	"NOPERM":   {reply: "NOPERM this user has no permissions to run the 'evalsha' command"},
	"NOAUTH":   {reply: "NOAUTH Authentication required."},
	"OOM":      {reply: "OOM command not allowed when used memory > 'maxmemory'."},
	"refused": {begin: func(_ *testing.T, p *locktest.Peer) func() {
		p.Refuse(true)
		return func() { p.Refuse(false) }
	}},
}

// F2, F25: whoever repeats a call after an error that is not ErrUnknown never acts twice, whatever refuses the repetition of one whose
// reply was lost.
func TestRefusedRepetitionsLeaveDoneOrNotDone(t *testing.T) {
	for _, c := range append(lockChanges(), permitChanges()...) {
		for refusal := range refusals {
			for _, lost := range []int{1, 0, 2}[:faulttest.Rounds(t, 1, 3)] {
				t.Run(fmt.Sprint(c.name, " ", refusal, " ", lost), func(t *testing.T) {
					t.Parallel()
					locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) { c.refused(t, b, refusal, lost) })
				})
			}
		}
	}
}

func (c change) refused(t *testing.T, b *locktest.Bubble, refusal string, lost int) {
	t.Helper()
	first := b.Peer(t, redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
	require.NoError(t, c.prepare(t, first.Client)()) // Redis knows the scripts from now on
	require.NoError(t, first.Close())
	require.NoError(t, b.Redis.FlushAll(t.Context()).Err())

	p := b.Peer(t, redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
	call := c.prepare(t, p.Client)
	require.Equal(t, c.before, c.state(t, b.Redis))
	r := refusals[refusal]
	end := func() {}
	begin := func() {
		if r.begin != nil {
			end = r.begin(t, p)
		}
	}
	if lost == 0 {
		p.Cut()
		begin()
	}
	var sent, refused int
	var over atomic.Bool
	b.Mini.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") || over.Load() {
			return false
		}
		if sent++; sent == lost {
			begin()
		}
		if sent > lost && r.reply != "" {
			refused++
			peer.WriteError(r.reply)
			return true
		}
		return false
	})
	p.LoseReplies(lost)
	lift := sync.OnceFunc(func() {
		over.Store(true)
		end()
	})
	time.AfterFunc(15*time.Second, lift) // so that what was held before is not lost
	err := call()
	if r.reply != "" && err == nil {
		assert.Positive(t, refused, "nothing was refused")
	}
	said := c.state(t, b.Redis)
	lift()
	time.Sleep(5 * time.Second) // in the bubble: what is undone later is by then
	now := c.state(t, b.Redis)
	switch {
	case err == nil:
		assert.Equal(t, c.after, now)
	case errors.Is(err, redlatch.ErrUnknown):
		if c.unsure != nil {
			assert.Equal(t, c.unsure, now, "after %v", err)
		} else {
			assert.Contains(t, [][]int{c.before, c.after}, now, "after %v", err)
		}
	default:
		if !c.begins {
			assert.Equal(t, c.before, said, "after %v", err)
		}
		again := call()
		if c.ends {
			assert.ErrorIs(t, again, rlock.ErrNotHeld)
			return
		}
		assert.Equal(t, c.before, now, "after %v", err)
		assert.NoError(t, again, "the repetition after %v", err)
		assert.Equal(t, c.after, c.state(t, b.Redis))
	}
}
