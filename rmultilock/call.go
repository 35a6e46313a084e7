package rmultilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
)

const (
	shortWait    = 20 * time.Millisecond   // for a busy lock while others are held, plus four times the time of a reply,
	longestWait  = 200 * time.Millisecond  // at most: a reply may have waited for replicas
	answerLimit  = 3500 * time.Millisecond // for the replies to a multi-lock's attempts; connections have a bound of their own
	releaseLimit = 100 * time.Millisecond  // for the releases after a failed round

	masterShare = 10                     // a RedLock waits for a master for this part of the lease at most,
	masterLeast = 20 * time.Millisecond  // at least
	masterMost  = 500 * time.Millisecond // and at most
)

// mode says what a call does about a busy lock.
type mode uint8

const (
	blocks mode = iota // it waits
	tries              // it returns ErrNotAcquired
)

// nobody stands for no member.
const nobody = -1

// call is one acquiring call. It makes rounds, and holds nothing between two rounds.
type call struct {
	lock    *Lock
	ctx     context.Context //nolint:containedctx // of the call, which ends before it
	outer   *hold
	isPart  bool           // of a hold of several locks itself
	options locker.Options // those of each lock
	mode    mode
	start   time.Time
	limit   time.Time // when the wait is over, or the call timeout of a call that does not wait; zero for no limit

	// Of a multi-lock.
	busy  int   // the member that ended the last round, which the next one waits for before it attempts the others; nobody at first
	fatal error // the error of that wait, after which the member's own Lock has given up

	masterLimit time.Duration // of a RedLock's wait for a master; a round that is cut below it says nothing about the servers

	// Of a RedLock.
	granted int    // locks that the last round was granted
	before  *hold  // of the round before, which may have heard of errors since; nil in the first one
	queue   *queue // nil for a call that does not stand in one

	asked  time.Time // when the round asked for the locks
	failed time.Time // since when answers have been lacking: at first since the start; zero once a round had those that it needs
	last   error     // of the last round that lacked them; of one that was cut short only if no other has said more
}

func newCall(ctx context.Context, l *Lock, m mode, o *locker.Options, outer *hold) *call {
	c := &call{lock: l, ctx: ctx, outer: outer, isPart: o.Part, options: *o, mode: m, start: time.Now(), busy: nobody}
	c.failed = c.start
	limit := time.Duration(0)
	switch {
	case o.Wait != nil && *o.Wait > 0:
		c.mode, limit = blocks, *o.Wait
	case o.Wait != nil || m == tries:
		c.mode, limit = tries, l.core.Limit(ctx)
	}
	if limit > 0 {
		c.limit = c.start.Add(limit)
	}
	c.options.Wait, c.options.Taken, c.options.ReleaseOnDone, c.options.Part = nil, nil, false, true
	c.masterLimit = min(max(o.Length(l.core)/masterShare, masterLeast), masterMost)
	return c
}

// run makes rounds until one of them acquires the lock or the call has to end.
func (c *call) run() (*hold, error) {
	attempt := c.all
	if c.lock.kind == red {
		attempt = c.majority
	}
	leave, err := c.join()
	defer leave()
	if err != nil {
		return nil, err
	}
	for round := 0; ; round++ {
		h := c.newHold()
		c.asked = time.Now()
		err := attempt(h)
		if err == nil {
			err = h.begin()
		}
		c.note(err)
		if err == nil {
			return h, nil
		}
		h.abandon(c.ctx, c.releaseLimit())
		if ended := c.end(round, err); ended != nil {
			return nil, ended
		}
		c.pause(round)
		if ended := c.over(); ended != nil {
			return nil, c.because(ended)
		}
	}
}

// all attempts all locks: first the one that was busy in the last round, or that is busy here, without a limit of its own, then the others.
// For a busy one later in the order it waits briefly, for an earlier one not at all: the holder of that one may wait
// for the first lock, and of two calls that hold what the other needs one has to yield at once.
func (c *call) all(h *hold) error {
	if c.busy == nobody {
		c.busy = c.busyHere()
	}
	waited := c.busy
	if waited != nobody {
		if c.mode == tries { // no need to ask for the others
			return errs.ErrNotAcquired
		}
		if err := c.waitFor(h, waited, c.left()); err != nil {
			if !errors.Is(err, errs.ErrNotAcquired) && !script.Refused(err) { // which ends the member's own Lock at its first attempt
				c.fatal = err
			}
			return err
		}
	}
	c.asked = time.Now()
	h.ask(c.ctx, &c.options)
	h.await(c.ctx, c.within(answerLimit))
	short := brief(time.Since(c.asked))
	for {
		i, err := h.failure()
		if err == nil || errors.Is(err, errLate) { // none was busy
			c.busy = nobody
			return err
		}
		c.busy = i
		if waited == nobody || i < waited || !errors.Is(err, errs.ErrNotAcquired) {
			return err
		}
		wait := c.within(short)
		if err := c.waitFor(h, i, &wait); err != nil {
			return err
		}
	}
}

// busyHere returns the first lock that this client knows to be taken, or for which, if the call may wait, others of its calls
// wait; nobody if there is none.
func (c *call) busyHere() int {
	for i, m := range c.lock.members {
		if m.sendable(c.ctx) && (m.name.TakenHere() || c.mode == blocks && m.name.WaitedFor()) {
			return i
		}
	}
	return nobody
}

// waitFor acquires one lock within the given time; without a limit if wait is nil.
func (c *call) waitFor(h *hold, i int, wait *time.Duration) error {
	o := c.options
	o.Wait = wait
	held, err := c.lock.members[i].locker.Lock(c.ctx, only(&o))
	if err == nil {
		c.failed, c.last = time.Time{}, nil // also after a long wait
	}
	h.answer(i, heldBy(held), err)
	return err
}

// majority attempts all locks at the same time until a majority is acquired.
func (c *call) majority(h *hold) (err error) {
	spare := len(c.lock.members) - c.lock.quorum
	for _, m := range c.lock.members {
		if m.sendable(c.ctx) && m.name.TakenHere() && !m.name.Closed() {
			spare--
		}
	}
	if spare < 0 && c.mode == blocks { // no need to ask for the others
		return errs.ErrNotAcquired
	}
	limit := c.masterLimit
	if c.mode == tries { // all its rounds together have the time of one
		limit = max(time.Until(c.start.Add(limit)), time.Millisecond)
	}
	h.ask(c.ctx, &c.options)
	h.await(c.ctx, c.within(limit))
	c.granted, err = h.shortfall()
	if c.before != nil && script.CutOff(err) { // a refused connection may take longer than a round
		if _, late := c.before.shortfall(); unanswered(late) && !script.CutOff(late) {
			err = late
		}
	}
	c.before = h
	return err
}

// note keeps since when answers have been lacking, and why. A round that the end of the call cuts short says nothing about the servers.
func (c *call) note(err error) {
	if !unanswered(err) {
		c.failed, c.last = time.Time{}, nil
		return
	}
	if c.last == nil || !script.CutOff(err) {
		c.last = err
	}
	short := c.over() != nil && time.Since(c.asked) < c.masterLimit
	if c.failed.IsZero() && !short {
		c.failed = time.Now()
	}
}

// end returns the error that ends the call after a failed round; nil if another round follows.
func (c *call) end(round int, err error) error {
	switch {
	case c.ctx.Err() != nil:
		return c.because(c.ctx.Err())
	case c.fatal != nil || endsCall(err):
		return err
	case c.mode == tries && c.lock.kind == multi:
		return err
	case c.mode == tries && c.isSplit(round, err):
		return nil
	case c.mode == tries, c.expired():
		return c.because(errs.ErrNotAcquired)
	case round > 0 && c.lacking(): // a lease may be shorter than the first round
		if c.lock.kind == red {
			return c.because(errs.ErrNotAcquired)
		}
		return c.because(errs.ErrUnavailable)
	}
	return nil
}

// lacking reports whether answers have been lacking for a lease.
func (c *call) lacking() bool { return !c.failed.IsZero() && time.Since(c.failed) > c.lock.core.Lease }

// isSplit reports whether to repeat a round of a RedLock's single attempt: the masters may be split among callers, or
// still be releasing the rest of a hold.
func (c *call) isSplit(round int, err error) bool {
	return c.granted > 0 && round < splitTries && time.Since(c.start) < c.masterLimit && !c.expired() && !errors.Is(err, errs.ErrUnavailable)
}

// splitTries is how often a single attempt of a RedLock is repeated after some masters granted it.
const splitTries = 2

// because joins the error that ends a call with why answers are lacking, if they are.
func (c *call) because(end error) error {
	if c.failed.IsZero() {
		return end
	}
	last := cmp.Or(c.last, script.ErrNoAnswer)
	if !errors.Is(last, errs.ErrUnavailable) {
		last = fmt.Errorf("%w: %w", errs.ErrUnavailable, last)
	}
	if errors.Is(last, end) {
		return last
	}
	return fmt.Errorf("%w: %w", end, last)
}

// unanswered reports whether the error of a round, or of a lock, is that servers did not answer.
func unanswered(err error) bool {
	return errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknown) && !errors.Is(err, errs.ErrNotAcquired)
}

// isFinal reports whether an error will not pass by itself.
func isFinal(err error) bool {
	for _, final := range []error{errs.ErrInvalid, errs.ErrWrongType, errs.ErrHeld, errs.ErrUpgrade, errs.ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// endsCall reports whether an error ends a call that acquires: it is final, or Redis refuses the call for a reason that stays, such as a
// permission or a full memory. A hold asks again for parts that Redis has refused.
func endsCall(err error) bool {
	refused := !errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnwritable) && !errors.Is(err, errs.ErrNotAcquired)
	return isFinal(err) || script.Final(err) && refused
}

// only returns options as one option.
func only(o *locker.Options) rlock.Option { return locker.Set(func(to *locker.Options) { *to = *o }) }

// left returns the rest of the call's time, at least 1 ms; nil without a limit.
func (c *call) left() *time.Duration {
	if c.limit.IsZero() {
		return nil
	}
	left := max(time.Until(c.limit), time.Millisecond)
	return &left
}

// within returns d, or the rest of the call's time if that is less.
func (c *call) within(d time.Duration) time.Duration {
	if left := c.left(); left != nil {
		d = min(d, *left)
	}
	return d
}

// releaseLimit returns how long the call waits for the releases after a round: also at the end of a wait.
func (c *call) releaseLimit() time.Duration {
	if c.mode == tries {
		return c.within(releaseLimit)
	}
	return releaseLimit
}

// expired reports whether the call's time is over.
func (c *call) expired() bool { return !c.limit.IsZero() && !time.Now().Before(c.limit) }

// over returns the error of a call whose time is over; nil if it is not.
func (c *call) over() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.expired() {
		return errs.ErrNotAcquired
	}
	return nil
}

// pause waits for a random time before the next round, longer after more rounds, or until the lock is released here.
func (c *call) pause(round int) {
	longest := min(4*time.Millisecond<<min(round, 6), 200*time.Millisecond)
	var freed chan struct{}
	if c.queue != nil {
		freed = c.queue.freed
		c.lock.manager.mu.Lock()
		c.queue.since, c.queue.last = c.failed, c.last
		c.lock.manager.mu.Unlock()
	}
	c.receive(freed, c.within(time.Millisecond+rand.N(longest)))
}
