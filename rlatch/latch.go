package rlatch

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/names"
	"github.com/redlatch/redlatch/internal/script"
)

// maxParticipant is the longest name of a participant, in bytes.
const maxParticipant = 512

// Latch is a count that goes down to zero and then releases everyone who waits for it. It has no state: any number of
// goroutines may use one, and two of the same name from one client are the same latch. It is safe for concurrent use.
//
// Every operation takes effect exactly once. One whose reply is lost is repeated until it is answered, ctx is done, the
// client closes, or, if ctx has no deadline, the call timeout is over (see redlatch.WithCallTimeout). After
// redlatch.ErrUnknown it may have taken effect, or may still; after any other error it has not. If Redis refuses the
// repetition for good, as without permission, the call returns redlatch.ErrUnknown and the repetition goes on in the
// background. Each costs one round trip; concurrent ones share one. A name that another kind of object uses is
// redlatch.ErrWrongType. A name with a hash tag is redlatch.ErrInvalid: the wire format would put its channel into
// another slot. Counts are from 1 to 2³¹-1.
type Latch struct {
	hall *manager
	key  string
	err  error
}

// manager is what a client knows of its latches. It is safe for concurrent use.
type manager struct {
	core  *core.Core
	book  *counter.Manager
	gates *names.Table[*gate]
}

func newManager(e *core.Core) *manager {
	return &manager{core: e, book: counter.New(e, kind()), gates: names.New[*gate]()}
}

// New returns the named latch of a client. It is for the client: users call GetCountDownLatch there.
func New(c *core.Core, name string) *Latch {
	h := core.Manager(c, newManager)
	l := &Latch{hall: h, key: h.core.Prefix + name}
	switch {
	case name == "":
		l.err = core.CheckName("")
	case core.CheckName(l.key) != nil:
		l.err = core.CheckName(l.key)
	case strings.Contains(l.key, "{"):
		l.err = fmt.Errorf("%w: the name %q of a latch has a hash tag", errs.ErrInvalid, l.key)
	}
	return l
}

// Name returns the latch's name as it was given to the client.
func (l *Latch) Name() string { return l.hall.core.UserName(l.key) }

// TrySetCount sets the count if there is none, and reports whether it did. It forgets the participants of an earlier use.
func (l *Latch) TrySetCount(ctx context.Context, n int) (bool, error) {
	set, err := l.do(ctx, checkCount(n), setTo(n))
	return set, l.wrap("try set count", err)
}

// CountDown counts down by one. At zero the latch opens: everybody who waits in any process goes on. Without a count it changes nothing.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.do(ctx, nil, countBy(1))
	return l.wrap("count down", err)
}

// CountDownBy counts down by n at once, or to zero if the count is less. It is otherwise as CountDown.
func (l *Latch) CountDownBy(ctx context.Context, n int) error {
	_, err := l.do(ctx, checkCount(n), countBy(n))
	return l.wrap("count down by", err)
}

// CountDownOnce counts down by one for a participant, and reports whether it did: the same one counts once until the count is set again,
// however often and from whichever process it says so. Without a count it changes nothing and reports false. A participant is named by 1 to 512
// bytes.
func (l *Latch) CountDownOnce(ctx context.Context, participant string) (counted bool, err error) {
	var bad error
	if n := len(participant); n < 1 || n > maxParticipant {
		bad = fmt.Errorf("%w: the participant has %d bytes, not 1 to %d", errs.ErrInvalid, n, maxParticipant)
	}
	counted, err = l.do(ctx, bad, countOnce(participant))
	return counted, l.wrap("count down once", err)
}

// Count returns the count: 0 for a latch that has none.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout),
// and then returns redlatch.ErrUnavailable.
func (l *Latch) Count(ctx context.Context) (int, error) {
	if err := l.bad(); err != nil {
		return 0, l.wrap("count", err)
	}
	c, err := l.hall.core.Read(ctx, func() *script.Call { return countOf(l.key) })
	if err != nil {
		return 0, l.wrap("count", err)
	}
	n, _, err := counted(c)
	return n, l.wrap("count", err)
}

// Await blocks until the latch opens: until its count is zero, or it is deleted. Without a count it returns nil at once: await a latch
// after its count was set. When the latch is used again, who waited for its first zero goes on, and who came later waits for the next.
//
// It also ends with ctx, when the client closes (redlatch.ErrClosed), and with an error that cannot pass, such as a missing
// permission; at first a refused connection too. What Redis cannot do just now (it loads, or fails over) and transport errors are retried
// for one lease of the client.
//
// It costs one round trip, which calls that begin together share. All that wait in one client cost one more when there may be news, and one
// about every second.
func (l *Latch) Await(ctx context.Context) error {
	err := l.check(ctx)
	if err == nil {
		err = l.hall.await(ctx, l.key, opening)
	}
	return l.wrap("await", err)
}

// AwaitSet blocks until the latch has a count, and returns nil at once if it has one. Call it before Await where the count may
// not be set yet. A count that was set and reached zero meanwhile counts. It ends, fails and costs as Await does.
func (l *Latch) AwaitSet(ctx context.Context) error {
	err := l.check(ctx)
	if err == nil {
		err = l.hall.await(ctx, l.key, setting)
	}
	return l.wrap("await set", err)
}

// Delete takes the count away and lets everybody through who waits. It reports whether there was a count.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	deleted, err := l.do(ctx, nil, deleteIt)
	return deleted, l.wrap("delete", err)
}

// do carries out an operation, unless its argument is bad.
func (l *Latch) do(ctx context.Context, bad error, code string) (bool, error) {
	if l.bad() == nil && ctx != nil && bad != nil {
		return false, bad
	}
	if err := l.check(ctx); err != nil {
		return false, err
	}
	done, err := l.hall.book.Do(ctx, l.key, counter.Ask{Code: code})
	return done == 1, err
}

// bad returns what is wrong with the latch itself.
func (l *Latch) bad() error { return l.err }

// check judges a call before any I/O. A done ctx wins over everything but bad arguments.
func (l *Latch) check(ctx context.Context) error {
	switch {
	case l.bad() != nil:
		return l.bad()
	case ctx == nil:
		return core.ErrNilContext
	case ctx.Err() != nil:
		return ctx.Err()
	case l.hall.core.Closed():
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
