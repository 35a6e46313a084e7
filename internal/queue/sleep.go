package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	safetyLeast = 10 * time.Second // between the looks of a lane that hears nothing
	safetyMost  = 15 * time.Second
	listenTime  = safetyMost + 5*time.Second // for how long Redis counts on a lane that does not come back
	spareDelay  = 300 * time.Millisecond     // by which a second client looks in after the one that should
)

// sleep asks Redis when to look again, and does so then.
func (l *lane) sleep() {
	l.join()
	l.mu.Lock()
	listens := time.Duration(0)
	if l.hears {
		listens = listenTime
	}
	l.again, l.asking = false, true // whatever is due by now, the answer tells
	l.mu.Unlock()
	h := l.hub
	ctx := context.Background() //nolint:forbidigo // bounded by the batcher
	call := h.keys.wait(h.core.ID, listens)
	left := int64(0)
	err := h.registry.send(ctx, call)
	if err == nil {
		left, err = call.Int()
	}
	l.mu.Lock()
	l.asking = false
	if err != nil {
		l.mu.Unlock()
		l.failed(err)
		return
	}
	defer l.mu.Unlock()
	if left != 0 { // else Redis has not looked at who waits
		l.listed = listens > 0
	}
	if l.wantedLocked() == 0 || left == 0 || l.again {
		l.pokeLocked(true)
		return
	}
	d := safetyLeast + rand.N(safetyMost-safetyLeast)
	due := time.Duration(left) * time.Microsecond
	l.peek = left < 0 || d < due
	if !l.peek {
		d = due
	}
	l.asleep = true
	l.setTimerLocked(d)
}

func (l *lane) setTimerLocked(d time.Duration) {
	l.stopTimerLocked()
	if !l.closed {
		l.wakeAt = l.hub.core.Clock.Now() + d
		l.timer = time.AfterFunc(d, l.poke)
	}
}

func (l *lane) stopTimerLocked() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// join makes the lane hear its channel.
func (l *lane) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member != nil || l.closed {
		return
	}
	l.member, l.hears = l.hub.core.Router.Join(l.hub.keys.channel+l.hub.core.ID, l)
}

// Subscribed has the lane look again: what was announced before was not heard.
func (l *lane) Subscribed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hears = true
	l.peek = l.asleep && l.failing == 0
	l.pokeLocked(len(l.takers) > 0)
}

// Message brings the time until this lane should look, in microseconds, with a plus sign for one that is only the spare.
func (l *lane) Message(payload string) {
	left, err := strconv.ParseInt(payload, 10, 64)
	if err != nil {
		return
	}
	h := l.hub
	if hook := h.core.Hooks.Woken; hook != nil && left == 0 && l.waits() {
		hook("rdelayedqueue", h.name[len(h.core.Prefix):])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wantedLocked() == 0 {
		l.listed = true // Redis hears that this lane wants nothing, and somebody else is told
	}
	sleeps := left > 0 && l.asleep && l.wantedLocked() > 0
	if sleeps && strings.HasPrefix(payload, "+") {
		if d := time.Duration(left) * time.Microsecond; h.core.Clock.Now()+d < l.wakeAt {
			l.peek = false
			l.setTimerLocked(d)
		}
		return
	}
	// Who is told first has to say that it heard: a cluster may count it as deaf, and then tells it no more. It also finds
	// a spare.
	l.peek = sleeps
	l.pokeLocked(true)
}

// waits reports whether anybody wants messages.
func (l *lane) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.takers) > 0
}

// failed counts a try that failed, tells those whom it concerns, and sets the time of the next one.
func (l *lane) failed(err error) {
	err = core.Explain(err)
	final := script.Judge(err) == script.NotDone && !script.Transient(err) || errors.Is(err, ErrLayout)
	now := l.hub.core.Clock.Now()
	l.mu.Lock()
	if l.failing == 0 {
		l.since = now
	}
	l.failing++
	long := now-l.since > l.hub.core.Lease
	var told, left []*taker
	for _, t := range l.takers {
		switch ends := final || script.Refused(err) && !t.tried || long; {
		case t.stays:
			told, left = append(told, t), append(left, t)
		case ends:
			told = append(told, t)
		default:
			left = append(left, t)
		}
	}
	l.takers = left
	l.peek = false
	if len(left) == 0 {
		l.listed = false // it will be found out by those that wait
	}
	if len(left) > 0 || l.lost != 0 {
		l.asleep = true
		l.setTimerLocked(core.Jitter(pause(l.failing)))
	}
	l.mu.Unlock()
	for _, t := range told {
		t.fail(err)
	}
}

// close ends all waits.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.stopTimerLocked()
	takers := l.takers
	l.takers = nil
	lost := l.lost
	l.lost = 0
	retires := l.listed && !l.running // a goroutine that is at it sees to it itself
	if l.member != nil {
		l.member.Leave()
		l.member = nil
	}
	l.mu.Unlock()
	for _, t := range takers {
		t.fail(errs.ErrClosed)
	}
	h := l.hub
	if lost != 0 {
		h.registry.crew.Go(func() { h.recover(lost) }) // Drain waits for it
	}
	if retires {
		h.registry.crew.Go(l.retire) // Drain waits for it
	}
}
