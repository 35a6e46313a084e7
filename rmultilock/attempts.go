package rmultilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

// ask sends attempts for the missing parts.
func (h *hold) ask(ctx context.Context, o *locker.Options) {
	var names []*locker.Name
	var sent []int
	for _, i := range h.toAsk() {
		m := h.lock.members[i]
		if m.sendable(ctx) {
			names, sent = append(names, m.name), append(sent, i)
			continue
		}
		go func() { // ends with the attempt, which does not wait for the lock
			got, err := m.locker.TryLock(ctx, only(o))
			h.answer(i, heldBy(got), err)
		}()
	}
	attempts := locker.AttemptAll(ctx, names, o, func(i int, got *lease.Hold, err error) {
		if err != nil {
			h.answer(sent[i], nil, err)
			return
		}
		h.answer(sent[i], got, nil)
	})
	h.mu.Lock()
	unwanted := h.state.isOver()
	for i, a := range attempts {
		if p := &h.parts[sent[i]]; p.state.inFlight() {
			p.attempt = a
		}
	}
	h.mu.Unlock()
	if unwanted {
		for _, a := range attempts {
			a.GiveUp()
		}
	}
}

// toAsk marks the missing parts as asked, except those whose error is final, and returns them.
func (h *hold) toAsk() (parts []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.parts {
		if p := &h.parts[i]; p.state == missing && !isFinal(p.err) && !h.state.isOver() {
			p.state = asked
			if h.state == holding {
				p.state = askedAgain
			}
			h.asked++
			parts = append(parts, i)
		}
	}
	return parts
}

// answer takes the result of an attempt for one of the locks. It releases a lock that is no longer wanted.
func (h *hold) answer(i int, got held, err error) {
	h.mu.Lock()
	before := h.parts[i].state
	if before.inFlight() {
		h.asked--
	}
	h.parts[i] = part{err: err}
	unwanted := h.state.isOver()
	// Before a grant that late another client may have had the lock. One soon after the others is usual: to check the others for each
	// would cost as much as the acquisition.
	later := before == askedAgain || h.state == holding && time.Now().After(h.prompt)
	switch {
	case got == nil:
		h.rejoinLocked()
	case !unwanted:
		h.joinLocked(i, got, later)
	}
	h.mu.Unlock()
	h.wake()
	switch {
	case got == nil:
	case unwanted:
		drop([]held{got})
	default:
		got.OnEnd(func(cause error) { h.partEnded(i, got, cause) })
		if later {
			h.Verify() // so that the others were confirmed after this one joined; see enoughSinceLocked
		}
	}
}

// joinLocked makes a part live. later tells that the others have been held for some time.
func (h *hold) joinLocked(i int, got held, later bool) {
	p := &h.parts[i]
	p.state, p.held = live, got
	h.live++
	if later {
		p.joined = time.Now()
	}
}

// wake tells await of an answer.
func (h *hold) wake() {
	select {
	case h.answered <- struct{}{}:
	default: // a token is there already
	}
}

// progress says how far the attempts of a round are.
type progress uint8

const (
	undecided progress = iota
	hopeless           // too many were refused, and some are still in flight
	decided            // enough were granted, or none is in flight
)

func (h *hold) progress() progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.live >= h.lock.quorum || h.asked == 0:
		return decided
	case h.live+h.asked < h.lock.quorum:
		return hopeless
	}
	return undecided
}

// await waits until the attempts are decided, ctx is done, or the limit is over. Once they are hopeless it waits briefly
// for the remaining answers: to cancel an attempt costs more than to await its answer.
func (h *hold) await(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	asked := time.Now()
	end := asked.Add(limit)
	for last := undecided; ; {
		now := h.progress()
		if now == decided {
			return
		}
		if now != last {
			timer.Reset(min(brief(time.Since(asked)), time.Until(end)))
			last = now
		}
		select {
		case <-h.answered:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// brief is how long a round goes on for little: for a busy lock while it holds others, or for the last answers when they decide nothing
// any more. It grows with the time of a reply.
func brief(reply time.Duration) time.Duration { return min(shortWait+4*reply, longestWait) }

var errLate = fmt.Errorf("%w: %w: a lease ended before enough answers had come", errs.ErrNotAcquired, errs.ErrUnavailable)

// failure returns the first part of a multi-lock that was not acquired, and why. A final error comes before all others, and a refusal
// before what is not known: the multi-lock was certainly not acquired then.
func (h *hold) failure() (member int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	worst := 0
	for i, p := range h.parts {
		if p.held != nil {
			continue
		}
		rank, why := 2, p.err
		switch {
		case why == nil:
			rank, why = 1, lease.ErrNoAnswer // the error of another part says more
		case errors.Is(why, errs.ErrLost): // its lease ended before the others had answered
			why = errLate
		case endsCall(why):
			rank = 4
		case errors.Is(why, errs.ErrNotAcquired):
			rank = 3
		}
		if rank > worst {
			worst, member, err = rank, i, why
		}
	}
	return member, err
}

// shortfall returns how many locks of a RedLock were granted, and why that is not enough: a final error if such errors
// alone prevent a majority, ErrUnavailable if too few servers answered, otherwise ErrNotAcquired.
func (h *hold) shortfall() (granted int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live >= h.lock.quorum {
		return h.live, nil
	}
	var final, failure error
	finals, failures := 0, 0
	for _, p := range h.parts {
		switch {
		case p.held != nil:
		case p.err == nil:
			failures, failure = failures+1, cmp.Or(failure, script.ErrNoAnswer)
		case endsCall(p.err):
			finals, final = finals+1, p.err
		case !errors.Is(p.err, errs.ErrNotAcquired):
			failures, failure = failures+1, p.err
		}
	}
	spare := len(h.parts) - h.lock.quorum
	switch {
	case finals > spare:
		return h.live, final
	case finals+failures > spare:
		if failure == nil {
			failure = final
		}
		return h.live, fmt.Errorf("%w: %d of %d locks failed: %w", errs.ErrUnavailable, finals+failures, len(h.parts), failure)
	}
	return h.live, errs.ErrNotAcquired
}
