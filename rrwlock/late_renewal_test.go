package rrwlock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// A renewal names the holder by the mode of its levels. One that arrives after the last level of that mode has ended finds none: the lock is
// held all the same.
//
// F2, F6
func TestLateRenewalOfAModeThatHasEndedLosesNothing(t *testing.T) {
	for what, c := range map[string]struct {
		renews func(args string) bool
		late   time.Duration
		unlock func(w, r *rlock.Hold) (first, stays *rlock.Hold)
	}{
		"the reader leaves": {
			renews: func(args string) bool { // the writer's and the reader's lease, by the reader
				return strings.Contains(args, "rwlock_timeout:1") && !strings.Contains(args, "redisson_rwlock")
			},
			late:   300 * time.Millisecond,
			unlock: func(w, r *rlock.Hold) (first, stays *rlock.Hold) { return r, w },
		},
		"the writer leaves": {
			renews: func(args string) bool { return strings.Contains(args, ":write") },
			late:   2800 * time.Millisecond,
			unlock: func(w, r *rlock.Hold) (first, stays *rlock.Hold) { return w, r },
		},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l, far := b.Peer(t).GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
				var sent atomic.Int32
				w := locktest.Acquire(t, t.Context(), l)
				r := locktest.Acquire(t, w.Context(), l.RLocker())
				if what == "the writer leaves" {
					locktest.Unlock(t, r)
				}
				b.Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
					if cmd == "EVALSHA" && c.renews(strings.Join(args, " ")) && sent.Add(1) == 1 {
						time.Sleep(c.late)
					}
					return false
				})
				for end := time.Now().Add(time.Minute); sent.Load() == 0 && time.Now().Before(end); {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(c.late * 3 / 4)
				if what == "the writer leaves" {
					r = locktest.Acquire(t, w.Context(), l.RLocker())
				}
				first, stays := c.unlock(w, r)
				start := time.Now()
				locktest.Unlock(t, first)
				require.Less(t, time.Since(start), 3*time.Second)
				time.Sleep(5 * time.Second)
				b.Mini.Server().SetPreHook(nil)
				require.NoError(t, context.Cause(stays.Context()))
				locktest.Refused(t, far)
				locktest.Unlock(t, stays)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}
