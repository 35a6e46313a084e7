package rscheduler_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rscheduler"
)

// F23
func TestBadInputIsInvalidBeforeAnyIO(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		good := rscheduler.Every(time.Minute)
		s, p := r.scheduler(t)
		require.NoError(t, s.Register("taken", good, r.handle))
		for what, err := range map[string]error{
			"empty name":      s.Register("", good, r.handle),
			"long name":       s.Register(strings.Repeat("x", 513), good, r.handle),
			"control":         s.Register("a\nb", good, r.handle),
			"taken":           s.Register("taken", good, r.handle),
			"no schedule":     s.Register("a", nil, r.handle),
			"no handler":      s.Register("a", good, nil),
			"short period":    s.Register("a", rscheduler.Every(time.Millisecond), r.handle),
			"short delay":     s.Register("a", rscheduler.EveryAfter(0), r.handle),
			"no time":         s.Register("a", rscheduler.At(time.Time{}), r.handle),
			"nil option":      s.Register("a", good, r.handle, nil),
			"overlap":         s.Register("a", good, r.handle, rscheduler.WithOverlap(4)),
			"backlog":         s.Register("a", good, r.handle, rscheduler.WithBacklog(0)),
			"start":           s.Register("a", rscheduler.Every(time.Minute, rscheduler.From(time.Time{}.Add(1))), r.handle),
			"replaced":        s.Replace("taken", rscheduler.Every(0), r.handle),
			"replaced by nil": s.Replace("taken", good, nil),
			"window":          s.Register("a", good, r.handle, rscheduler.WithCatchUp(-1)),
			"jitter":          s.Register("a", good, r.handle, rscheduler.WithJitter(25*time.Hour)),
			"timeout":         s.Register("a", good, r.handle, rscheduler.WithTimeout(1)),
			"attempts":        s.Register("a", good, r.handle, rscheduler.WithMaxAttempts(-1)),
			"back-off":        s.Register("a", good, r.handle, rscheduler.WithBackoff(nil)),
			"history":         s.Register("a", good, r.handle, rscheduler.WithHistory(-1)),
			"scheduler":       p.GetScheduler("").Register("a", good, r.handle),
			"concurrency":     p.GetScheduler("x", rscheduler.WithConcurrency(0)).Run(t.Context()),
			"lease":           p.GetScheduler("x", rscheduler.WithLease(time.Millisecond)).Run(t.Context()),
			"stop grace":      p.GetScheduler("x", rscheduler.WithStopGrace(-1)).Run(t.Context()),
			"nil of those":    p.GetScheduler("x", nil).Run(t.Context()),
			"brace":           p.GetScheduler("}").Trigger(t.Context(), "a"),
			"empty job":       s.Trigger(t.Context(), ""),
			"long reason":     s.Pause(t.Context(), "a", strings.Repeat("x", 5000)),
			"no context":      s.Run(nil), //nolint:staticcheck // that is the point
			"none for Pause":  s.Pause(context.Context(nil), "a", ""),
		} {
			assert.ErrorIs(t, err, redlatch.ErrInvalid, what)
		}
		_, err := s.Runs(t.Context(), "a", 0)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		_, err = s.Remove(t.Context(), "")
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		assert.Empty(t, p.Sent())
	})
}

// F23
func TestForeignDataIsOfTheWrongType(t *testing.T) {
	for _, key := range []string{"jobs", "job:job", "alive", "left", "meta"} {
		t.Run(key, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				require.NoError(t, r.Redis.Set(t.Context(), "redlatch_sched:{billing}:"+key, "x", 0).Err())
				s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
				ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
				defer cancel()
				require.ErrorIs(t, s.Run(ctx), redlatch.ErrWrongType)
				assert.Empty(t, r.take())
			})
		})
	}
}

// Keys of another version are left alone; the error says which they are, and what to do.
func TestKeysOfAnotherVersionAreRefused(t *testing.T) {
	const meta = "redlatch_sched:{billing}:meta"
	for name, c := range map[string]struct{ fields, says string }{
		"older": {"up 1 token 2", "delete the keys redlatch_sched:{billing}:* and redlatch_dq:{billing}:ticks:*"},
		"newer": {"up 1 layout 3", "version 3, and this library reads version 2: update this program"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				require.NoError(t, r.Redis.HSet(t.Context(), meta, strings.Fields(c.fields)).Err())
				before := r.Hash(t, meta)
				s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
				_, listed := s.Jobs(t.Context())
				for what, err := range map[string]error{
					"run": s.Run(t.Context()), "list": listed, "pause": s.Pause(t.Context(), "job", ""), "trigger": s.Trigger(t.Context(), "job"),
				} {
					require.ErrorIs(t, err, rscheduler.ErrLayout, what)
					require.ErrorContains(t, err, c.says, what)
				}
				assert.Equal(t, before, r.Hash(t, meta))
				keys := slices.DeleteFunc(r.Keys(t), func(key string) bool { return key == "redlatch_dq:{billing}:ticks:waiters" })
				assert.Equal(t, []string{meta}, keys, "a consumer may have begun to sleep")
				assert.Empty(t, r.take())
			})
		})
	}
}

func TestRunThatNeedNotBeginReturnsNil(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, p := r.scheduler(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, s.Run(ctx))
		assert.Empty(t, p.Sent())
	})
}

// Two prefixes are two schedulers, and a prefix is no part of the slot alone.
func TestSchedulerOfAPrefixIsItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, prefix := range []string{"a:", "{b}:"} {
			s := r.Peer(t, redlatch.WithNamePrefix(prefix)).GetScheduler("billing")
			require.NoError(t, s.Register(prefix, rscheduler.Every(10*time.Second), r.handle))
			run(t, s)
			time.Sleep(time.Second)
			jobs, err := s.Jobs(t.Context())
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			assert.Equal(t, prefix, jobs[0].Name)
		}
		for _, key := range r.Keys(t) {
			assert.Regexp(t, `^redlatch_(sched|dq):(\{a:billing\}|\{b\}:billing):`, key)
		}
	})
}
