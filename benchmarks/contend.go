package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// contendTask is what one process of a contended run does.
type contendTask struct {
	Contestant string        `json:"contestant"`
	Setup      setup         `json:"setup"`
	Goroutines int           `json:"goroutines"`
	Section    time.Duration `json:"section"`  // how long the lock is held, busy
	Capacity   int           `json:"capacity"` // how many may hold it at once
	WarmUp     time.Duration `json:"warm_up"`
	Window     time.Duration `json:"window"`
	Witness    string        `json:"witness"`
}

// contendResult is what it saw in the window.
type contendResult struct {
	Sections []int64   `json:"sections"` // by goroutine
	Waits    histogram `json:"waits"`    // for Lock calls that began in the window, however long they took
	Sent     int64     `json:"sent"`
	Stuck    int       `json:"stuck"` // goroutines that still waited long after the window, when nobody else did
}

// patience is how long after the window a Lock call may still wait. By then its competitors have long gone.
const patience = 3 * time.Second

// contend is the task of a contending worker.
func contend(ctx context.Context, task contendTask, ready func() time.Time) (contendResult, error) {
	counter := &sent{}
	task.Setup.Sent = counter
	s, err := contestants(task.Contestant)[0].open(ctx, task.Setup)
	if err != nil {
		return contendResult{}, err
	}
	seen, err := openWitness(task.Witness)
	if err != nil {
		return contendResult{}, err
	}
	// A first pair on a key of its own connects, loads scripts and starts whatever the library starts.
	if err := lockUnlock(ctx, s.handle(fmt.Sprintf("warm:%p", s))); err != nil {
		return contendResult{}, err
	}
	start := ready()
	from := start.Add(task.WarmUp)
	until := from.Add(task.Window)
	ctx, cancel := context.WithDeadline(ctx, until.Add(patience))
	defer cancel()
	time.Sleep(time.Until(start))
	crowd := newCrowd(ctx, s, task, seen, from, until)
	time.Sleep(time.Until(from))
	before := counter.count()
	time.Sleep(time.Until(until))
	result := contendResult{Sent: counter.count() - before}
	return result, crowd.gather(ctx, &result)
}

// crowd is the goroutines of one process that want the lock.
type crowd struct {
	running sync.WaitGroup
	members []*member
}

// member is one of them.
type member struct {
	handle   handle
	sections int64
	waits    histogram
	err      error
}

// newCrowd starts the goroutines. Each ends after until, with the section that it then waits for; gather waits for them.
func newCrowd(ctx context.Context, s session, task contendTask, seen *witness, from, until time.Time) *crowd {
	c := &crowd{}
	for range task.Goroutines {
		m := &member{handle: s.handle("contended")}
		c.members = append(c.members, m)
		c.running.Go(func() { m.err = m.compete(ctx, task, seen, from, until) })
	}
	return c
}

func (m *member) compete(ctx context.Context, task contendTask, seen *witness, from, until time.Time) error {
	for asked := time.Now(); asked.Before(until); asked = time.Now() {
		if err := m.handle.Lock(ctx); err != nil {
			m.waits.add(time.Since(asked))
			return err
		}
		seen.enter(task.Capacity)
		got := time.Now()
		for task.Section > 0 && time.Since(got) < task.Section {
		}
		seen.leave()
		if err := m.handle.Unlock(ctx); err != nil {
			return err
		}
		if !asked.Before(from) {
			m.waits.add(got.Sub(asked))
		}
		if !got.Before(from) && got.Before(until) {
			m.sections++
		}
	}
	return nil
}

// gather counts an error after the deadline, which libraries report each in their own way, as a goroutine that is stuck.
func (c *crowd) gather(ctx context.Context, into *contendResult) error {
	c.running.Wait()
	for _, m := range c.members {
		if m.err != nil && ctx.Err() == nil {
			return m.err
		}
		if m.err != nil {
			into.Stuck++
		}
		into.Sections = append(into.Sections, m.sections)
		into.Waits.merge(m.waits)
	}
	return nil
}
