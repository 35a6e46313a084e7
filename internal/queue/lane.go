package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// lane claims messages for all takers of one queue in this client, one call at a time.
type lane struct {
	hub *hub

	mu      sync.Mutex // guards all below
	takers  []*taker   // first come, first served
	running bool       // a goroutine is at it
	again   bool       // there is something to look at
	peek    bool       // most likely nothing is due: ask before a claim
	asleep  bool       // nothing is due before the timer or a wake-up
	asking  bool       // Redis is about to say whether that is so
	listed  bool       // Redis counts on this lane to look
	closed  bool
	timer   *time.Timer
	wakeAt  time.Duration // when the timer fires, by the client's clock
	member  *pubsub.Membership
	hears   bool          // the subscription is confirmed
	lost    uint64        // number of a claim that was not answered, 0 if none
	failing int           // tries in a row that failed
	since   time.Duration // when they began, by the client's clock
}

// taker is somebody who wants messages.
type taker struct {
	terms   Terms
	want    int  // messages; guarded by the lane's mu
	transit int  // messages that are about to be delivered; guarded by the lane's mu
	stays   bool // it goes on to want messages
	tried   bool // Redis was asked for it, and answered

	deliver func([]Claimed, time.Duration) // the claims, and the client's time before they were asked for; must return at once
	fail    func(error)                    // for one that stays, only reports an error; must return at once
}

// Claimed is a message under a claim.
type Claimed struct {
	ID      string
	Attempt int
	DueAt   time.Time
	Payload []byte
	Given   bool // the id was given by a user

	member, claim, due string
}

func (l *lane) add(t *taker) {
	l.mu.Lock()
	if l.closed || l.hub.core.Closed() { // Close may have begun before it could see this lane
		l.mu.Unlock()
		t.fail(errs.ErrClosed)
		return
	}
	l.takers = append(l.takers, t)
	l.pokeLocked(t.want > 0 && !l.asleep && !l.asking)
	l.mu.Unlock()
}

// remove takes t out, and reports whether it was still there.
func (l *lane) remove(t *taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.takers, t)
	if i < 0 {
		return false
	}
	l.takers = slices.Delete(l.takers, i, i+1)
	l.pokeLocked(l.wantedLocked() == 0) // Redis must not count on this lane any more
	return true
}

// aim sets how many messages a taker that stays has room for, those included that are about to be delivered.
func (l *lane) aim(t *taker, room int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := t.want
	t.want = max(0, room-t.transit)
	l.pokeLocked(t.want > before && !l.asleep && !l.asking || t.want == 0 && before > 0 && l.asleep && l.wantedLocked() == 0)
}

func (l *lane) wantedLocked() int {
	n := 0
	for _, t := range l.takers {
		n += t.want
	}
	return n
}

// poke has the lane look again.
func (l *lane) poke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pokeLocked(true)
}

func (l *lane) pokeLocked(do bool) {
	if !do || l.closed {
		return
	}
	l.again, l.asleep = true, false
	if !l.running && l.hub.stay() {
		l.running = true
		l.hub.registry.crew.Go(l.run) // ends when there is nothing to look at; Drain waits for it
	}
}

func (l *lane) run() {
	defer l.hub.leave()
	for {
		l.mu.Lock()
		if !l.again || l.closed {
			l.running = false
			if !l.listed {
				l.leaveLocked()
			}
			retires := l.closed && l.listed
			l.mu.Unlock()
			if retires {
				l.retire()
			}
			return
		}
		peek := l.peek && l.hears && l.lost == 0
		l.again, l.peek = false, false
		l.stopTimerLocked()
		terms, want := l.nextLocked()
		l.mu.Unlock()
		if peek && want > 0 {
			l.sleep()
			continue
		}
		l.step(terms, want)
	}
}

// nextLocked returns how many messages the first takers want that have the same terms.
func (l *lane) nextLocked() (terms Terms, want int) {
	for _, t := range l.takers {
		if t.want == 0 {
			continue
		}
		if want == 0 {
			terms = t.terms
		}
		if t.terms == terms {
			want += t.want
		}
	}
	return terms, min(want, maxBatch)
}

// step claims once, and goes to sleep if that brought less than was wanted.
func (l *lane) step(terms Terms, want int) {
	if !l.settleLost() {
		return
	}
	if want == 0 && !l.retires() {
		return
	}
	h := l.hub
	number := h.registry.calls.Add(1)
	asked := h.core.Clock.Now()
	c, err := h.registry.claim(h, number, want, terms)
	if err != nil {
		if script.Judge(err) == script.Unknown {
			l.lose(number)
		}
		l.failed(err)
		return
	}
	claims, more, waiters, err := readClaims(c)
	if err != nil {
		l.failed(err)
		return
	}
	wanted := l.assign(claims, terms, asked)
	switch {
	case want == 0:
	case len(claims) < want && !more:
		if wanted > 0 {
			l.sleep()
			return
		}
	case wanted > 0:
		l.poke()
	}
	if waiters && wanted == 0 {
		h.wake()
	}
}

// lose notes a claim that was not answered, which is returned before the next one, or at once by a lane that closes.
func (l *lane) lose(number uint64) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.lost = number
	}
	l.mu.Unlock()
	if closed {
		l.hub.recover(number)
		return
	}
	l.hub.stay() // until it is settled
}

// claim sends one claim. It is not repeated: a claim that was not answered is returned first.
func (r *Registry) claim(h *hub, number uint64, want int, terms Terms) (*script.Call, error) {
	ctx := context.Background() //nolint:forbidigo // bounded by the batcher
	call := h.keys.claim(r.core.ID, number, want, terms)
	return call, r.send(ctx, call)
}

// retires reports whether Redis has to be told that this lane wants nothing any more.
func (l *lane) retires() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listed
}

// retireLimit bounds the call by which a lane that closes hands on what it was to look for: it saves others a third of a second
// in most cases, and is not worth a longer Close.
const retireLimit = 500 * time.Millisecond

// retire tells Redis, as the client closes, not to count on this lane any more, and has somebody else told.
func (l *lane) retire() {
	h := l.hub
	number := h.registry.calls.Add(1)
	call := func() *script.Call { return h.keys.claim(h.core.ID, number, 0, Terms{}) }
	ctx := context.Background() //nolint:forbidigo // bounded by the limit
	c, err := h.core.Run(ctx, call, pipeline.Ask{Class: pipeline.Urgent, Limit: retireLimit})
	if err != nil {
		return
	}
	if _, _, waiters, err := readClaims(c); err == nil && waiters {
		h.wake()
	}
}

// leaveLocked stops hearing the channel when nobody wants messages.
func (l *lane) leaveLocked() {
	if l.member != nil && len(l.takers) == 0 {
		l.member.Leave()
		l.member, l.hears = nil, false
	}
}

// settleLost returns what an unanswered claim may have brought, and reports whether the way is free.
func (l *lane) settleLost() bool {
	l.mu.Lock()
	lost := l.lost
	l.mu.Unlock()
	if lost == 0 {
		return true
	}
	h := l.hub
	ctx := context.Background() //nolint:forbidigo // bounded by the batcher
	call := h.keys.recover(h.core.ID, lost)
	if err := h.registry.send(ctx, call); err != nil {
		l.failed(err)
		return false
	}
	l.mu.Lock()
	settled := l.lost == lost
	l.lost = 0
	l.mu.Unlock()
	h.announce(call)
	if settled {
		h.leave()
	}
	return true
}

// recover returns what an unanswered claim of a lane that closes may have brought. What fails is left to its visibility.
func (h *hub) recover(number uint64) {
	c, err := h.registry.end(func() *script.Call { return h.keys.recover(h.core.ID, number) })
	if err == nil {
		h.announce(c)
	}
}

// assign hands claims to the takers with these terms, in their order, and returns how many messages are wanted after it.
func (l *lane) assign(claims []Claimed, terms Terms, asked time.Duration) int {
	type parcel struct {
		to     *taker
		claims []Claimed
	}
	var parcels []parcel
	l.mu.Lock()
	l.failing, l.listed = 0, false
	left := l.takers[:0:0]
	for _, t := range l.takers {
		t.tried = true
		n := 0
		if t.terms == terms {
			n = min(t.want, len(claims))
		}
		if n > 0 {
			parcels = append(parcels, parcel{t, claims[:n:n]})
			claims = claims[n:]
			t.want -= n
			t.transit += n
		}
		if t.stays || n == 0 {
			left = append(left, t)
		}
	}
	l.takers = left
	wanted := l.wantedLocked()
	l.mu.Unlock()
	for _, p := range parcels {
		p.to.deliver(p.claims, asked)
	}
	if len(claims) > 0 {
		l.hub.giveBack(claims) // who wanted them is gone
	}
	return wanted
}

// arrived says that a taker that stays has counted what was delivered.
func (l *lane) arrived(t *taker, n int) {
	l.mu.Lock()
	t.transit -= n
	l.mu.Unlock()
}
