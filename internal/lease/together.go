package lease

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// maxTogether is how many locks one script takes.
const maxTogether = 100

// Together is a Kind of which several locks can be acquired in one step, or none of them.
type Together interface {
	Kind
	// AcquireAll asks for all locks, which share a slot.
	AcquireAll(keys, owners []any, lease time.Duration) *script.Call
	// AcquiredAll reads AcquireAll's reply: the position of a lock that is busy; -1 if all were acquired.
	AcquiredAll(*script.Call) (busy int, err error)
}

// Together reports whether one script can take the locks of all these names.
func (n *Name) Together(others []*Name) bool {
	if _, ok := n.space.kind.(Together); !ok || len(others) >= maxTogether {
		return false
	}
	for _, other := range others {
		if other.space != n.space {
			return false
		}
		if n.space.core.Cluster && core.Tag(other.text()) != core.Tag(n.text()) {
			return false
		}
	}
	return true
}

// BeginAll is Begin for several names that can be taken together, under fresh owner ids. done gets the holds of all; or the position of one that
// is busy and ErrNotAcquired; or another error. Some holds may come with an error: they are to be released.
func BeginAll(ctx context.Context, names []*Name, o *Options, done func(holds []*Hold, busy int, err error)) *Try {
	s := names[0].space
	kind, _ := s.kind.(Together)
	if s.core.Closed() {
		done(nil, 0, errs.ErrClosed)
		return nil
	}
	for i, n := range names {
		if n.takenHere() {
			done(nil, i, errs.ErrNotAcquired)
			return nil
		}
	}
	if !s.core.Admit() {
		done(nil, 0, errs.ErrClosed)
		return nil
	}
	a := all{kind: kind, begun: make([]begun, len(names))}
	keys, owners := make([]any, len(names)), make([]any, len(names))
	sent := s.core.Clock.Now()
	for i, n := range names {
		keys[i], owners[i] = n.key, s.core.NextOwner()
		b := begun{name: n, lease: s.newLease(n.key, owners[i]), sent: sent}
		b.length = b.lease.register(ctx, o, sent)
		a.begun[i] = b
	}
	call, t := kind.AcquireAll(keys, owners, a.begun[0].length), &Try{phantoms: a.phantoms()}
	answered := func(c *script.Call) {
		if t.answered(c) {
			done(a.answered(ctx, c))
		}
		s.core.End()
	}
	if !s.core.Batch.Start(call, pipeline.Normal, answered) {
		s.core.End()
		a.unregister()
		done(nil, 0, errs.ErrClosed)
		return nil
	}
	return t
}

// all are the tries of one script.
type all struct {
	kind  Together
	begun []begun
}

// phantoms returns what becomes of the tries if they have no answer.
func (a all) phantoms() []*phantom {
	phantoms := make([]*phantom, len(a.begun))
	for i, b := range a.begun {
		phantoms[i] = &phantom{lease: b.lease, length: b.length, together: a.kind}
	}
	return phantoms
}

func (a all) unregister() {
	for _, b := range a.begun {
		b.lease.unregister()
	}
}

// answered makes holds of a yes, and settles what is not known.
func (a all) answered(ctx context.Context, c *script.Call) (holds []*Hold, busy int, err error) {
	busy, err = 0, c.Err()
	if err == nil {
		busy, err = a.kind.AcquiredAll(c)
	}
	switch {
	case err != nil:
		a.unregister()
		for _, p := range a.phantoms() {
			_ = p.failed(err) // one error for all
		}
		return nil, 0, unknown(err)
	case busy >= 0:
		a.unregister()
		return nil, min(busy, len(a.begun)-1), errs.ErrNotAcquired
	}
	busy = 0
	for i, b := range a.begun {
		h, failed := b.granted(ctx, Reply{Granted: true})
		if failed != nil {
			busy, err = i, failed
			continue
		}
		holds = append(holds, h)
	}
	return holds, busy, err
}
