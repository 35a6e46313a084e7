package rmultilock

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// together returns the names of these locks if one script can take them all, in this call; else nil.
func (c *call) together(members []int) []*lease.Name {
	if len(members) < 2 {
		return nil
	}
	names := make([]*lease.Name, len(members))
	for at, i := range members {
		n := c.lock.members[i].name
		if n == nil || n.HoldOf(c.ctx) != nil {
			return nil
		}
		names[at] = n
	}
	if !names[0].Together(names[1:]) {
		return nil
	}
	return names
}

// takeTogether takes locks in one script, or none of them. It returns whether it could try, and which one was not acquired.
func (c *call) takeTogether(h *hold, members []int) (tried bool, busy int, err error) {
	names := c.together(members)
	if names == nil {
		return false, 0, nil
	}
	type answer struct {
		busy int
		err  error
	}
	answered := make(chan answer, 1) // room for the answer: nobody may wait for it
	try := lease.BeginAll(c.ctx, names, &c.options, func(holds []*lease.Hold, busy int, err error) {
		for at, held := range holds {
			if p := (part{held: held, lease: held}); err == nil {
				h.answer(members[at], p, nil)
			} else {
				p.drop() // others came too late
			}
		}
		answered <- answer{busy, err}
	})
	var limit <-chan time.Time
	if !c.limit.IsZero() && !c.single {
		timer := time.NewTimer(max(time.Until(c.limit), time.Millisecond))
		defer timer.Stop()
		limit = timer.C
	}
	select {
	case a := <-answered:
		return true, members[a.busy], a.err
	case <-c.ctx.Done():
		err = c.ctx.Err()
	case <-limit:
		err = errs.ErrNotAcquired
	case <-time.After(togetherLimit):
		err = errors.Join(errs.ErrUnknown, errNoAnswer)
	}
	try.GiveUp()
	return true, members[0], err
}

// togetherLimit bounds the wait for the answer of a script, beside the bound of its connection.
const togetherLimit = 3500 * time.Millisecond
