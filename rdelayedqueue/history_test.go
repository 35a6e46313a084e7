package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// jobEvent is an operation on one message that took effect, or did not, at one moment between the call and the return.
type jobEvent struct {
	Op    jobOp
	ID    string
	Claim string        // of the message that it was done to
	Value string        // of the message
	N     int           // an attempt, a state, or what became of an offer that replaces
	D     time.Duration // a delay, or how long a claim lasts
	Did   didIt

	At, By int64  // the call and the return
	Most   int64  // the highest time that the server's clock has shown by then, if that is more
	Why    string // of an operation without effect: what it was, and its error
}

type jobOp string

const (
	offers   jobOp = "offers"
	replaces jobOp = "replaces"
	takes    jobOp = "takes"
	extends  jobOp = "extends"
	acks     jobOp = "acks"
	nacks    jobOp = "nacks"
	snoozes  jobOp = "snoozes"
	rejects  jobOp = "rejects"
	redrives jobOp = "redrives"
	cancels  jobOp = "cancels"
	finds    jobOp = "finds" // it in state n
	noEffect jobOp = ""
)

type didIt string

const (
	yes    didIt = "yes"
	no     didIt = "no"
	either didIt = "?" // nobody was told
)

// jobState is the state of one message in the model.
type jobState struct {
	where    jobPlace
	since    string // the claim under which it is in flight
	next     int64  // before that time it is not due, or its claim does not run out
	attempts int
	acked    bool // its id is remembered
	value    string
	flew     bool // it may have been claimed unseen, by somebody who died, before it was replaced

	// Of what has replaced it in flight: whether there is such a message, when it is due, and its value.
	replaced bool
	then     int64
	newer    string
}

// ended is what a claim that ends leaves, but for its next state.
func (s jobState) ended(after jobState) jobState {
	if s.replaced {
		return jobState{where: waiting, next: s.then, value: s.newer}
	}
	return after
}

type jobPlace int

const (
	away jobPlace = iota
	waiting
	claimed
	buried
)

// notFound is the state of a message that Get does not find.
const notFound = -1

func (e jobEvent) Object() string { return e.ID }

// jobModel is a message of a queue. With hidden claims, some process may have died with a claim of which nobody knows.
func jobModel(hidden bool) historytest.Model[jobState, jobEvent] {
	return func(s jobState, e jobEvent) (bool, jobState) {
		after, did, hides := jobStep(s, e)
		if e.Op == takes && e.N != s.tried()+1 && !hidden {
			did = false
		}
		switch {
		case e.Did == no:
			return !did || hides, s
		case did:
			return true, after
		}
		return e.Did == either, s
	}
}

// tried is how many attempts the message has had that may be taken next.
func (s jobState) tried() int {
	if s.replaced {
		return 0
	}
	return s.attempts
}

// jobStep returns what an operation makes of a message, whether it is possible, and whether it may fail all the same: a
// consumer that gives up, or dies, may have a claim of which nobody knows.
func jobStep(s jobState, e jobEvent) (after jobState, did, hides bool) {
	due, ran, own := e.By >= s.next, max(e.By, e.Most) >= s.next, s.where == claimed && s.since == e.Claim
	free := s.where == waiting || s.where == claimed && ran // a claim that ran out stays so when the clock steps back
	switch e.Op {
	case offers:
		return jobState{where: waiting, next: e.At + int64(e.D), value: e.Value}, s.where == away && !s.acked, false
	case replaces:
		added := s.where == away
		did = s.where != buried && (e.Did != yes || added == (rdelayedqueue.Outcome(e.N) == rdelayedqueue.Added))
		if s.where == claimed { // if its claim has run out it is replaced at once, which comes to the same
			s.replaced, s.then, s.newer = true, e.At+int64(e.D), e.Value
			return s, did, false
		}
		return jobState{where: waiting, next: e.At + int64(e.D), value: e.Value, flew: s.where == waiting && ran}, did, false
	case takes:
		next := s.ended(s)
		after = jobState{where: claimed, since: e.Claim, next: e.At + int64(e.D), attempts: e.N, value: next.value}
		return after, free && due && e.By >= next.next && e.N > s.tried() && e.Value == next.value, false
	case extends:
		s.next = e.At + int64(e.D)
		return s, own, ran
	case acks:
		return s.ended(jobState{acked: true}), own, ran
	case nacks:
		return s.ended(jobState{where: waiting, next: e.At + int64(e.D), attempts: s.attempts, value: s.value}), own, ran
	case snoozes:
		return s.ended(jobState{where: waiting, next: e.At + int64(e.D), attempts: s.attempts - 1, value: s.value}), own, ran
	case rejects:
		return s.ended(jobState{where: buried, attempts: s.attempts, value: s.value}), own, ran
	case redrives:
		return jobState{where: waiting, next: e.At, value: s.value}, s.where == buried, false
	case cancels:
		return jobState{}, s.where != away, false
	case finds:
		switch e.N {
		case notFound:
			return s, s.where == away, false
		case int(rdelayedqueue.Delayed):
			return s, s.where == waiting || s.where == claimed && ran, false
		case int(rdelayedqueue.Ready):
			return s, free && due, false
		case int(rdelayedqueue.InFlight):
			return s, s.where == claimed || free && ran || s.flew, false
		default:
			return s, s.where == buried, false
		}
	}
	return s, true, false
}

const (
	jobVisibility = time.Second // the shortest there is
	jobDelay      = 30 * time.Millisecond
	// jobWait is the longest wait for a message. A claim may have been made so long before the call that got it, for
	// another one that gave up.
	jobWait = 50 * time.Millisecond
)

// jobRecord is what happened to the messages of a queue, as its users saw it.
type jobRecord struct {
	*historytest.History[jobEvent]
	process string
	claims  atomic.Int64
	values  atomic.Int64
}

// do makes a call that may change a message. Without an answer it may have done so, or may still, unless the error
// denies it.
func (r *jobRecord) do(e jobEvent, call func() (bool, error)) {
	r.note(e, func(*jobEvent) (bool, error) { return call() })
}

// note makes a call that says more of the event.
func (r *jobRecord) note(e jobEvent, call func(e *jobEvent) (bool, error)) {
	e.At, e.By, e.Did = r.Now(), historytest.Forever, either
	entry := r.Begin(e, e.At, e.By)
	did, err := call(&e)
	e.By = r.Now()
	switch {
	case errors.Is(err, redlatch.ErrUnknown):
		return
	case e.Op == extends && errors.Is(err, rdelayedqueue.ErrNotHeld): // it may have set an end that has come since
		r.Add(jobEvent{Op: acks, ID: e.ID, Claim: e.Claim, Did: no, At: e.At, By: e.By}, e.At, e.By)
	case errors.Is(err, rdelayedqueue.ErrNotHeld), e.Op == replaces && errors.Is(err, rdelayedqueue.ErrDead), err == nil && !did:
		e.Did = no
	case err != nil:
		e.Op, e.Why = noEffect, fmt.Sprintf("%s: %v", e.Op, err)
	default:
		e.Did = yes
	}
	r.Settle(entry, e, e.At, e.By)
}

// id returns one of a few ids that are used about now.
func (r *jobRecord) id(ago time.Duration) string {
	const each = 20 * time.Millisecond
	return fmt.Sprint((time.Duration(r.Now())-ago)/each, "-", rand.N(6))
}

// use does one thing with a queue.
func (r *jobRecord) use(ctx context.Context, q *rdelayedqueue.Queue[job]) {
	if rand.N(10) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond))
		defer cancel()
	}
	id := r.id(rand.N(100 * time.Millisecond))
	switch dice := rand.N(100); {
	case dice < 35:
		delay := time.Duration(rand.N(2) * int(rand.N(jobDelay)))
		value := fmt.Sprint(r.process, r.values.Add(1))
		e, opts := jobEvent{Op: offers, ID: r.id(0), D: delay, Value: value}, []rdelayedqueue.OfferOption{}
		if dice < 10 {
			e.Op, e.ID, opts = replaces, id, append(opts, rdelayedqueue.WithReplace())
		}
		r.note(e, func(e *jobEvent) (bool, error) {
			_, outcome, err := q.OfferNew(ctx, job{Name: value}, delay, append(opts, rdelayedqueue.WithID(e.ID))...)
			e.N = int(outcome)
			return outcome != rdelayedqueue.Kept, err
		})
	case dice < 42:
		r.do(jobEvent{Op: cancels, ID: id}, func() (bool, error) { return q.Cancel(ctx, id) })
	case dice < 50:
		r.find(ctx, q, id)
	default:
		wait, cancel := context.WithTimeout(ctx, rand.N(jobWait))
		defer cancel()
		r.take(wait, q, func(m *message, claim string) { r.finish(ctx, q, m, claim) })
	}
}

func (r *jobRecord) find(ctx context.Context, q *rdelayedqueue.Queue[job], id string) {
	e := jobEvent{Op: finds, ID: id, N: notFound, Did: yes, At: r.Now()}
	entry, err := q.Get(ctx, id)
	e.By = r.Now()
	switch {
	case err == nil:
		e.N = int(entry.State)
	case !errors.Is(err, rdelayedqueue.ErrNotFound):
		return
	}
	r.Add(e, e.At, e.By)
}

type message = rdelayedqueue.Message[job]

// take takes a message and works on it.
func (r *jobRecord) take(ctx context.Context, q *rdelayedqueue.Queue[job], work func(m *message, claim string)) {
	e := jobEvent{Op: takes, D: jobVisibility * 3 / 4, Did: yes, At: r.Now()} // a stopped process may have had the claim for longer than jobWait
	m, err := q.Take(ctx)
	if err != nil {
		return
	}
	e.By, e.ID, e.N, e.Claim, e.Value = r.Now(), m.ID, m.Attempt, fmt.Sprint(r.process, r.claims.Add(1)), m.Value.Name
	r.Add(e, e.At-4*int64(jobWait), e.By) // the claim may have been made for another call
	work(m, e.Claim)
}

// finish ends the work on a message in one way or another.
func (r *jobRecord) finish(ctx context.Context, q *rdelayedqueue.Queue[job], m *message, claim string) {
	e := jobEvent{ID: m.ID, Claim: claim}
	ack := func() {
		e.Op = acks
		r.do(e, func() (bool, error) { return true, m.Ack(ctx) })
	}
	switch dice := rand.N(100); {
	case dice < 40:
		ack()
	case dice < 50:
		e.Op, e.D = nacks, rand.N(jobDelay)
		r.do(e, func() (bool, error) { return true, m.Nack(ctx, e.D) })
	case dice < 60:
		e.Op, e.D = snoozes, rand.N(jobDelay)
		r.do(e, func() (bool, error) { return true, m.Snooze(ctx, e.D) })
	case dice < 75:
		e.Op = rejects
		r.do(e, func() (bool, error) { return true, m.Reject(ctx, "x") })
		if dice < 72 {
			r.do(jobEvent{Op: redrives, ID: m.ID}, func() (bool, error) { return q.Redrive(ctx, m.ID) })
		}
	default:
		x := e
		x.Op, x.D = extends, 10*time.Millisecond+rand.N(10*time.Millisecond)
		r.do(x, func() (bool, error) { return true, m.Extend(ctx, x.D) })
		if dice < 90 { // in time or not; the others leave it
			timer := time.NewTimer(rand.N(2 * x.D))
			<-timer.C
			ack()
		}
	}
}

// user uses a queue of one client at random, so often.
func (r *jobRecord) user(ctx context.Context, c *redlatch.Client, steps int) {
	q := jobQueue(c)
	for range steps {
		r.use(ctx, q)
	}
}

func jobQueue(c *redlatch.Client) *rdelayedqueue.Queue[job] {
	return queue(c, rdelayedqueue.WithVisibility(jobVisibility), rdelayedqueue.WithMaxAttempts(0),
		rdelayedqueue.WithDedupe(2*historytest.WideSteps)) // no step makes it forget an id
}

// jobUser uses a queue until it is killed. Args: its name, when the history began, the address.
func jobUser(args []string) {
	h, err := historytest.NewIn[jobEvent](args[1], faulttest.Emit)
	must(err)
	r := &jobRecord{History: h, process: args[0]}
	c := childClient(args[2])
	for range 3 {
		go r.user(context.Background(), c, 1<<30) // until the process is killed
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // nobody writes
}

// play has clients use a queue. With harm, processes use it too, which are killed.
func (r *jobRecord) play(t *testing.T, harm func(*faulttest.Proxy), behind func(rdb *redis.Client)) {
	t.Helper()
	server := r.Serve(t)
	through := func() *faulttest.Proxy {
		p := faulttest.NewProxy(t, server.Addr())
		if harm != nil {
			harm(p)
		}
		return p
	}
	var users sync.WaitGroup
	var ends []func()
	for range 3 {
		p := through()
		c := connect(t, p.Addr())
		ends = append(ends, func() {
			p.Calm()
			assert.NoError(t, c.Close())
		})
		for range 3 {
			users.Go(func() { r.user(t.Context(), c, 60) })
		}
	}
	if harm != nil {
		users.Go(func() {
			for i := range 2 {
				child := faulttest.StartChild(t, "job user", fmt.Sprintf("killed%d:", i), r.Begun(), through().Addr())
				r.Sacrifice(t, child, 200*time.Millisecond, 50*time.Millisecond)
			}
		})
	}
	if behind != nil {
		rdb := server.Client(t)
		historytest.Meanwhile(&users, func() { behind(rdb) })
	}
	users.Wait()
	r.Calm()
	r.closing()
	for _, end := range ends {
		end()
	}
	r.drain(t, jobQueue(connect(t, server.Addr())))
}

// closing notes that the clients of this process are about to close: their messages are redelivered at once.
func (r *jobRecord) closing() {
	left := map[string]string{} // by claim, the message
	for _, op := range r.Ops() {
		switch e := op.Event; {
		case e.Op == takes && !strings.HasPrefix(e.Claim, "killed"):
			left[e.Claim] = e.ID
		case e.Did == yes && (e.Op == acks || e.Op == nacks || e.Op == snoozes || e.Op == rejects):
			delete(left, e.Claim)
		}
	}
	now := r.Now()
	for claim, id := range left {
		r.Add(jobEvent{Op: nacks, ID: id, Claim: claim, Did: either, At: now, By: historytest.Forever}, now, historytest.Forever)
	}
}

// drain takes what is left, and looks for each message.
func (r *jobRecord) drain(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		s := stats(t, q)
		if s.Delayed+s.Ready+s.InFlight == 0 {
			break
		}
		require.Less(t, time.Now(), end, "%+v", s)
		ctx, cancel := context.WithTimeout(t.Context(), jobWait)
		r.take(ctx, q, func(m *message, claim string) {
			r.do(jobEvent{Op: acks, ID: m.ID, Claim: claim}, func() (bool, error) { return true, m.Ack(t.Context()) })
		})
		cancel()
	}
	ids := map[string]bool{}
	for e := range r.Events() {
		ids[e.ID] = true
	}
	for id := range ids {
		r.find(t.Context(), q, id)
	}
}

// check requires that enough has happened.
func (r *jobRecord) check(t *testing.T) {
	t.Helper()
	seen, all := map[string]int{}, 0
	for e := range r.Events() {
		kind := fmt.Sprintf("%s: %s", e.Op, e.Did)
		if e.Op == finds {
			kind += " " + strconv.Itoa(e.N)
		}
		seen[kind]++
		all++
	}
	t.Log(all, seen)
	for _, often := range []string{
		"offers: yes", "offers: no", "replaces: yes", "takes: yes", "extends: yes", "acks: yes", "nacks: yes", "snoozes: yes", "rejects: yes",
		"redrives: yes",
	} {
		assert.NotZero(t, seen[often], often)
	}
	assert.Greater(t, seen["takes: yes"], all/8)
}

func newJobRecord() *jobRecord { return &jobRecord{History: historytest.New[jobEvent]()} }

// F2, F8
func TestQueueHistoryUnderFaultsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 8) {
		r := newJobRecord()
		r.play(t, (*faulttest.Proxy).Disturb, nil)
		r.check(t)
		historytest.Check(t, jobModel(true), r.Ops())
	}
}

// The model goes by the server's clock: a message is never early by that, and a claim lasts until then. Redis keeps the records of
// repeated calls for an hour, so that with steps of less than that nothing is lost, and nothing is there twice.
//
// F2, F8, F18
func TestQueueHistoryWhileTheClockStepsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 4) {
		r := newJobRecord()
		r.Steps = historytest.WideSteps
		r.play(t, (*faulttest.Proxy).Disturb, nil)
		r.check(t)
		historytest.Check(t, jobModel(true), r.byTheServer())
	}
}

// byTheServer returns the history with the times between which the events happened by the clock of the server.
func (r *jobRecord) byTheServer() []historytest.Op[jobEvent] {
	ops := r.Ops()
	for i := range ops {
		e := &ops[i].Event
		e.At, e.By, e.Most = r.ServerTime(ops[i].Call, e.By)
	}
	return ops
}

// F8
func TestQueueHistoryIsLinearizable(t *testing.T) {
	r := newJobRecord()
	r.play(t, nil, nil)
	r.check(t)
	historytest.Check(t, jobModel(false), r.Ops())
}

func TestHistoryOfABrokenQueueIsRefuted(t *testing.T) {
	redistest.Long(t)
	ctx := context.WithoutCancel(t.Context())
	const keys = "redlatch_dq:{jobs}:"
	first := func(rdb *redis.Client, set string, i int64) (member string) {
		found, err := rdb.ZRange(ctx, keys+set, i, i).Result()
		if assert.NoError(t, err) && len(found) > 0 {
			member = found[0]
		}
		return member
	}
	for what, behind := range map[string]func(rdb *redis.Client) error{
		"a message removed": func(rdb *redis.Client) error {
			member := first(rdb, "due", 0)
			if member == "" {
				return nil
			}
			id := member[16:]
			_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.ZRem(ctx, keys+"due", member)
				p.ZRem(ctx, keys+"flight", member)
				p.HDel(ctx, keys+"bodies", id)
				p.HDel(ctx, keys+"claims", id)
				return nil
			})
			return err
		},
		"a message twice": func(rdb *redis.Client) error {
			member := first(rdb, "flight", -1)
			if member == "" {
				return nil
			}
			return rdb.ZAdd(ctx, keys+"due", redis.Z{Score: 1, Member: member}).Err()
		},
		"a message before its time": func(rdb *redis.Client) error {
			member := first(rdb, "due", -1)
			if member == "" {
				return nil
			}
			return rdb.ZAddXX(ctx, keys+"due", redis.Z{Score: 1, Member: member}).Err()
		},
		"an attempt that does not count": func(rdb *redis.Client) error { return rdb.Del(ctx, keys+"claims").Err() },
	} {
		for how, harm := range historytest.Harms() {
			t.Run(what+how, func(t *testing.T) {
				t.Parallel()
				historytest.RefutedSoon(t, func() bool {
					r := newJobRecord()
					r.play(t, harm, func(rdb *redis.Client) { assert.NoError(t, behind(rdb)) })
					return jobModel(true).Refutes(r.Ops()) // and so does the model that knows all claims
				})
			})
		}
	}
}

func TestQueueModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	type ops = []historytest.Op[jobEvent]
	at := func(e jobEvent, call, back int64) historytest.Op[jobEvent] {
		if e.Did == "" {
			e.Did = yes
		}
		e.ID, e.At, e.By = "k", call, back
		return historytest.Op[jobEvent]{Event: e, Call: call, Back: back}
	}
	const forever = historytest.Forever
	offered, first := jobEvent{Op: offers, D: 10}, jobEvent{Op: takes, Claim: "1", N: 1, D: 100}
	second, acked := jobEvent{Op: takes, Claim: "2", N: 2, D: 100}, jobEvent{Op: acks, Claim: "1"}
	gone, snoozed := jobEvent{Op: finds, N: notFound}, jobEvent{Op: snoozes, Claim: "1"}
	newer := jobEvent{Op: replaces, Value: "newer", N: int(rdelayedqueue.Replaced)}
	taken := jobEvent{Op: takes, Claim: "2", N: 1, D: 100, Value: "newer"}
	for _, tc := range []struct {
		what string
		good bool
		ops  ops
	}{
		{"replaced while it waits", true, ops{at(offered, 0, 1), at(newer, 2, 3), at(taken, 4, 5)}},
		{"the old value after that", false, ops{at(offered, 0, 1), at(newer, 2, 3), at(first, 10, 12)}},
		{"replaced in flight", true, ops{at(offered, 0, 1), at(first, 10, 12), at(newer, 13, 14), at(acked, 15, 16), at(taken, 17, 18)}},
		{"what replaces it before the claim ends", false, ops{at(offered, 0, 1), at(first, 10, 12), at(newer, 13, 14), at(taken, 15, 16)}},
		{"what replaces it is lost", false, ops{at(offered, 0, 1), at(first, 10, 12), at(newer, 13, 14), at(acked, 15, 16), at(gone, 17, 18)}},
		{"a life", true, ops{at(offered, 0, 1), at(first, 10, 12), at(acked, 13, 14), at(gone, 15, 16)}},
		{"before its time", false, ops{at(offered, 0, 1), at(first, 8, 9), at(acked, 13, 14)}},
		{"lost", false, ops{at(offered, 0, 1), at(gone, 15, 16)}},
		{"one that may not have come", true, ops{at(jobEvent{Op: offers, Did: either}, 0, forever), at(gone, 15, 16)}},
		{"to two at once", false, ops{at(offered, 0, 1), at(first, 10, 12), at(second, 13, 14), at(acked, 15, 16)}},
		{"to another after the claim", true, ops{at(offered, 0, 1), at(first, 10, 12), at(second, 109, 111)}},
		{"once more after that", false, ops{
			at(offered, 0, 1), at(first, 10, 12), at(second, 109, 111), at(acked, 112, 113),
		}},
		{"once more after the end", false, ops{
			at(offered, 0, 1), at(first, 10, 12), at(acked, 13, 14), at(second, 200, 201),
		}},
		{"once more if nobody knows of the end", true, ops{
			at(offered, 0, 1), at(first, 10, 12), at(jobEvent{Op: acks, Claim: "1", Did: either}, 13, forever),
			at(second, 200, 201),
		}},
		{"refused in time", false, ops{
			at(offered, 0, 1), at(first, 10, 12), at(jobEvent{Op: acks, Claim: "1", Did: no}, 13, 14),
		}},
		{"put under a remembered id", false, ops{
			at(offered, 0, 1), at(first, 10, 12), at(acked, 13, 14), at(offered, 15, 16),
		}},
		{"once more after a snooze", true, ops{
			at(offered, 0, 1), at(first, 10, 12), at(snoozed, 13, 14), at(first, 15, 17), at(acked, 18, 19),
		}},
		{"a snooze that takes back more than its attempt", false, ops{
			at(offered, 0, 1), at(first, 10, 12), at(jobEvent{Op: nacks, Claim: "1"}, 13, 14), at(second, 15, 17),
			at(jobEvent{Op: snoozes, Claim: "2"}, 18, 19), at(jobEvent{Op: takes, Claim: "3", N: 1, D: 100}, 20, 21),
		}},
		{"put under a cancelled one", true, ops{at(offered, 0, 1), at(jobEvent{Op: cancels}, 2, 3), at(offered, 4, 5)}},
	} {
		require.Equal(t, tc.good, jobModel(false).Explains(tc.ops), tc.what)
		require.Equal(t, !tc.good, jobModel(true).Refutes(tc.ops), tc.what)
	}
}
