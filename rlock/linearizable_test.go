package rlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F15
func TestHistoryIsLinearizable(t *testing.T) {
	h := locktest.NewHistory(true, time.Minute)
	play(t, h, nil, nil)
	h.Check(t)
}

// F1, F2
func TestHistoryUnderFaultsIsLinearizable(t *testing.T) {
	redistest.Long(t)
	for range faulttest.Rounds(t, 2, 15) {
		h := locktest.NewHistory(false, shortLease/2)
		play(t, h, (*faulttest.Proxy).Disturb, nil)
		h.Check(t)
	}
}

// A step ahead of the server's clock may end each lease that it meets, as docs/guarantees.md says: from then on such a hold may be
// gone, before its holder knows. That apart the model is as ever: a step back ends no hold, whoever has the lock after a step has it
// alone, nobody releases the hold of another one, and tokens rise.
//
// F18
func TestHistoryWhileTheClockStepsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 8) {
		h := locktest.NewHistory(false, shortLease/2)
		h.Steps = historytest.WideSteps
		play(t, h, (*faulttest.Proxy).Disturb, nil)
		h.Check(t)
	}
}

func TestHistoryOfABrokenLockIsRefuted(t *testing.T) {
	redistest.Long(t)
	const token = "redisson_lock_token:{fenced 1}"
	for what, behind := range map[string]func(ctx context.Context, rdb *redis.Client) error{
		"a lock taken from its holder": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.Del(ctx, "plain 1", "fenced 1").Err()
		},
		"tokens that fall": func(ctx context.Context, rdb *redis.Client) error {
			if rand.N(2) == 0 {
				return rdb.Del(ctx, token).Err()
			}
			return rdb.IncrBy(ctx, token, int64(1+rand.N(1<<30))).Err()
		},
	} {
		for how, harm := range historytest.Harms() {
			t.Run(what+how, func(t *testing.T) {
				historytest.RefutedSoon(t, func() bool {
					h := locktest.NewHistory(true, time.Minute)
					if harm != nil {
						h = locktest.NewHistory(false, shortLease/2)
					}
					play(t, h, harm, func(rdb *redis.Client) { assert.NoError(t, behind(t.Context(), rdb)) })
					return h.Refuted(t)
				})
			})
		}
	}
}

// play has goroutines of several clients use a few locks at random, and does something behind their backs.
func play(t *testing.T, h *locktest.History, harm func(*faulttest.Proxy), behind func(rdb *redis.Client)) {
	t.Helper()
	server := h.Serve(t)
	faulttest.LeakCheck(t, server.Addr(), "redisson_lock_token:*")
	rdb := server.Client(t)
	var users sync.WaitGroup
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := clientAt(t, proxy.Addr(), h.Options()...)
		locks := []*rlock.Lock{
			client.GetLock("plain 1"), client.GetLock("plain 2"),
			client.GetFencedLock("fenced 1"), client.GetFencedLock("fenced 2"),
		}
		if harm != nil {
			harm(proxy)
		}
		for range 3 {
			users.Go(func() {
				for range 80 {
					h.Use(t.Context(), locks[rand.N(len(locks))])
				}
			})
		}
	}
	if behind != nil {
		historytest.Meanwhile(&users, func() { behind(rdb) })
	}
	users.Wait()
	h.Calm()
}

func TestModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	var leasedMutex historytest.Model[locktest.Mutex, locktest.Event] = locktest.LeasedMutex
	type ops = []historytest.Op[locktest.Event]
	at := func(kind locktest.EventKind, key, hold string, token, call, back int64) historytest.Op[locktest.Event] {
		e := locktest.Event{Kind: kind, Key: key, Hold: hold, Token: token}
		return historytest.Op[locktest.Event]{Event: e, Call: call, Back: back}
	}
	for _, tc := range []struct {
		what string
		good bool
		ops  ops
	}{
		{"one after the other", true, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.WasReleased, "k", "1", 0, 2, 3),
			at(locktest.WasGranted, "k", "2", 0, 4, 5),
		}},
		{"granted while the release is under way", true, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.WasReleased, "k", "1", 0, 2, 9),
			at(locktest.WasGranted, "k", "2", 0, 4, 5),
		}},
		{"two at once", false, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.WasGranted, "k", "2", 0, 2, 3),
			at(locktest.WasReleased, "k", "1", 0, 4, 5),
		}},
		{"two keys at once", true, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.WasGranted, "l", "2", 0, 2, 3),
		}},
		{"granted after an unknown release", true, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.MayVanish, "k", "1", 0, 2, historytest.Forever),
			at(locktest.WasGranted, "k", "2", 0, 9, 10),
		}},
		{"granted before the deadline", false, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.WasGranted, "k", "2", 0, 4, 5),
			at(locktest.MayVanish, "k", "1", 0, 6, historytest.Forever),
		}},
		{"lost before the deadline", false, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.WasRefused, "k", "1", 0, 2, 3),
		}},
		{"free while it is held", false, ops{
			at(locktest.WasGranted, "k", "1", 0, 0, 1), at(locktest.WasFree, "k", "", 0, 2, 3),
			at(locktest.WasReleased, "k", "1", 0, 4, 5),
		}},
		{"busy while nobody holds it", false, ops{at(locktest.WasBusy, "k", "", 0, 0, 1)}},
		{"a token that falls", false, ops{
			at(locktest.WasGranted, "k", "1", 7, 0, 1), at(locktest.WasReleased, "k", "1", 0, 2, 3),
			at(locktest.WasGranted, "k", "2", 7, 4, 5),
		}},
	} {
		require.Equal(t, tc.good, leasedMutex.Explains(tc.ops), tc.what)
	}
}
