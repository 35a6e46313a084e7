package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// most is how many messages one call renews.
const most = 100

// renew sends the renewals of messages that are due together.
func (h *hub) renew(due []*Message) {
	for some := range slices.Chunk(due, most) {
		h.renewSome(some)
	}
}

func (h *hub) renewSome(messages []*Message) {
	r := h.registry
	renewals := make([]renewal, 0, len(messages))
	extensions := make([]extension, 0, len(messages))
	sentAt := r.core.Clock.Now()
	for _, m := range messages {
		one := m.renewal(sentAt)
		renewals = append(renewals, one)
		extensions = append(extensions, extension{m.member, m.claim, one.visibility})
	}
	r.core.Batch.Start(h.keys.renew(extensions), pipeline.Urgent, func(c *script.Call) {
		results, err := c.Ints()
		r.report(results, err)
		for i, one := range renewals {
			switch {
			case err != nil || i >= len(results): // the timer is set for the next try
			case results[i] == 0:
				r.core.Workers.Go(func() { one.lose("another consumer has it, or it was removed") })
			default:
				one.done(sentAt)
			}
		}
	})
}

// renewal is a message whose visibility is being renewed.
type renewal struct {
	*Message
	visibility time.Duration
	extends    int // of the message, before
}

// renewal returns what is to be asked for: the visibility, or what is left of a longer one.
func (m *Message) renewal(now time.Duration) renewal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return renewal{m, max(m.terms.Visibility, m.deadline-now), m.extends}
}

// done notes that Redis renewed the visibility. An Extend that was answered meanwhile may have been later, and has the last word.
func (r renewal) done(sentAt time.Duration) {
	r.mu.Lock()
	superseded := r.Message.extends != r.extends
	if !superseded {
		r.deadline = sentAt + r.visibility
	}
	r.mu.Unlock()
	if !superseded {
		r.watch(sentAt)
	}
}

// report tells the user's hook of a renewal.
func (r *Registry) report(results []int64, err error) {
	hook := r.core.Hooks.Renewed
	if hook == nil {
		return
	}
	lost := 0
	for _, ok := range results {
		if ok == 0 {
			lost++
		}
	}
	hook(len(results)-lost, lost, err)
}

// watch sets the timer after a call that was sent at the given time has set the visibility anew.
func (m *Message) watch(sentAt time.Duration) {
	m.mu.Lock()
	over := m.state != held || m.lost
	next := m.next(sentAt)
	m.mu.Unlock()
	if !over {
		m.queue.registry.core.Timers.Set(&m.timer, next)
	}
}

// Extend sets the visibility anew.
func (m *Message) Extend(ctx context.Context, d time.Duration) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	if m.Finished() {
		return ErrNotHeld
	}
	r := m.queue.registry
	sentAt := r.core.Clock.Now()
	c, err := r.act(ctx, func() *script.Call {
		return m.hub.keys.extend(extension{m.member, m.claim, d})
	})
	if err != nil {
		return err
	}
	results, err := c.Ints()
	switch {
	case err != nil:
		return err
	case len(results) != 1:
		return fmt.Errorf("a script answered with %d integers, not 1", len(results))
	case results[0] == 0:
		m.lose("another consumer has it, or it was removed")
		return ErrNotHeld
	}
	if m.shortens(sentAt + d) {
		r.crew.Go(m.hub.wake) // ends with the call; Drain waits for it
	}
	m.mu.Lock()
	m.extends++
	m.deadline = sentAt + d
	m.mu.Unlock()
	m.watch(sentAt)
	return nil
}

// shortens reports whether a visibility that ends then is over sooner than others were told.
func (m *Message) shortens(end time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return end < m.deadline
}
