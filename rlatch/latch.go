package rlatch

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
)

// maxParticipant is the longest name of a participant, in bytes.
const maxParticipant = 512

// longestTTL is the longest time for which a latch stays open.
const longestTTL = 10 * 365 * 24 * time.Hour

// Latch is a count that goes down to zero and then releases everyone who waits for it. It has no state: any number of
// goroutines may use one, and two of the same name from one client are the same latch. It is safe for concurrent use.
//
// Every operation takes effect at most once, and exactly once if it succeeds, also if its reply is lost and it is
// repeated. It ends with the reply, when ctx is done, when the client closes (redlatch.ErrClosed), after the call
// timeout if ctx has no deadline (10 s by default, see redlatch.WithCallTimeout), and at the latest when it has failed
// for one lease of the client (30 s by default). A refused connection ends it at once. The error is redlatch.ErrUnknown
// if the operation may have taken effect, or may still, and redlatch.ErrUnavailable if it took no effect because Redis
// did not answer. If Redis refuses a repetition for good, for example without permission, it is redlatch.ErrUnknown as
// well, and the repetition goes on in the background. Each operation costs one round trip; concurrent ones share one.
// Await and AwaitSet document their own bounds.
//
// A name that another kind of object uses is redlatch.ErrWrongType. A name with a hash tag is redlatch.ErrInvalid: the
// wire format would put its channel into another slot. Counts are from 1 to 2³¹-1.
type Latch struct {
	manager *manager
	key     string
	err     error
}

// manager is a client's state for its latches. It is safe for concurrent use.
type manager struct {
	core    *core.Core
	counter *counter.Manager
	queues  *core.Table[*waitQueue]
}

func newManager(e *core.Core) *manager {
	m := &manager{core: e, counter: counter.New(e, kind()), queues: core.NewTable[*waitQueue]()}
	presence.Of(e).Add(m)
	return m
}

// Holds returns nothing: a latch is not held.
func (m *manager) Holds() []presence.Hold { return nil }

// Waits returns the calls that have found the latch closed, and wait.
func (m *manager) Waits() []presence.Wait {
	var all []presence.Wait
	m.queues.Each(func(q *waitQueue) {
		for w := range q.waiters {
			if w.seen {
				all = append(all, presence.Wait{Kind: kinds.Latch, Name: m.core.UserName(q.key), Since: m.core.Clock.Time(w.since)})
			}
		}
	})
	return all
}

// New returns the countdown latch with this name, as client.GetCountDownLatch does. client is a *redlatch.Client. It
// does no I/O and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string) *Latch {
	c := core.Of(client)
	m := core.Manager(c, newManager)
	l := &Latch{manager: m, key: m.core.Prefix + name}
	if l.err = core.CheckUserName(name, l.key); l.err == nil && strings.Contains(l.key, "{") {
		l.err = fmt.Errorf("%w: the latch name %q has a hash tag", errs.ErrInvalid, l.key)
	}
	return l
}

// Name returns the latch's name as it was given to the client.
func (l *Latch) Name() string { return l.manager.core.UserName(l.key) }

// TrySetCount sets the count to n if there is none, and reports whether it did. It deletes the participants of an
// earlier use. A participant that sets the count itself takes TrySetCountOnce, or waits for ever if it restarts after
// the latch has opened.
func (l *Latch) TrySetCount(ctx context.Context, n int) (bool, error) {
	set, err := l.do(ctx, checkCount(n), setTo(n))
	return set, l.wrap("try set count", err)
}

// TrySetCountOnce is TrySetCount for participants that each set the count, count down once and wait: once the latch has
// opened, it stays open for ttl, in which TrySetCountOnce sets no count and returns false. So one that restarts finds
// the latch open, in CountDownOnce, Await and AwaitSet. The ttl is that of the call that has set the count, and from 1 ms
// to ten years; after Delete it does not matter.
//
// TrySetCount, and trySetCount in Java, set a count at any time. Of a latch that Java opens, the ttl begins when an
// operation here finds it open.
func (l *Latch) TrySetCountOnce(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	bad := checkCount(n)
	if bad == nil && (ttl < time.Millisecond || ttl > longestTTL) {
		bad = fmt.Errorf("%w: the TTL %v is not between 1ms and ten years", errs.ErrInvalid, ttl)
	}
	set, err := l.do(ctx, bad, setOnceTo(n, ttl))
	return set, l.wrap("try set count once", err)
}

// CountDown decrements the count by one. At zero the latch opens and releases all waiters in all processes. Without a
// count it changes nothing. A repeated call decrements once more; use [Latch.CountDownOnce] to count each participant
// once.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.do(ctx, nil, countBy(1))
	return l.wrap("count down", err)
}

// CountDownBy decrements the count by n in one step, or to zero if the count is less. Otherwise it is like CountDown.
func (l *Latch) CountDownBy(ctx context.Context, n int) error {
	_, err := l.do(ctx, checkCount(n), countBy(n))
	return l.wrap("count down by", err)
}

// CountDownOnce decrements the count by one for a participant, and reports whether it did. A repeated call of the same
// participant, from any process, changes nothing and returns false until the count is set again. Without a count it
// also returns false. The participant's name is 1 to 512 bytes long.
func (l *Latch) CountDownOnce(ctx context.Context, participant string) (counted bool, err error) {
	var bad error
	if n := len(participant); n < 1 || n > maxParticipant {
		bad = fmt.Errorf("%w: the participant has %d bytes, not 1 to %d", errs.ErrInvalid, n, maxParticipant)
	}
	counted, err = l.do(ctx, bad, countOnce(participant))
	return counted, l.wrap("count down once", err)
}

// Count returns the count: 0 if there is none.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable. It costs one round trip.
func (l *Latch) Count(ctx context.Context) (int, error) {
	n, err := l.count(ctx)
	return n, l.wrap("count", err)
}

func (l *Latch) count(ctx context.Context) (int, error) {
	if err := l.bad(); err != nil {
		return 0, err
	}
	c, err := l.manager.core.Read(ctx, func() *script.Call { return countOf(l.key) })
	if err != nil {
		return 0, err
	}
	f, err := counted(c)
	return f.count, err
}

// Info is the state of a latch in Redis at one moment.
type Info struct {
	// Name is the latch's name.
	Name string
	// Count is the count: 0 if there is none.
	Count int
	// Waiting is the number of clients that wait, however many goroutines of each. A client that stopped to wait may
	// count for a second more. It is -1 if it is not known: the user may not run PUBSUB, or a node did not answer.
	Waiting int
}

// Info returns the count and how many clients wait. It blocks and fails as Count does, and costs two round trips, on a
// cluster three, one of them to all nodes at once.
func (l *Latch) Info(ctx context.Context) (Info, error) {
	ctx, end := l.manager.core.Bound(ctx)
	defer end()
	n, err := l.count(ctx)
	if err != nil {
		return Info{}, l.wrap("info", err)
	}
	return Info{l.Name(), n, presence.Listening(ctx, l.manager.core, channel(l.key))}, nil
}

// Await blocks until the latch opens: its count reaches zero, or it is deleted. Without a count it returns nil at once;
// use AwaitSet first where the count may not be set. If the latch is used again, a waiter returns at the first opening
// after its first answered read.
//
// It also ends when ctx is done, when the client closes (redlatch.ErrClosed), or when an error occurs that will not
// pass, such as a missing permission; on the first attempt also a refused connection. It retries other connection
// errors, and what Redis cannot do at the moment (it is loading or failing over), for one lease in a row, and then
// returns redlatch.ErrUnavailable. If Redis did not answer when ctx ended, the error of ctx is joined with
// redlatch.ErrUnavailable.
//
// It costs one round trip, which concurrent calls share. All waiters of a client together cost one more for each
// message about the latch, and about one a second.
func (l *Latch) Await(ctx context.Context) error {
	err := l.check(ctx)
	if err == nil {
		err = l.manager.await(ctx, l.key, opening)
	}
	return l.wrap("await", err)
}

// AwaitSet blocks until the latch has a count, and returns nil at once if it has one. Call it before Await where the
// count may not be set. A count that was set and has reached zero since the first read also ends the wait, and so does a
// latch that stays open, see TrySetCountOnce. It ends, fails and costs as Await does.
func (l *Latch) AwaitSet(ctx context.Context) error {
	err := l.check(ctx)
	if err == nil {
		err = l.manager.await(ctx, l.key, setting)
	}
	return l.wrap("await set", err)
}

// Delete deletes the count, and reports whether there was one. A latch that stays open does so no longer. Waiters in Await return nil.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	deleted, err := l.do(ctx, nil, deleteIt)
	return deleted, l.wrap("delete", err)
}

// do runs an operation, unless its argument is bad.
func (l *Latch) do(ctx context.Context, bad error, code string) (bool, error) {
	if l.bad() == nil && ctx != nil && bad != nil {
		return false, bad
	}
	if err := l.check(ctx); err != nil {
		return false, err
	}
	done, err := l.manager.counter.Do(ctx, l.key, counter.Request{Code: code})
	return done == 1, err
}

// bad returns the error of the name.
func (l *Latch) bad() error { return l.err }

// check validates a call before any I/O. A done ctx takes precedence over everything except bad arguments.
func (l *Latch) check(ctx context.Context) error {
	switch {
	case l.bad() != nil:
		return l.bad()
	case ctx == nil:
		return core.ErrNilContext
	case ctx.Err() != nil:
		return ctx.Err()
	case l.manager.core.Closed():
		return errs.ErrClosed
	}
	return nil
}

func checkCount(n int) error {
	if n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("%w: count %d is not between 1 and %d", errs.ErrInvalid, n, math.MaxInt32)
	}
	return nil
}

func (l *Latch) wrap(verb string, err error) error { return errs.Wrap("rlatch", verb, l.Name(), err) }
