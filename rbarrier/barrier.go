package rbarrier

import (
	"context"

	"github.com/redlatch/redlatch/internal/core"
)

// Barrier is a point at which a number of participants wait for each other, again and again. It has no state: any
// number of goroutines may use one, each call is a participant, and those of the same name in all processes are the
// same barrier. It is safe for concurrent use.
type Barrier struct{ rounds rounds }

// New returns the barrier with this name, as client.GetBarrier does. client is a *redlatch.Client. It does no I/O and
// keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string, n int) *Barrier {
	c := core.Of(client)
	return &Barrier{newRounds(c, name, n, keysOf)}
}

// Name returns the barrier's name as it was given to the client.
func (b *Barrier) Name() string { return b.rounds.manager.core.UserName(b.rounds.name) }

// Await blocks until as many calls wait as the barrier has participants, this one included, in all processes together.
// Then it returns nil for all of them, and the next call begins the next round.
//
// It returns [ErrBroken] if another participant of the round gives up or dies. It also ends when ctx is done, with
// ctx's error, and when the client closes (redlatch.ErrClosed): this breaks the round for the others.
// redlatch.ErrInvalid is for a number of participants other than the barrier has, which breaks nothing. Without replies
// from Redis it ends with redlatch.ErrUnavailable: after the call timeout if ctx has no deadline (10 s by default, see
// redlatch.WithCallTimeout), or at once if the connection is refused before the participant has arrived, and within 5 s
// if it is refused later. The round is broken for the others once Redis hears of that, or 5 s later at most. After
// redlatch.ErrUnknown, which an error may be besides, the round may be complete for the others. A participant
// whose call Redis has not carried out for 30 s, and that has no place then, is [ErrBroken].
//
// It costs a round trip at first, another one once the client has subscribed, if it had not, and for all but the last
// participant one at the end of the round; and one about every second, or each fifth of the client's lease if that is
// less than 5 s.
func (b *Barrier) Await(ctx context.Context) error {
	return b.rounds.wrap("await", b.await(ctx))
}

func (b *Barrier) await(ctx context.Context) error {
	if err := b.rounds.admit(ctx); err != nil {
		return err
	}
	c := b.rounds.manager.core
	defer c.End()
	return b.rounds.arrive(ctx, c.NextOwner())
}
