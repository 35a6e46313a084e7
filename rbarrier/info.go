package rbarrier

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

// Info is the state of a barrier or a double barrier in Redis at one moment.
type Info struct {
	// Name is the barrier's name.
	Name string
	// Double reports whether it is a double barrier.
	Double bool
	// Participants is how many a round has: 0 for a barrier that has not been used for a minute, or if Redis has lost the number.
	Participants int
	// Arrived are those who wait in Await or Enter for the others. At a double barrier more may wait for a place.
	Arrived Crowd
	// Inside are those who have entered a double barrier, and have not called Leave yet.
	Inside Crowd
	// Leaving are those who wait in Leave for the others.
	Leaving Crowd
}

// InUse reports whether somebody has used the barrier within a minute, as far as Redis remembers.
func (i *Info) InUse() bool {
	return i.Participants+i.Arrived.Count+i.Inside.Count+i.Leaving.Count > 0 // Redis may have lost the number
}

// Crowd is participants who have a place in a round. One whose place has lapsed does not count.
type Crowd struct {
	// Count is how many there are.
	Count int
	// Places are the first 100 of them, in the order in which they end if nobody renews them.
	Places []Place
}

// Place is the place of a participant.
type Place struct {
	// Owner is the id of the participant. Each call of Await or Enter has another one.
	Owner string
	// Client is the id of its client, see redlatch.Client.ID.
	Client string
	// Left is for how long the place is good unless it is renewed, as it is about once a second: 5 s at most, or its client's
	// lease if that is less.
	Left time.Duration
}

// Info returns how many participants the barrier has, whatever number b expects, and who of them has arrived. It changes
// nothing, so that a round that is to break breaks at the next call of a participant.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. redlatch.ErrInvalid is for a bad name, redlatch.ErrWrongType for keys that hold
// something else. It costs one round trip, and time in Redis in proportion to what it lists, which is bounded: less than a
// millisecond.
func (b *Barrier) Info(ctx context.Context) (Info, error) { return b.rounds.info(ctx) }

// Info returns how many participants the barrier has, whatever number d expects, and who of them has arrived, is inside
// and leaves. It tells nothing of d itself, which may be outside. Otherwise it is like [Barrier.Info].
func (d *DoubleBarrier) Info(ctx context.Context) (Info, error) { return d.rounds.info(ctx) }

func (r *rounds) info(ctx context.Context) (Info, error) {
	if r.err != nil {
		return Info{}, r.wrap("info", r.err)
	}
	c, err := r.manager.core.Read(ctx, r.keys.inspect)
	if err != nil {
		return Info{}, r.wrap("info", err)
	}
	row := c.Row()
	info := Info{Name: r.manager.core.UserName(r.name), Double: r.keys.inside != "", Participants: int(row.Int()), Arrived: crowd(row)}
	if info.Double {
		info.Inside, info.Leaving = crowd(row), crowd(row)
	}
	return info, r.wrap("info", row.Err())
}

// crowd reads participants from the reply of inspect.lua.
func crowd(row *script.Row) Crowd {
	c := Crowd{Count: int(row.Int())}
	for range row.Int() {
		p := Place{Owner: row.Text(), Left: core.Left(row.Int())}
		p.Client = core.ClientOf(p.Owner)
		c.Places = append(c.Places, p)
	}
	return c
}
