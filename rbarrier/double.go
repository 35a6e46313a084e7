package rbarrier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// DoubleBarrier is one participant of work that a number of them begin and end together, again and again: each calls
// Enter, works, and calls Leave. Unlike other objects it has a state, and each participant needs one of its own. After
// an error of Enter or Leave the participant is outside, and may enter again. It is safe for concurrent use.
type DoubleBarrier struct {
	rounds rounds
	timer  timer.Timer // to keep the place of one that is inside

	mu    sync.Mutex // guards the rest; taken before the manager's
	state state
	who   string
}

// state is where a participant is.
type state uint8

const (
	outside state = iota
	entering
	inside
	leaving
)

func (s state) String() string { return [...]string{"outside", "entering", "inside", "leaving"}[s] }

// NewDouble returns a new participant of the double barrier with this name, as client.GetDoubleBarrier does. client is
// a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error of every method.
func NewDouble(client core.Client, name string, n int) *DoubleBarrier {
	c := core.Of(client)
	d := &DoubleBarrier{rounds: newRounds(c, name, n, doubleKeysOf)}
	d.timer.Task = (*keeper)(d)
	return d
}

// Name returns the barrier's name as it was given to the client.
func (d *DoubleBarrier) Name() string { return d.rounds.manager.core.UserName(d.rounds.name) }

// Enter blocks until all participants have called it and those of the round before have left. Then it returns nil for all
// of them, also if one of them is gone by then: that breaks their Leave. The place of a participant that has entered is
// kept until it leaves or its client closes.
//
// It ends and costs as [Barrier.Await] does. redlatch.ErrInvalid is also for a participant that is not outside.
func (d *DoubleBarrier) Enter(ctx context.Context) error {
	return d.rounds.wrap("enter", d.enter(ctx))
}

func (d *DoubleBarrier) enter(ctx context.Context) error {
	if err := d.rounds.admit(ctx); err != nil {
		return err
	}
	m := d.rounds.manager
	defer m.core.End()
	if err := d.turn(outside, entering); err != nil {
		return err
	}
	who := m.core.NextOwner()
	if err := d.rounds.arrive(ctx, who); err != nil {
		d.set(outside)
		return err
	}
	d.mu.Lock()
	d.who, d.state = who, inside
	d.mu.Unlock()
	m.mu.Lock()
	m.entered[d] = struct{}{}
	m.mu.Unlock()
	if m.core.Closed() { // perhaps before it was among those whom Closing has quit
		d.quit()
		return errs.ErrClosed
	}
	m.core.Timers.Set(&d.timer, m.core.Clock.Now())
	return nil
}

// Leave blocks until all participants that have entered have called it. Then it returns nil for all of them, and the next
// round may enter.
//
// It returns [ErrBroken] if another participant gave up or died, since it entered, before all have left. It ends and
// costs as [Barrier.Await] does. redlatch.ErrInvalid is also for a participant that has not entered.
func (d *DoubleBarrier) Leave(ctx context.Context) error {
	return d.rounds.wrap("leave", d.leave(ctx))
}

func (d *DoubleBarrier) leave(ctx context.Context) error {
	if err := d.rounds.admit(ctx); err != nil {
		return err
	}
	m := d.rounds.manager
	defer m.core.End()
	if err := d.turn(inside, leaving); err != nil {
		return err
	}
	m.core.Timers.Stop(&d.timer)
	m.mu.Lock()
	delete(m.entered, d)
	m.mu.Unlock()
	defer d.set(outside)
	return d.rounds.wait(ctx, d.who, true, func(bool) *script.Call { return d.rounds.keys.leave(d.who, d.rounds.n, m.good, true) })
}

// turn changes the state.
func (d *DoubleBarrier) turn(from, to state) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != from {
		return fmt.Errorf("%w: the participant is %v, not %v", errs.ErrInvalid, d.state, from)
	}
	d.state = to
	return nil
}

func (d *DoubleBarrier) set(to state) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = to
}

// keeper is a participant as its timer sees it.
type keeper DoubleBarrier

// Due keeps the participant's place.
func (k *keeper) Due(now time.Duration) { (*DoubleBarrier)(k).keep(now) }

// keep keeps the participant's place, and does so again about a second later unless it has none any more.
func (d *DoubleBarrier) keep(now time.Duration) {
	d.mu.Lock()
	who, is := d.who, d.state
	d.mu.Unlock()
	if is != inside {
		return
	}
	m := d.rounds.manager
	c := m.core
	c.Timers.Set(&d.timer, now+core.Jitter(m.recheck))
	c.Batch.Start(d.rounds.keys.leave(who, d.rounds.n, m.good, false), pipeline.Urgent, func(answered *script.Call) {
		if is, _, err := readCode(answered); err == nil && is == broken {
			d.stop(who)
		}
	})
}

// stop ends the timer of a participant, unless it has entered anew.
func (d *DoubleBarrier) stop(who string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.who == who {
		d.rounds.manager.core.Timers.Stop(&d.timer)
	}
}

// quit breaks the round of a participant that is inside.
func (d *DoubleBarrier) quit() {
	if d.turn(inside, outside) != nil {
		return
	}
	m := d.rounds.manager
	m.mu.Lock()
	delete(m.entered, d)
	m.mu.Unlock()
	m.core.Timers.Stop(&d.timer)
	d.rounds.quit(d.who)
}

// Verify does nothing: each place is asked for once a second.
func (m *manager) Verify() {}

// Closing breaks the rounds of all participants that are inside. Those that wait break theirs.
func (m *manager) Closing() {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.entered))
	m.mu.Unlock()
	for _, d := range all {
		d.quit()
	}
}

// Open returns 0: nothing has to be released.
func (m *manager) Open() int { return 0 }

// Drain does nothing: the settler breaks the rounds.
func (m *manager) Drain(time.Duration) {}

// Wait does nothing: there are no goroutines.
func (m *manager) Wait(time.Time) {}
