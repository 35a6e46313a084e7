package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rscheduler"
)

// campaignInTurn has a client lead, in a term higher than all that have been.
func campaignInTurn(ctx context.Context, c *redlatch.Client, name string, newest *atomic.Int64) (*relection.Leadership, error) {
	l, err := c.GetElection(name).Campaign(ctx)
	if err != nil {
		return l, err
	}
	if before := newest.Swap(l.Term()); l.Term() <= before {
		err = errors.Join(fmt.Errorf("term %d follows term %d", l.Term(), before), l.Resign(ctx))
	}
	return l, err
}

// turnUses returns how two clients run functions once for each key, meet at barriers, and run a job. Whoever goes on while others wait for
// it calls hold. stop ends what waits.
func turnUses(t *testing.T, clients []*redlatch.Client, nameOf func(kind string) string, hold func(kind string)) (all []use, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	all = append(onceUses(clients, nameOf("once"), hold), barrierUses(clients, nameOf, hold)...)
	job, jobsEnd := jobUse(ctx, t, clients, nameOf("scheduler"), hold)
	tasks, workEnds := taskUses(ctx, t, clients, nameOf("task"), hold)
	all = append(append(all, job), tasks...)
	for i, u := range all {
		all[i].once = func(call context.Context) error {
			call, done := context.WithCancel(call)
			defer done()
			defer context.AfterFunc(ctx, done)()
			err := u.once(call)
			if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, rbarrier.ErrBroken)) {
				err = nil
			}
			return err
		}
	}
	return all, func() {
		cancel()
		jobsEnd()
		workEnds()
	}
}

// taskUses has each client submit tasks of a group of its own, which both work on, and get their results. A task is done once.
func taskUses(ctx context.Context, t *testing.T, clients []*redlatch.Client, name string, hold func(kind string)) (all []use, stopped func()) {
	t.Helper()
	double := rexecutor.NewTask[string, string]("double")
	var workers sync.WaitGroup
	var done sync.Map // by what was submitted
	for i, c := range clients {
		ex, n := rexecutor.New(c, name), 0
		require.NoError(t, double.Handle(ex, func(_ context.Context, c rexecutor.Call[string]) (string, error) {
			hold("task")
			_, twice := done.LoadOrStore(c.Args, true)
			return fmt.Sprint(c.Args, c.Args, " ", twice), nil
		}))
		workers.Go(func() { assert.NoError(t, ex.Work(ctx, rexecutor.WithConcurrency(len(clients)))) })
		all = append(all, use{"task", func(ctx context.Context) error {
			n++
			value := fmt.Sprint(i, "-", n)
			f, err := double.Submit(ctx, ex, value, rexecutor.WithID(value), rexecutor.WithGroup(fmt.Sprint(i)), rexecutor.WithPriority(i))
			if err != nil {
				return err
			}
			got, err := f.Get(ctx)
			if err == nil && got != value+value+" false" {
				err = fmt.Errorf("%q of %q", got, value)
			}
			return err
		}})
	}
	return all, workers.Wait
}

// onceUses has each client ask for the value of one key after another. No function runs twice for a key, unless nobody knows whether its
// value was kept, and both get the same value.
func onceUses(clients []*redlatch.Client, name string, hold func(kind string)) (all []use) {
	var mu sync.Mutex // guards what follows
	made, doubted := map[int]string{}, map[int]bool{}
	for i, c := range clients {
		key := 0
		all = append(all, use{"once", func(ctx context.Context) error {
			var twice error
			value, _, err := onceOf(c, name).Do(ctx, fmt.Sprint(key), func(context.Context) (string, error) {
				hold("once")
				mu.Lock()
				defer mu.Unlock()
				if made[key] != "" && !doubted[key] {
					twice = fmt.Errorf("a second run for key %d", key)
				}
				made[key] = fmt.Sprint(key, " by ", i)
				return made[key], nil
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, redlatch.ErrUnknown):
				doubted[key] = true
			case err != nil:
				return err // the key is next again
			case value != made[key] && !doubted[key]:
				err = fmt.Errorf("%q for key %d, of which %q was made", value, key, made[key])
			}
			key++
			return errors.Join(err, twice)
		}})
	}
	return all
}

// party counts how often each of two has come to a barrier, and passed it.
type party struct{ came, passed [2]atomic.Int64 }

// pass has one of them pass a barrier. The other one has come as often.
func (p *party) pass(ctx context.Context, one int, await func(ctx context.Context) error) error {
	p.came[one].Add(1)
	if err := await(ctx); err != nil {
		return err
	}
	if passed, came := p.passed[one].Add(1), p.came[1-one].Load(); passed > came {
		return fmt.Errorf("one passed %d times, the other one came %d times", passed, came)
	}
	return nil
}

// barrierUses has both clients pass barriers again and again, the second one late.
func barrierUses(clients []*redlatch.Client, nameOf func(kind string) string, hold func(kind string)) (all []use) {
	var awaits, enters, leaves party
	for i, c := range clients {
		late := func(kind string) {
			if i == 1 {
				hold(kind)
			}
		}
		single, double := c.GetBarrier(nameOf("barrier"), 2), c.GetDoubleBarrier(nameOf("double"), 2)
		all = append(all, use{"barrier", func(ctx context.Context) error {
			late("barrier")
			return awaits.pass(ctx, i, single.Await)
		}}, use{"double", func(ctx context.Context) error {
			if err := enters.pass(ctx, i, double.Enter); err != nil {
				return err
			}
			late("double")
			return leaves.pass(ctx, i, double.Leave)
		}})
	}
	return all
}

// jobUse has both clients run a job each 50 ms, no tick twice, until ctx is done, and waits for one run after another.
func jobUse(ctx context.Context, t *testing.T, clients []*redlatch.Client, name string, hold func(kind string)) (u use, stopped func()) {
	t.Helper()
	runs, ends := make(chan func() error), make(chan error, len(clients))
	var begun sync.Map // the ticks
	for _, c := range clients {
		s := c.GetScheduler(name)
		require.NoError(t, s.Register("job", rscheduler.Every(50*time.Millisecond), func(ctx context.Context, run rscheduler.Run) error {
			over := make(chan struct{})
			select {
			case runs <- func() error {
				defer close(over)
				hold("scheduler")
				if _, twice := begun.LoadOrStore(run.Scheduled.UnixMicro(), true); twice {
					return fmt.Errorf("tick %v runs twice, in attempt %d", run.Scheduled, run.Attempt)
				}
				return ended(ctx)
			}:
				<-over
			case <-ctx.Done():
			}
			return nil
		}))
		go func() { ends <- s.Run(ctx) }()
	}
	u = use{"scheduler", func(ctx context.Context) error {
		select {
		case run := <-runs:
			return run()
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	return u, func() {
		for range clients {
			assert.NoError(t, <-ends)
		}
	}
}
