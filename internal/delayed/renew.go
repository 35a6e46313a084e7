package delayed

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/watchdog"
)

// renewer renews the visibility of messages, for the watchdog.
type renewer Registry

// Slot returns the queue of a message: one call renews messages of one queue.
func (*renewer) Slot(s watchdog.Subject) string {
	m, ok := s.(*Message)
	if !ok {
		return ""
	}
	return m.hub.name
}

// Renew sends the renewal of messages of one queue.
func (r *renewer) Renew(subjects []watchdog.Subject) {
	messages := make([]*Message, 0, len(subjects))
	extensions := make([]extension, 0, len(subjects))
	for _, s := range subjects {
		if m, ok := s.(*Message); ok {
			messages = append(messages, m)
			extensions = append(extensions, extension{m.member, m.claim, m.terms.Visibility})
		}
	}
	if len(messages) == 0 {
		return
	}
	sentAt := r.engine.Clock.Now()
	r.engine.Batch.Start(messages[0].hub.keys.extend(extensions), batch.Urgent, func(c *script.Call) {
		results, err := c.Ints()
		r.report(results, err)
		for i, m := range messages {
			switch {
			case err != nil || i >= len(results): // the timer is set for the next try
			case results[i] == 0:
				r.engine.Watchdog.Go(func() { m.lose("another consumer has it, or it was removed") })
			default:
				m.prolong(sentAt, m.terms.Visibility)
			}
		}
	})
}

// report tells the user's hook of a renewal.
func (r *renewer) report(results []int64, err error) {
	hook := r.engine.Hooks.Renewed
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

// prolong notes that the visibility was set anew by a call that was sent at the given time.
func (m *Message) prolong(sentAt, visibility time.Duration) {
	m.mu.Lock()
	over := m.state != held || m.lost
	m.deadline = sentAt + visibility
	next := m.next(sentAt)
	m.mu.Unlock()
	if !over {
		m.queue.registry.engine.Watchdog.Set(&m.timer, next)
	}
}

// Extend sets the visibility anew.
func (m *Message) Extend(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		return engine.ErrNilContext
	}
	if m.Finished() {
		return ErrNotHeld
	}
	r := m.queue.registry
	sentAt := r.engine.Clock.Now()
	c, err := r.query(ctx, func() *script.Call {
		return m.hub.keys.extend([]extension{{m.member, m.claim, d}})
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
	m.prolong(sentAt, d)
	return nil
}
