package scenario_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rscheduler"
)

// refusedOnce takes a right away while a script runs for the first time, and then tells its error.
type refusedOnce struct {
	script, refusal string
	begun, ended    atomic.Bool
	err             chan error
}

// tickLimit is longer than the 15 s after which a consumer looks for messages whose wake-up was lost.
const tickLimit = 30 * time.Second

// newRefusedOnce returns a server that does so for what is stored there, and a log of its clients.
func newRefusedOnce(t *testing.T) (*partial, *atomic.Pointer[refusedOnce], *logbook) {
	t.Helper()
	var p *partial
	now, log := &atomic.Pointer[refusedOnce]{}, &logbook{}
	p = newPartial(t, log.option(), redlatch.WithObserver(redlatch.Observer{
		ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
			if r := now.Load(); r != nil && e.Name == r.script && !r.begun.Swap(true) {
				assert.NoError(t, p.setRules(t.Context(), r.refusal))
			}
			return ctx
		},
		ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
			if r := now.Load(); r != nil && e.Name == r.script && !r.ended.Swap(true) {
				assert.NoError(t, p.setRules(t.Context(), "&*", "+@all"))
				r.err <- e.Err
			}
		},
	}))
	return p, now, log
}

// F25, F28: a tick that cannot be planned, or cannot begin, runs once, as soon as the right is back. The log says why it was late.
func TestRefusedCommandsLoseNoTick(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	p, now, log := newRefusedOnce(t)
	lines := map[string]string{
		"beat": "redlatch: a scheduler cannot plan, and tries again", "register": "redlatch: a scheduler cannot plan, and tries again",
		"begin": "redlatch: runs cannot begin, and are tried again",
	}
	for script, line := range lines {
		for _, refusal := range rightsRefused(t, "rscheduler") {
			t.Run(script+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				log.take()
				s := p.client.GetScheduler(t.Name())
				runs := make(chan rscheduler.Run, 99)
				require.NoError(t, s.Register("job", rscheduler.At(time.Now()), func(_ context.Context, run rscheduler.Run) error {
					runs <- run
					return nil
				}, rscheduler.WithCatchUp(time.Minute)))
				refused := &refusedOnce{script: "rscheduler." + script, refusal: refusal, err: make(chan error, 1)}
				now.Store(refused)
				ctx, stop := context.WithCancel(t.Context())
				stopped := make(chan error, 1)
				go func() { stopped <- s.Run(ctx) }()
				err := next(t, refused.err)
				redistest.Eventually(t, tickLimit, "the tick runs", func() error {
					if len(runs) == 0 {
						return fmt.Errorf("it does not after %w", err)
					}
					return nil
				})
				assert.Equal(t, 1, (<-runs).Attempt)
				p.noTick(t)
				stop()
				require.NoError(t, <-stopped)
				assert.Empty(t, runs, "after %v", err)
				results, runsErr := p.other.GetScheduler(t.Name()).Runs(t.Context(), "job", 10)
				require.NoError(t, runsErr)
				assert.Len(t, results, 1)
				told := 0
				for _, entry := range log.take() {
					if entry["msg"] == line {
						told++
						assert.Contains(t, entry["cause"], err.Error())
					}
				}
				assert.Equal(t, map[bool]int{true: 1}[err != nil], told, "after %v", err)
			})
		}
	}
}

// F25, F28: what an operator does is done or not done.
func TestRefusedCommandsLeaveAJobOperatedOrNot(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	s := p.other.GetScheduler("jobs")
	require.NoError(t, s.Register("job", rscheduler.At(time.Now().Add(time.Hour)), func(context.Context, rscheduler.Run) error { return nil }))
	for _, verb := range []string{"trigger", "pause", "resume"} {
		refused := 0
		for _, refusal := range rightsRefused(t, "rscheduler", "internal/queue") {
			t.Run(verb+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				p.written(t, s)
				ticks := func() int64 { return p.admin.HLen(t.Context(), "redlatch_dq:{jobs}:ticks:bodies").Val() }
				operate, paused, queued := p.client.GetScheduler("jobs"), "", ticks()
				if verb == "resume" {
					paused = "before"
					require.NoError(t, s.Pause(t.Context(), "job", paused))
				}
				p.rules(t, refusal)
				var err error
				switch verb {
				case "trigger":
					if err = operate.Trigger(t.Context(), "job"); err == nil {
						queued++
					}
				case "pause":
					if err = operate.Pause(t.Context(), "job", "why"); err == nil {
						paused = "why"
					}
				case "resume":
					if err = operate.Resume(t.Context(), "job"); err == nil {
						paused = ""
					}
				}
				p.rules(t, "&*", "+@all")
				if err != nil {
					refused++
				}
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
				jobs, jobsErr := s.Jobs(t.Context())
				require.NoError(t, jobsErr)
				require.Len(t, jobs, 1)
				assert.Equal(t, paused, jobs[0].Why, "after %v", err)
				assert.Equal(t, queued, ticks(), "after %v", err)
			})
		}
		assert.Positive(t, refused, "%s was never refused", verb)
	}
}
