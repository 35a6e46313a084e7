package rscheduler_test

import (
	"context"
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
			"empty name":     s.Register("", good, r.handle),
			"long name":      s.Register(strings.Repeat("x", 513), good, r.handle),
			"control":        s.Register("a\nb", good, r.handle),
			"taken":          s.Register("taken", good, r.handle),
			"no schedule":    s.Register("a", nil, r.handle),
			"no handler":     s.Register("a", good, nil),
			"short period":   s.Register("a", rscheduler.Every(time.Millisecond), r.handle),
			"short delay":    s.Register("a", rscheduler.EveryAfter(0), r.handle),
			"no time":        s.Register("a", rscheduler.At(time.Time{}), r.handle),
			"nil option":     s.Register("a", good, r.handle, nil),
			"overlap":        s.Register("a", good, r.handle, rscheduler.WithOverlap(3)),
			"window":         s.Register("a", good, r.handle, rscheduler.WithCatchUp(-1)),
			"jitter":         s.Register("a", good, r.handle, rscheduler.WithJitter(25*time.Hour)),
			"timeout":        s.Register("a", good, r.handle, rscheduler.WithTimeout(1)),
			"attempts":       s.Register("a", good, r.handle, rscheduler.WithMaxAttempts(-1)),
			"back-off":       s.Register("a", good, r.handle, rscheduler.WithBackoff(nil)),
			"history":        s.Register("a", good, r.handle, rscheduler.WithHistory(-1)),
			"scheduler":      p.GetScheduler("").Register("a", good, r.handle),
			"concurrency":    p.GetScheduler("x", rscheduler.WithConcurrency(0)).Run(t.Context()),
			"lease":          p.GetScheduler("x", rscheduler.WithLease(time.Millisecond)).Run(t.Context()),
			"stop grace":     p.GetScheduler("x", rscheduler.WithStopGrace(-1)).Run(t.Context()),
			"nil of those":   p.GetScheduler("x", nil).Run(t.Context()),
			"brace":          p.GetScheduler("}").Trigger(t.Context(), "a"),
			"empty job":      s.Trigger(t.Context(), ""),
			"long reason":    s.Pause(t.Context(), "a", strings.Repeat("x", 5000)),
			"no context":     s.Run(nil), //nolint:staticcheck // that is the point
			"none for Pause": s.Pause(context.Context(nil), "a", ""),
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
	for _, key := range []string{"jobs", "paused", "pauses", "marks", "seen", "running", "spans", "left", "late", "alive", "meta"} {
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
