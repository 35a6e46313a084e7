package relection

import (
	"context"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Leadership is one term of a leader. It may move between goroutines and is safe for concurrent use. A nil Leadership, which
// a failed Campaign returns, has ended: its methods return [ErrNotHeld], which is also the cause of its context.
type Leadership struct {
	member *member
	hold   *lease.Hold
}

// Context returns the context of the leadership. It descends from the context that was given to Campaign, and ends as that of
// a hold does: with [ErrResigned] as its cause on Resign, with [ErrLost] when the leadership is lost, and with redlatch.ErrClosed
// when the client closes. It also ends with the context that was given; the leadership then lasts until Resign. It ends on
// this machine's clock before another one can be elected, and at a third of the lease, at the latest, after somebody has
// taken the lock away.
func (l *Leadership) Context() context.Context {
	if l == nil {
		return core.EndedContext(ErrNotHeld)
	}
	return l.hold.Context()
}

// Term returns the number of this leadership, higher than that of every earlier leader: a fencing token.
func (l *Leadership) Term() int64 {
	if l == nil {
		return 0
	}
	return l.member.reign.term
}

// ID returns the id under which Redis knows this leader, [Leader.ID] of the others.
func (l *Leadership) ID() string {
	if l == nil {
		return ""
	}
	return l.member.id
}

// begin draws the term. It returns [errs.ErrNotHeld] if the lock is lost already. Nobody else knows of the leadership yet.
func (l *Leadership) begin() error {
	m := l.member
	m.stop()
	r, err := l.write(l.hold.Context(), m.said)
	if err != nil {
		return err
	}
	m.lead(r)
	l.hold.OnEnd(func(error) { m.stop() })
	return nil
}

// Proclaim sets the value that others see of the leader, at most 64 KiB. Observers get it at once.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline, and repeats what got no answer. It
// returns [ErrNotHeld] if this one leads no more; nothing was changed then. After redlatch.ErrUnknown the value may have
// been set, or may be for some seconds to come, unless a later Proclaim is. It costs one round trip.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if l == nil {
		return errs.Wrap(title, "proclaim", "", errs.Of("leadership", errs.ErrNotHeld))
	}
	return l.member.election.wrap("proclaim", l.proclaim(ctx, value))
}

func (l *Leadership) proclaim(ctx context.Context, value string) error {
	m := l.member
	if ctx == nil {
		return core.ErrNilContext
	}
	if err := checkValue(value); err != nil {
		return err
	}
	if m.stopped() && !m.election.core.Closed() {
		return errs.ErrNotHeld
	}
	s := said{value, m.election.core.NextNumber()}
	if _, err := l.write(ctx, s); err != nil {
		return err
	}
	m.say(s)
	return nil
}

// write writes the term and the value, if this one holds the lock.
func (l *Leadership) write(ctx context.Context, s said) (reign, error) {
	answer, _, err := l.member.election.core.Query(ctx, func() *script.Call { return l.member.leadCall(s) })
	if err != nil {
		return reign{}, err
	}
	r, err := readReign(answer)
	if err == nil && r.term == 0 {
		err = errs.ErrNotHeld
	}
	return r, err
}

// Resign ends the leadership and its context, and the next candidate is elected. It works although ctx is done.
//
// It waits and fails as Unlock of a hold does. The leadership has ended whatever Resign returns, except for
// redlatch.ErrInvalid, which a nil ctx causes. It returns [ErrNotHeld] if it had ended already, by a Resign or a loss. If
// the outcome is unknown it returns redlatch.ErrUnknown, and goes on in the background. It costs two round trips, and does
// not wait for the second.
func (l *Leadership) Resign(ctx context.Context) error {
	if l == nil {
		return errs.Wrap(title, "resign", "", errs.Of("leadership", errs.ErrNotHeld))
	}
	if ctx == nil {
		return l.member.election.wrap("resign", core.ErrNilContext)
	}
	return l.member.election.wrap("resign", l.resign(ctx))
}

func (l *Leadership) resign(ctx context.Context) error {
	err := l.hold.Unlock(ctx)
	l.member.resigned()
	return err
}

// giveBack resigns a leadership that nobody knows of, in the background.
func (l *Leadership) giveBack(ctx context.Context) {
	c := l.member.election.core
	c.Begin()
	c.Workers.Go(func() {
		defer c.End()
		_ = l.hold.UnlockSurely(context.WithoutCancel(ctx)) // nobody waits for it
		l.member.resigned()
	})
}
