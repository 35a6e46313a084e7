package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// Room is what a producer knows of a queue's capacity.
type Room struct {
	Capacity int           // messages that may be delayed, ready or in flight; 0 for no limit
	Wait     time.Duration // for room, of an offer that was refused
}

// await offers what was refused again when there may be room, until the wait is over. Of the offers of a client one at a time waits for Redis,
// in their order; the others wait for that one. What else went wrong before is that some are not confirmed.
func (c *client) await(ctx context.Context, offers []offer, outcomes []Outcome, failed error, wait time.Duration) error {
	over, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ends := func() error {
		if c.core.Closed() {
			return errs.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", err, ErrFull)
		}
		return ErrFull
	}
	select {
	case c.waiting <- struct{}{}:
	case <-over.Done():
		return ends()
	case <-c.core.Closing():
		return ends()
	}
	defer func() { <-c.waiting }() // never blocks: the token is there
	w := make(roomWaiter, 1)
	member, confirmed := c.core.Router.Join(c.keys.channel+"room", w)
	defer member.Leave()
	if confirmed {
		w.Subscribed() // there may be room since the offer was refused, or the one before got its own
	}
	recheck := time.NewTimer(safetyMost)
	defer recheck.Stop()
	for {
		recheck.Reset(safetyLeast + rand.N(safetyMost-safetyLeast)) // should the message be lost
		select {
		case <-w:
		case <-recheck.C:
		case <-over.Done():
			return ends()
		case <-c.core.Closing():
			return ends()
		}
		var again []offer
		var places []int
		for i, outcome := range outcomes {
			if outcome == IsFull {
				again, places = append(again, offers[i]), append(places, i)
			}
		}
		found := make([]Outcome, len(again))
		failed = cmp.Or(c.offer(ctx, again, found), failed)
		for n, i := range places {
			outcomes[i] = found[n]
		}
		if err := verdict(offers, outcomes, failed); !errors.Is(err, ErrFull) {
			return err
		}
	}
}

// roomWaiter hears that there may be room.
type roomWaiter chan struct{}

// Subscribed has the waiter look: what was published before was not heard.
func (w roomWaiter) Subscribed() { w.Message("") }

// Message has the waiter look.
func (w roomWaiter) Message(string) {
	select {
	case w <- struct{}{}:
	default: // it is about to look
	}
}
