package rscheduler

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/queue"
)

// Driver is a process whose steps a test takes one by one.
type Driver struct{ r *runner }

// Claimed is a tick that a driver has claimed.
type Claimed struct {
	ID      string
	Attempt int
	Due     time.Time

	m      *queue.Message
	c      *claimed
	answer string
	least  int64
}

func NewDriver(s *Scheduler) *Driver {
	return &Driver{&runner{Scheduler: s, process: s.core.NextOwner(), written: map[string]known{}, stopped: make(chan struct{})}}
}

func (d *Driver) Beat(ctx context.Context) error { return d.r.beat(ctx, ctx) }

// Take claims what is due; nil if nothing is.
func (d *Driver) Take(ctx context.Context, lease time.Duration) *Claimed {
	ctx, cancel := context.WithCancel(ctx) // it ends when nothing is due, and else not before the test does
	wait := time.AfterFunc(time.Millisecond, cancel)
	all, err := d.r.queue.Take(ctx, 1, queue.Terms{Visibility: lease})
	if !wait.Stop() || err != nil || len(all) == 0 {
		cancel()
		return nil
	}
	t, _ := dueTick(all[0])
	return &Claimed{ID: all[0].ID, Attempt: all[0].Attempt, Due: dueOf(all[0]), m: all[0], c: d.r.claimed(all[0], t)}
}

// Begin returns what begin.lua says, the token of the run, and the time from which on another tick may run.
func (d *Driver) Begin(ctx context.Context, c *Claimed) (answer string, token, least int64, err error) {
	c.answer, c.least, err = d.r.begin(ctx, c.c)
	return c.answer, c.c.run.Token, c.least, err
}

// End ends a run, or a tick that does not run.
func (d *Driver) End(ctx context.Context, c *Claimed, how string) bool {
	follow := c.c.after
	if ending(how) == dropped {
		follow = func(now int64) int64 {
			return c.c.job.options.instead(c.c.schedule, c.answer, c.c.instant, c.least, now)
		}
	}
	return d.r.end(ctx, c.c, ending(how), Result{}, follow)
}

func (d *Driver) Ack(ctx context.Context, c *Claimed) error { return c.m.Ack(ctx) }

func (d *Driver) Nack(ctx context.Context, c *Claimed) error {
	return c.m.Nack(ctx, 2*time.Second, "")
}

func (d *Driver) Return(c *Claimed) { c.m.Return(waitAgain) }
