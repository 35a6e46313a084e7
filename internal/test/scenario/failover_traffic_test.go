package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlock"
)

// outageMargin is how long after the new master serves a call may fail, or take: 3 s, and a moment for the loop that holds what it waits for.
const outageMargin = 3250 * time.Millisecond

// traffic is what clients do in loops, until ended is closed.
type traffic struct {
	loops sync.WaitGroup
	ended chan struct{}
	pause atomic.Pointer[chan struct{}] // closed when the pause is over; nil while there is none
	holds int                           // how many loops can have their objects at a time

	mu     sync.Mutex // guards what follows
	calls  []call
	paused []string       // the kinds of the loops that pause
	rounds map[string]int // that came to an end since the new master serves, by kind
}

// call is one that failed, or took long.
type call struct {
	what        string
	waits       bool // for others
	begun, over time.Time
	err         error
}

// stop has every object held, by loops that pause until the function that it returns is called.
func (f *traffic) stop(t *testing.T) (resume func()) {
	t.Helper()
	pause := make(chan struct{})
	f.pause.Store(&pause)
	resume = sync.OnceFunc(func() {
		f.pause.Store(nil)
		close(pause)
	})
	t.Cleanup(resume)
	redistest.Eventually(t, 20*time.Second, "all pause", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.paused) != f.holds {
			return fmt.Errorf("%d of %d: %v", len(f.paused), f.holds, f.paused)
		}
		return nil
	})
	return resume
}

// run has a loop of a kind do something again and again.
func (f *traffic) run(kind string, once func(l *loop)) {
	f.loops.Go(func() {
		for l := (&loop{traffic: f, kind: kind}); ; l.n++ {
			select {
			case <-f.ended:
				return
			case <-time.After(20 * time.Millisecond): // faster would load the machine only
				once(l)
			}
		}
	})
}

// loop is one of them.
type loop struct {
	*traffic
	kind string
	n    int // rounds before
}

// done records that a round came to an end.
func (l *loop) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rounds[l.kind]++
}

// hold is the point of a loop at which it has its object.
func (l *loop) hold() { l.traffic.hold(l.kind) }

// hold is the point at which a loop of a kind has its object.
func (f *traffic) hold(kind string) {
	if pause := f.pause.Load(); pause != nil {
		f.mu.Lock()
		f.paused = append(f.paused, kind)
		f.mu.Unlock()
		<-*pause
	}
	<-time.After(5 * time.Millisecond) // the work
}

// waits makes a call that waits for others, asks one that does not. Both report whether it succeeded.
func (l *loop) waits(what string, fn func() error) bool { return l.call(what, true, fn) == nil }

func (l *loop) asks(what string, fn func() error) bool { return l.call(what, false, fn) == nil }

// persists makes a call again until it is known to have taken effect, or that nobody knows.
func (l *loop) persists(t *testing.T, what string, fn func(ctx context.Context) error) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.ElectionLimit)
	defer cancel()
	for {
		switch err := l.call(what, false, func() error { return fn(ctx) }); {
		case err == nil:
			return true
		case !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown) || ctx.Err() != nil:
			return false
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (l *loop) call(what string, waits bool, fn func() error) error {
	c := call{what: l.kind + ": " + what, waits: waits, begun: time.Now()}
	c.err = fn()
	c.over = time.Now()
	if busy := errors.Is(c.err, rlock.ErrNotAcquired) && !errors.Is(c.err, redlatch.ErrUnavailable); busy {
		return c.err
	}
	if c.err != nil || c.over.Sub(c.begun) > time.Second {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = append(l.calls, c)
	}
	return c.err
}

// never records what must not happen.
func (l *loop) never(what string, err error) {
	if err != nil {
		_ = l.call(what, true, func() error { return err })
	}
}

// errTaken is what others than locks have no error for.
var errTaken = fmt.Errorf("busy: %w", rlock.ErrNotAcquired)

// possession is an object that a loop has.
type possession struct {
	ctx     context.Context // nil if it has none
	extend  func() error    // nil if it cannot
	nest    func() (release func() error, err error)
	release func(ctx context.Context) error
	settles bool // release has to be repeated until it is done
}

// possess is how a client gets an object. One that tries does not wait.
type possess func(c *redlatch.Client, try bool) (possession, error)

// visit takes the object, in which nobody else may be, and releases it.
func (l *loop) visit(t *testing.T, c *redlatch.Client, inside *atomic.Int32, take possess) {
	t.Helper()
	var p possession
	try := l.n%2 == 1
	take1 := func() (err error) {
		p, err = take(c, try)
		return err
	}
	if ok := try && l.asks("try", take1) || !try && l.waits("wait", take1); !ok {
		return
	}
	if inside.Add(1) != 1 {
		l.never("exclusion", errors.New("two hold it"))
	}
	l.hold()
	if p.nest != nil {
		var inner func() error
		if l.asks("nest", func() (err error) {
			inner, err = p.nest()
			return err
		}) {
			l.asks("inner release", inner)
		}
	}
	if p.extend != nil {
		l.asks("extend", p.extend)
	}
	if p.ctx != nil {
		l.never("hold", ended(p.ctx))
	}
	inside.Add(-1)
	release := func(ctx context.Context) error { return p.release(ctx) }
	if p.settles && l.persists(t, "release", release) || !p.settles && l.asks("release", func() error { return release(t.Context()) }) {
		l.done()
	}
}

// possessLock is how a client gets a lock.
func possessLock(t *testing.T, get func(c *redlatch.Client) rlock.Locker) possess {
	t.Helper()
	return func(c *redlatch.Client, try bool) (possession, error) {
		lock := get(c)
		acquire := lock.Lock
		if try {
			acquire = lock.TryLock
		}
		h, err := acquire(t.Context())
		return possession{
			ctx:    h.Context(),
			extend: func() error { return h.Extend(t.Context(), time.Minute) },
			nest: func() (func() error, error) {
				inner, err := lock.Lock(h.Context())
				return func() error { return inner.Unlock(t.Context()) }, err
			},
			release: h.Unlock,
		}, err
	}
}

func possessPermit(t *testing.T, name string) possess {
	t.Helper()
	return func(c *redlatch.Client, try bool) (possession, error) {
		s := c.GetPermitSemaphore(name)
		acquire := s.Acquire
		if try {
			acquire = s.TryAcquire
		}
		p, err := acquire(t.Context())
		return possession{
			ctx:     p.Context(),
			extend:  func() error { return p.Extend(t.Context(), time.Minute) },
			release: p.Release,
		}, err
	}
}

func possessSemaphore(t *testing.T, name string) possess {
	t.Helper()
	return func(c *redlatch.Client, try bool) (possession, error) {
		s := c.GetSemaphore(name)
		p := possession{release: func(ctx context.Context) error { return s.Release(ctx, 1) }, settles: true}
		if !try {
			return p, s.Acquire(t.Context(), 1)
		}
		ok, err := s.TryAcquire(t.Context(), 1)
		if err == nil && !ok {
			err = errTaken
		}
		return p, err
	}
}

// possessLead is how a client leads an election. Who tries does not, if somebody else does.
func possessLead(t *testing.T, name string) possess {
	t.Helper()
	var newest atomic.Int64
	return func(c *redlatch.Client, try bool) (possession, error) {
		if try {
			_, err := c.GetElection(name).Leader(t.Context())
			if err == nil {
				err = errTaken
			}
			if !errors.Is(err, relection.ErrNoLeader) {
				return possession{}, err
			}
		}
		l, err := campaignInTurn(t.Context(), c, name, &newest)
		return possession{ctx: l.Context(), release: l.Resign}, err
	}
}

// countDown opens a latch, which counts exactly.
func (l *loop) countDown(t *testing.T, c *redlatch.Client, name string) {
	t.Helper()
	latch := c.GetCountDownLatch(name)
	if !l.persists(t, "set", func(ctx context.Context) error { _, err := latch.TrySetCount(ctx, 3); return err }) {
		return
	}
	opened, gaveUp := make(chan struct{}), make(chan struct{})
	go func() {
		if l.waits("await", func() error { return latch.Await(t.Context()) }) {
			close(opened)
		} else {
			close(gaveUp)
		}
	}()
	down := func() bool { return l.persists(t, "count down", latch.CountDown) }
	if !down() {
		return
	}
	l.hold()
	if !down() {
		return
	}
	l.asks("count", func() error {
		n, err := latch.Count(t.Context())
		if err == nil && n != 1 {
			err = fmt.Errorf("%d are left of 3 after two", n)
		}
		return err
	})
	select {
	case <-opened:
		l.never("await", errors.New("it is open with one to go"))
	default:
	}
	if down() {
		select {
		case <-opened:
			l.done()
		case <-gaveUp:
		}
	}
}

// ledger is what is known of the messages of a queue, by their values.
type ledger struct {
	capacity int // of the queue; 0 for no limit

	mu      sync.Mutex // guards what follows
	offered map[string]bool
	acked   map[string]bool
	taken   int // how many have been taken and are not acknowledged
}

// ledgers returns those of the queues of the traffic, by the kinds of their loops.
func ledgers() map[string]*ledger {
	books := map[string]*ledger{}
	for kind, capacity := range map[string]int{"queue": 0, "bounded queue": 1} {
		books[kind] = &ledger{capacity: capacity, offered: map[string]bool{}, acked: map[string]bool{}}
	}
	return books
}

// of returns the queue of a ledger. An offer waits for room.
func (b *ledger) of(c *redlatch.Client, name string) *rdelayedqueue.Queue[string] {
	var opts []rdelayedqueue.QueueOption
	if b.capacity > 0 {
		opts = append(opts, rdelayedqueue.WithCapacity(b.capacity), rdelayedqueue.WithWait(time.Hour))
	}
	return redlatch.GetDelayedQueue[string](c, name, opts...)
}

// passOn offers a message, and takes one, or puts that off and takes one again. Meanwhile it changes what is for later, where there is room
// for that.
func (l *loop) passOn(t *testing.T, q *rdelayedqueue.Queue[string], book *ledger, snoozes bool) {
	t.Helper()
	value := fmt.Sprintf("%p-%d", l, l.n)
	if l.persists(t, "offer", func(ctx context.Context) error {
		_, err := q.Offer(ctx, value, 0, rdelayedqueue.WithID(value))
		return err
	}) {
		book.mu.Lock()
		book.offered[value] = true
		book.mu.Unlock()
	}
	change := func() {}
	if book.capacity == 0 {
		change = l.forLater(t, q, value)
	}
	m := l.take(t, q, book)
	var changing sync.WaitGroup
	changing.Go(change)
	defer changing.Wait()
	if m != nil && snoozes {
		l.snooze(t, m)
		m = l.take(t, q, book)
	}
	if m == nil {
		return
	}
	l.asks("extend", func() error { return m.Extend(t.Context(), time.Minute) })
	l.never("message", ended(m.Context()))
	acked := l.persists(t, "ack", m.Ack)
	for try := 0; !acked && try < 10; try++ { // an Ack may be repeated after redlatch.ErrUnknown
		acked = l.persists(t, "ack", m.Ack)
	}
	if acked {
		book.mu.Lock()
		book.acked[m.Value] = true
		book.mu.Unlock()
		l.done()
	}
}

// take takes a message, and returns it after the work; nil if there was an error.
func (l *loop) take(t *testing.T, q *rdelayedqueue.Queue[string], book *ledger) (m *rdelayedqueue.Message[string]) {
	t.Helper()
	if !l.waits("take", func() (err error) {
		m, err = q.Take(t.Context())
		return err
	}) {
		return nil
	}
	book.mu.Lock()
	if book.taken++; book.capacity > 0 && book.taken > book.capacity {
		l.never("delivery", fmt.Errorf("of %d messages at a time", book.taken))
	}
	book.mu.Unlock()
	l.hold()
	book.mu.Lock()
	defer book.mu.Unlock()
	book.taken--
	if book.acked[m.Value] {
		l.never("delivery", errors.New("of an acknowledged message"))
	}
	return m
}

// snooze puts a message off, which is due again at once.
func (l *loop) snooze(t *testing.T, m *rdelayedqueue.Message[string]) {
	t.Helper()
	for try := range 10 {
		if l.persists(t, "snooze", func(ctx context.Context) error {
			err := m.Snooze(ctx, 0)
			if try > 0 && errors.Is(err, rdelayedqueue.ErrNotHeld) { // an earlier one has done it
				return nil
			}
			return err
		}) {
			return
		}
	}
}

// forLater offers two messages that are not due. The function that it returns replaces one and cancels the other, together, and cancels what has
// replaced the first.
func (l *loop) forLater(t *testing.T, q *rdelayedqueue.Queue[string], id string) (change func()) {
	t.Helper()
	var there [2]bool
	ids := [2]string{id + "-replaced", id + "-cancelled"}
	for i := range ids {
		there[i] = l.persists(t, "offer", func(ctx context.Context) error {
			_, err := q.Offer(ctx, "old", time.Hour, rdelayedqueue.WithID(ids[i]))
			return err
		})
	}
	cancel := func(i int) {
		found := false
		for range 10 { // a Cancel may be repeated after redlatch.ErrUnknown
			if l.persists(t, "cancel", func(ctx context.Context) (err error) { found, err = q.Cancel(ctx, ids[i]); return err }) {
				break
			}
			there[i] = false // for all that is known
		}
		if there[i] && !found {
			l.never("cancel", errors.New("what was for later is gone"))
		}
	}
	return func() {
		var other sync.WaitGroup
		other.Go(func() { cancel(1) })
		defer other.Wait()
		var outcome rdelayedqueue.Outcome
		if l.persists(t, "replace", func(ctx context.Context) (err error) {
			_, outcome, err = q.OfferNew(ctx, "new", time.Hour, rdelayedqueue.WithID(ids[0]), rdelayedqueue.WithReplace())
			return err
		}) {
			if there[0] && outcome != rdelayedqueue.Replaced {
				l.never("replace", fmt.Errorf("what was for later was %v", outcome))
			}
			there[0] = true
			l.asks("get", func() error {
				e, err := q.Get(t.Context(), ids[0])
				if err == nil && e.Value != "new" {
					err = fmt.Errorf("it has the %s value", e.Value)
				}
				return err
			})
		}
		cancel(0)
	}
}

// judge requires that no call failed, or took long, but by the outage. Topics, and offers that wait for room, wait longer
// if the old master stays silent.
func (f *traffic) judge(t *testing.T, p *topology, change, served time.Time, margin time.Duration) {
	t.Helper()
	settled, failed := served.Add(margin), map[string]int{}
	for _, c := range f.calls {
		said := fmt.Sprintf("%s, begun %v and ended %v after the change, where the new master served after %v: %v",
			c.what, c.begun.Sub(change), c.over.Sub(change), served.Sub(change), c.err)
		since := served
		if c.begun.After(served) {
			since = c.begun
		}
		late := margin
		if strings.HasPrefix(c.what, "red: ") {
			late += time.Second // nobody is woken who waits for a RedLock: the other one may be faster several times
		}
		if p.silent && (strings.HasPrefix(c.what, "topic: ") || c.what == "bounded queue: offer") {
			late += silence
		}
		if p.silent && c.waits {
			late += time.Second // the release may be as late, and a subscription to the old master does not hear it
		}
		assert.Less(t, c.over.Sub(since), late, "too late: %s", said)
		if c.err == nil {
			continue
		}
		failed[c.what]++
		assert.True(t, c.over.After(change) && c.begun.Before(settled), "no outage: %s", said)
		assert.False(t, c.waits && c.begun.Before(change), "it waited: %s", said)
		outage := errors.Is(c.err, redlatch.ErrUnavailable) || errors.Is(c.err, redlatch.ErrUnknown)
		assert.True(t, outage || errors.Is(c.err, rbarrier.ErrBroken), said) // Redis did not hear of a participant for 5 s
	}
	t.Logf("the new master served after %v; %v failed; %v rounds came to an end since", served.Sub(change), failed, f.rounds)
}

// F9, F29: while a master changes calls fail at most until 3 s after the new one serves, 6 s if the old one stays silent, and say that
// Redis did not answer. Waiters go on by then. Whatever is held stays held, and counts stay exact. Rates and topics go on, and no id is given twice.
func TestNoCallFailsBeyondTheOutageOfAFailover(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for _, tc := range failovers() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := tc.start(t)
			clients := []*redlatch.Client{p.connect(t), p.connect(t)}
			lag, margin := faulttest.MeasureLag(t, ""), outageMargin
			if p.silent {
				margin += 3 * time.Second // some calls wait several times for a reply
			}
			f := &traffic{ended: make(chan struct{}), rounds: map[string]int{}}
			names := map[string]string{}
			nameOf := func(kind string) string { // the same after the change
				if names[kind] == "" {
					names[kind] = nameFor(kind, p.concerned)
				}
				return names[kind]
			}
			kinds := map[string][]possess{ // of both clients
				"permit":    {possessPermit(t, nameOf("permit")), possessPermit(t, nameOf("permit"))},
				"semaphore": {possessSemaphore(t, nameOf("semaphore")), possessSemaphore(t, nameOf("semaphore"))},
			}
			lead := possessLead(t, nameOf("election"))
			kinds["election"] = []possess{lead, lead}
			require.NoError(t, clients[0].GetPermitSemaphore(nameOf("permit")).SetPermits(t.Context(), 1))
			_, err := clients[0].GetSemaphore(nameOf("semaphore")).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			for kind, get := range movingKinds() {
				name := "{" + nameOf(kind) + "}" // for the parts of a multi-lock
				kinds[kind] = []possess{
					possessLock(t, func(c *redlatch.Client) rlock.Locker { return get(c, name) }),
					possessLock(t, func(c *redlatch.Client) rlock.Locker { return rival(kind, c, name) }),
				}
			}
			for kind, both := range kinds {
				f.holds++
				var inside atomic.Int32
				for i, take := range both {
					f.run(kind, func(l *loop) { l.visit(t, clients[i], &inside, take) })
				}
			}
			books := ledgers()
			f.holds += books["bounded queue"].capacity
			for i, c := range clients {
				f.holds += 2
				latch := nameOf(fmt.Sprint("latch", i))
				f.run("latch", func(l *loop) { l.countDown(t, c, latch) })
				for kind, book := range books {
					q := book.of(c, nameOf(kind))
					f.run(kind, func(l *loop) { l.passOn(t, q, book, (l.n+i)%2 == 0) })
				}
			}
			shared, check := sharedUses(t, clients, 1, nameOf)
			turns, stopTurns := turnUses(t, clients, nameOf, f.hold)
			f.holds += 6
			for _, u := range append(shared, turns...) {
				f.run(u.kind, func(l *loop) {
					if l.asks("use", func() error { return u.once(t.Context()) }) {
						l.done()
					}
				})
			}
			resume := f.stop(t)
			if p.live {
				resume()
			} // else what the replica does not have yet would be lost
			change := time.Now()
			p.change()
			var twoMasters time.Duration // at most, both served for so long
			if p.retire != nil {
				p.retire()
				twoMasters = time.Since(change)
			}
			if !p.frozen {
				resume() // every call is made anew while no master serves
			}
			p.serves()
			served := time.Now()
			f.mu.Lock()
			clear(f.rounds)
			f.mu.Unlock()
			resume()
			for time.Since(served) < margin+time.Second {
				<-time.After(10 * time.Millisecond)
			}
			close(f.ended)
			f.mu.Lock()
			rounds := maps.Clone(f.rounds) // a use that is cut short by stopTurns counts as one
			f.mu.Unlock()
			stopTurns()
			f.loops.Wait()
			f.judge(t, p, change, served, margin+lag.Late())
			check(twoMasters)
			for kind := range names {
				kind = strings.TrimRight(kind, "01") // of both clients
				assert.True(t, rounds[kind] > 0 || p.silent && kind == "topic", kind)
			}
			f.adds(t, clients, kinds, books, nameOf)
		})
	}
}

// adds requires that everything is free in the end.
func (f *traffic) adds(t *testing.T, clients []*redlatch.Client, kinds map[string][]possess, books map[string]*ledger, nameOf func(string) string) {
	t.Helper()
	for _, c := range clients {
		for kind, both := range kinds {
			for _, take := range both {
				redistest.Eventually(t, 10*time.Second, kind+" is free", func() error {
					p, err := take(c, true)
					if err == nil {
						err = p.release(t.Context())
					}
					return err
				})
			}
		}
	}
	n, err := clients[0].GetSemaphore(nameOf("semaphore")).Available(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n, "permits of the semaphore")
	n, err = clients[0].GetPermitSemaphore(nameOf("permit")).Available(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n, "leased permits")
	for kind, book := range books {
		book.drain(t, book.of(clients[0], nameOf(kind)))
	}
}

// drain takes what is left in a queue, and requires that every message was delivered.
func (b *ledger) drain(t *testing.T, q *rdelayedqueue.Queue[string]) {
	t.Helper()
	// An offer or an Ack whose outcome nobody knows may have left a message. One in flight comes back after the minute of its Extend.
	redistest.Eventually(t, time.Minute+10*time.Second, "the queue is empty", func() error {
		s, err := q.Stats(t.Context())
		if err == nil && s.Ready > 0 {
			var m *rdelayedqueue.Message[string]
			if m, err = q.Take(t.Context()); err == nil {
				b.acked[m.Value] = true
				err = m.Ack(t.Context())
			}
		}
		if err == nil && s != (rdelayedqueue.Stats{}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	var lost []string
	for value := range b.offered {
		if !b.acked[value] {
			lost = append(lost, value)
		}
	}
	slices.Sort(lost)
	assert.Empty(t, lost, "messages that were offered, and not delivered")
}
