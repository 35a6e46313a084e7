package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// ownKeep is how long an id of the library's own is remembered after its message was acknowledged, for an Ack that is repeated.
const ownKeep = time.Minute

// Message is a message under a claim of this client. It is safe for concurrent use.
type Message struct {
	Claimed
	Failure error // set by a handler that returns nil, but failed all the same: for observers

	queue   *Queue
	client  *client
	terms   Terms
	upkeep  upkeep
	site    events.Site     // where it was claimed
	since   time.Duration   // by the client's clock: when it was claimed
	inner   context.Context //nolint:containedctx // a message has one by contract
	end     context.CancelCauseFunc
	timer   timer.Timer
	mu      sync.Mutex      // guards all below
	within  context.Context //nolint:containedctx // the handler's, which descends from inner; nil before it runs
	until   time.Duration   // by the client's clock: when the visibility is over
	length  time.Duration   // the visibility that ends then, which decides the margin
	renewed int             // times
	extends int             // how often Extend has set until
	state   messageState
	acking  *entry[ack]  // the last Ack, which may be in flight
	nacking *entry[nack] // the last Nack, Reject or Snooze, as well
	record  string       // what Ack leaves behind, of a task
	shared  bool         // a script of another package had it, and may have acknowledged it
}

// upkeep says who prolongs the visibility of a message.
type upkeep int

const (
	byCaller upkeep = iota
	byTimer
)

// messageState is what this client knows of its claim.
//
//	held -> lost    the visibility is over, or a renewal found another claim: an Ack may still count
//	held, lost -> gone
//	held, lost, gone -> acked, ended
type messageState int

const (
	held messageState = iota
	lost
	gone // a script of another package has acknowledged it, or found another claim: Ack has nothing left to send
	acked
	ended // by Nack, Reject or Snooze, or by an operation that found another claim
)

// message makes a message of a claim for a demand that was asked for at the given time. Its context descends from ctx.
func (q *Queue) message(ctx context.Context, c Claimed, d *demand, asked time.Duration, by upkeep) *Message {
	g := q.manager
	m := &Message{
		Claimed: c, queue: q, client: g.use(q), terms: d.terms, upkeep: by, site: d.site,
		since: asked, until: asked + d.terms.Visibility, length: d.terms.Visibility,
	}
	m.inner, m.end = context.WithCancelCause(ctx)
	m.timer.Task = m
	next := m.next(asked) // before others see the message, and may renew it
	g.mu.Lock()
	g.live[m] = struct{}{}
	g.handled += script.Flag(by == byTimer)
	closed := g.core.Closed()
	g.mu.Unlock()
	if closed {
		m.end(errs.ErrClosed)
	}
	g.core.Timers.Set(&m.timer, next)
	return m
}

// deadline returns when the context ends, by the client's clock: a margin before another consumer can have the message, in which the
// context's goroutines are notified. It is called with mu held, or before others have the message.
func (m *Message) deadline() time.Duration { return m.until - core.Margin(m.length) }

// report returns what there is to say of the message.
func (m *Message) report() presence.Hold {
	c := m.client.core
	m.mu.Lock()
	defer m.mu.Unlock()
	return presence.Hold{
		Kind: m.client.kind, Name: m.client.user, Owner: m.ID, Since: c.Clock.Time(m.since), Left: max(m.deadline()-c.Clock.Now(), 0),
		Renewed: m.renewed, Site: m.site.String(),
	}
}

// late returns for how long the message has been due.
func (m *Message) late(due time.Time) time.Duration {
	claimed := m.Token()
	if claimed == 0 {
		return 0
	}
	return max(0, time.UnixMicro(claimed).Sub(due)+m.client.core.Clock.Now()-m.since)
}

// next returns when the timer has to fire: at the deadline; for one that is renewed after a third of the visibility, and by a third
// before less than that is left.
func (m *Message) next(now time.Duration) time.Duration {
	if m.upkeep == byCaller {
		return m.deadline()
	}
	return min(m.deadline(), max(now+time.Millisecond, min(now+m.terms.Visibility/3, m.until-m.terms.Visibility*2/3)))
}

// Context returns the context of the work on the message.
func (m *Message) Context() context.Context {
	if m == nil {
		return core.EndedContext(ErrNotHeld)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.within != nil {
		return messageContext{m.within, m}
	}
	return messageContext{m.inner, m}
}

// enter has the message's context be one that descends from it.
func (m *Message) enter(ctx context.Context) {
	m.mu.Lock()
	m.within = ctx
	m.mu.Unlock()
}

// messageContext is a context of a message. Its Err looks at the clock, so that a process that was stopped learns of a visibility
// that ended meanwhile, whether or not its timers have run.
type messageContext struct {
	context.Context //nolint:containedctx // a context made of another
	message         *Message
}

func (c messageContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.message.overdue() {
		c.message.lose(visibilityOver)
	}
	return c.Context.Err()
}

const visibilityOver = "the visibility is over"

func (m *Message) overdue() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return (m.state == held || m.state == lost) && m.client.core.Clock.Now() >= m.deadline()
}

func (m *Message) cancel(cause error) { m.end(cause) }

// forget ends the message for this client, with a cause for its context.
func (m *Message) forget(s messageState, cause error) (first bool) {
	m.mu.Lock()
	first = m.state != s
	m.state = s
	m.mu.Unlock()
	m.client.core.Timers.Stop(&m.timer)
	m.drop()
	m.end(cause)
	return first
}

// giveBack returns the claim of a message that nobody began to work on, should it have it still. It is added before the message is
// forgotten, so that a Close that waits for the message waits for this too.
func (m *Message) giveBack() *entry[Claimed] {
	back := m.client.returns.add(m.Claimed)
	m.forget(ended, ErrFinished)
	return back
}

// Claim returns the number of the claim as scripts know it.
func (m *Message) Claim() string { return m.claim }

// Token returns the number of the claim, which rises with each claim of the queue: Redis's time in µs, or slightly more. It is 0 for
// a nil message.
func (m *Message) Token() int64 {
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m.claim, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Return gives the claim back without counting the attempt. The message is due again after the delay, which counts from the claim. It does
// not wait for Redis; what fails is left to the visibility.
func (m *Message) Return(delay time.Duration) { m.giveBackAfter(delay, &m.client.returns) }

// PassOn is Return for a message that another client has to work on: the one that has waited longest is to look in then.
func (m *Message) PassOn(delay time.Duration) { m.giveBackAfter(delay, &m.client.passes) }

func (m *Message) giveBackAfter(delay time.Duration, by *batcher[Claimed]) {
	back := m.Claimed
	if claimed := m.Token(); claimed != 0 {
		back.due = strconv.FormatInt(claimed+delay.Microseconds(), 10)
	}
	by.add(back) // before it is forgotten, as in giveBack
	m.forget(ended, ErrFinished)
}

// drop takes the message from those that are live.
func (m *Message) drop() {
	g := m.queue.manager
	g.mu.Lock()
	_, live := g.live[m]
	delete(g.live, m)
	g.handled -= script.Flag(live && m.upkeep == byTimer)
	g.mu.Unlock()
	if live {
		m.client.leave()
		g.core.Freed()
	}
}

// lose ends the message's context: somebody else may have the message.
func (m *Message) lose(why string) { m.loseTo(nil, why) }

// loseTo is lose with another error that is the cause too, nil for none.
func (m *Message) loseTo(cause error, why string) {
	m.mu.Lock()
	first := m.state == held
	if first {
		m.state = lost
	}
	isLost := m.state == lost
	m.mu.Unlock()
	if first {
		m.client.core.Timers.Stop(&m.timer)
		m.drop()
	}
	if !isLost {
		return
	}
	// Also for one that another goroutine is about to end: whoever calls this has found it lost, and so has its context.
	lost := m.queue.lost()
	if cause != nil {
		lost = fmt.Errorf("%w: %w", cause, lost)
	}
	m.end(errs.Wrap(kinds.Package(m.queue.kind), m.queue.noun()+" of", m.queue.user, fmt.Errorf("%w: %s", lost, why)))
}

// Due has the visibility renewed, or ends the message.
func (m *Message) Due(now time.Duration) {
	m.mu.Lock()
	over, left := m.state != held, m.deadline()-now
	m.mu.Unlock()
	e := m.client.core
	switch {
	case over:
	case left <= 0:
		m.lose(visibilityOver)
	case m.upkeep == byCaller:
		e.Timers.Set(&m.timer, now+left)
	default:
		e.Timers.Set(&m.timer, now+min(left, max(m.terms.Visibility/10, time.Millisecond))) // should no answer come
		m.client.due.Add(m)
	}
}

// Ack removes the message: its work is done.
func (m *Message) Ack(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.state
	m.mu.Unlock()
	switch s {
	case acked:
		return nil
	case gone:
		m.forget(acked, ErrFinished)
		return nil
	case ended:
		return m.notHeld()
	}
	ctx, cancel := m.client.endContext(ctx)
	defer cancel()
	c := m.queue.manager.use(m.queue)
	defer c.leave()
	sent := m.ack(c)
	ok, err := sent.settled(ctx)
	switch {
	case err != nil:
		return err
	case ok == replaced:
		if err := m.finished(ctx, m.nack(c, nack{})); err != nil {
			return err
		}
	case ok == 0:
		m.forget(ended, fmt.Errorf("%w: somebody else has it", m.queue.lost()))
		if sent.earlier == script.Unknown { // it may have acknowledged the message, which Redis remembers for a while only
			return fmt.Errorf("%w: %w", errs.ErrUnknown, ErrNotHeld)
		}
		return m.notHeld()
	}
	m.forget(acked, ErrFinished)
	return nil
}

// replaced is what ack.lua and nack.lua say of a message that another one has replaced while it was in flight: nack.lua ends the claim, and
// then that one is due.
const replaced = 2

// ack is a message whose work is done.
type ack struct {
	member, claim string
	keep          time.Duration
	bounded       bool // the queue has a capacity

	watcher, record string // of a task: the client that is told, and what is remembered, see ack.lua
}

// asAck returns what Redis has to know to acknowledge the message. It is called with mu held.
func (m *Message) asAck() ack {
	a := ack{member: m.member, claim: m.claim, keep: ownKeep, bounded: m.own.bounded, watcher: m.own.Watcher, record: m.record}
	if m.Given || m.record != "" {
		a.keep = m.terms.Dedupe
	}
	return a
}

// Task returns the message's task.
func (m *Message) Task() string { return m.own.Task }

// Conclude has Ack keep the result of a task for the dedupe time of the terms. What nobody waits for has none.
func (m *Message) Conclude(result []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record = url.QueryEscape(m.own.Task) + " " + string(result)
}

// Watched reports whether anybody waits for the end of the message's task.
func (m *Message) Watched() bool { return m.own.Watcher != "" }

// Share returns the message's member in the queue for a script of another package that ends it, besides its claim. Once such a script has
// ended it, Acknowledged has to be called, and then Ack.
func (m *Message) Share() (member string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shared = true
	return m.member
}

// Acknowledged notes that such a script has ended the message, or has found another claim.
func (m *Message) Acknowledged() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == held || m.state == lost {
		m.state = gone
	}
}

// ack sends an Ack, unless one is in flight: in an outage those that are repeated would pile up.
func (m *Message) ack(c *client) *entry[ack] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acking == nil || m.acking.isAnswered() {
		m.acking = c.acks.add(m.asAck())
	}
	return m.acking
}

// endWait bounds the wait for the answer to what ends a message.
const (
	endWait  = 3 * time.Second
	endFloor = 100 * time.Millisecond
)

// endContext returns a context that bounds the wait of Ack and its like: they work although ctx is done, and heed a deadline
// that is still ahead.
func (c *client) endContext(ctx context.Context) (context.Context, context.CancelFunc) {
	d := min(endWait, c.core.CallTimeout)
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		d = min(endWait, max(time.Until(deadline), endFloor))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// check judges a call. A nil message is nobody's.
func (m *Message) check(ctx context.Context) error {
	switch {
	case ctx == nil:
		return core.ErrNilContext
	case m == nil:
		return ErrNotHeld
	case m.upkeep == byCaller && m.queue.manager.life.Err() != nil && !m.Finished():
		return errs.ErrClosed
	}
	return nil
}

// notHeld returns the error of a call on a message that has ended: Close ends those that were taken.
func (m *Message) notHeld() error {
	if m.upkeep == byCaller && m.client.core.Closed() {
		return errs.ErrClosed
	}
	return ErrNotHeld
}

// destination is where a message goes whose attempt has ended.
type destination int

const (
	toDue destination = iota // or to the dead letters, when no attempts are left
	toDead
	toDueUncounted // whatever attempts are left: it is none
	toSuccessor    // which takes its place
)

// nack is an attempt that failed, or is put off.
type nack struct {
	member, claim string
	delay         time.Duration
	end           destination
	attempts      int
	text          string // of the error; of a successor its body
	grouped       bool   // the successor has a group
	watcher       string // who is told if a task dies; empty for nobody
	took          time.Duration
	where         string // the client
}

// tried returns what is kept of the attempt, as nack.lua takes it; nothing for one without an error.
func (n nack) tried() string {
	if n.text == "" {
		return ""
	}
	return strings.ReplaceAll(n.text, "\x01", " ") + "\x01" + strconv.FormatInt(max(0, n.took.Microseconds()), 10) + " " + n.where
}

// ForgetID has the message's id free at once when the message is acknowledged.
func (m *Message) ForgetID() { m.terms.Dedupe = 0 }

// Nack ends the attempt as failed: the message is due again after the delay, or a dead letter.
func (m *Message) Nack(ctx context.Context, delay time.Duration, text string) error {
	return m.finish(ctx, nack{delay: delay, text: text})
}

// Reject makes the message a dead letter.
func (m *Message) Reject(ctx context.Context, reason string) error {
	return m.finish(ctx, nack{end: toDead, text: reason})
}

// Snooze puts the message off: it is due again after the delay, and the attempt does not count.
func (m *Message) Snooze(ctx context.Context, delay time.Duration) error {
	return m.finish(ctx, nack{delay: delay, end: toDueUncounted})
}

// Succeed puts another message in the place of this one, whose work is done. Its id, and what the item does not say, are those of this one.
func (m *Message) Succeed(ctx context.Context, i Item) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	o := offer{mark: ownMark, payload: i.Payload}
	if m.Given {
		o.mark = givenMark
	}
	if i.Headers == nil {
		i.Headers = m.Headers
	}
	if i.Own.Attempts == nil {
		i.Own.Attempts = m.own.Attempts
	}
	if i.Own.Expiry == 0 {
		i.Own.Expiry = m.own.Expiry
	}
	if i.Own.Priority == nil {
		i.Own.Priority = m.own.Priority
	}
	if i.Own.Group == nil {
		i.Own.Group = m.own.Group
	}
	i.Own.bounded = m.own.bounded
	o = o.with(i, nil)
	body := i.Own.sequence(m.member) + o.mark + string(o.payload)
	return m.finish(ctx, nack{delay: i.Delay, end: toSuccessor, text: body, grouped: i.Own.Group != nil})
}

func (m *Message) finish(ctx context.Context, n nack) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	ctx, cancel := m.client.endContext(ctx)
	defer cancel()
	c := m.queue.manager.use(m.queue)
	defer c.leave()
	return m.finished(ctx, m.nack(c, n))
}

// nack sends the end of an attempt, unless just that is in flight. It returns nil for a message that has ended.
func (m *Message) nack(c *client, n nack) *entry[nack] {
	n.member, n.claim, n.attempts, n.watcher = m.member, m.claim, m.terms.Attempts, m.own.Watcher
	if m.own.Attempts != nil {
		n.attempts = *m.own.Attempts
	}
	n.took, n.where = c.core.Clock.Now()-m.since, c.core.ID
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == gone || m.state == acked || m.state == ended {
		return nil
	}
	if m.nacking != nil {
		n.took = m.nacking.value.took // of the end that was tried before
	}
	if m.nacking == nil || m.nacking.isAnswered() || m.nacking.value != n {
		m.nacking = c.nacks.add(n)
	}
	return m.nacking
}

// finished waits for what nack has sent.
func (m *Message) finished(ctx context.Context, sent *entry[nack]) error {
	if sent == nil {
		return m.notHeld()
	}
	ok, err := sent.settled(ctx)
	switch {
	case err != nil:
		return err
	case ok == 0:
		m.forget(ended, fmt.Errorf("%w: somebody else has it", m.queue.lost()))
		if sent.earlier == script.Unknown { // it may have ended the attempt before the other consumer came
			return fmt.Errorf("%w: %w", errs.ErrUnknown, ErrNotHeld)
		}
		return m.notHeld()
	}
	first := m.forget(ended, ErrFinished)
	n := sent.value
	dead := n.end == toDead || n.end == toDue && n.attempts > 0 && m.Attempt >= n.attempts
	if first && ok != replaced && dead {
		m.client.core.Events.DeadLetter(events.DeadLetter{
			Kind: m.client.kind, Name: m.client.user, ID: m.ID, Task: m.own.Task, Attempt: m.Attempt, Cause: n.text,
		})
	}
	return nil
}

// RejectAll makes dead letters of messages, whose reasons are given in their order. They are sent together; it waits for all until
// they are answered, for 3 s, or until ctx is done, and returns the first error.
func RejectAll(ctx context.Context, messages []*Message, reasons []string) error {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	sent := make([]*entry[nack], len(messages))
	for i, m := range messages {
		sent[i] = m.nack(m.client, nack{end: toDead, text: reasons[i]})
	}
	err := finishedAll(ctx, messages, sent)
	for _, m := range messages { // nobody else will: what is not answered by now is on its way
		m.forget(ended, ErrFinished)
	}
	return err
}

// nackAll ends the attempts of messages that are due again at once. What fails is left to their visibility.
func nackAll(ctx context.Context, messages []*Message) {
	sent := make([]*entry[nack], len(messages))
	for i, m := range messages {
		sent[i] = m.nack(m.client, nack{})
	}
	_ = finishedAll(ctx, messages, sent) // as said above
}

func finishedAll(ctx context.Context, messages []*Message, sent []*entry[nack]) (first error) {
	for i, m := range messages {
		if err := m.finished(ctx, sent[i]); first == nil && !errors.Is(err, ErrNotHeld) { // one that is gone needs no end
			first = err
		}
	}
	return first
}

// ending reports whether Ack, Nack, Reject, Snooze or a script of another package has ended the message, or may have. A renewal that does not
// find the message says nothing of it then: the answer to the other call does.
func (m *Message) ending() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == acked || m.state == ended || m.shared || m.acking.mayWork() || m.nacking.mayWork()
}

// snoozed reports whether Snooze has ended the message, or may have.
func (m *Message) snoozed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nacking
	return n.mayWork() && n.value.end == toDueUncounted && (!n.isAnswered() || n.result != 0)
}

// endAgain ends the message as was tried before, by its handler or by this: what is not answered is waited for, as another end could
// overtake it, and what has failed is sent again. If nothing was tried it calls end.
func (m *Message) endAgain(ctx context.Context, end func() error) error {
	m.mu.Lock()
	acking, nacking := m.acking, m.nacking
	m.mu.Unlock()
	switch {
	case nacking != nil:
		return m.finish(ctx, nacking.value)
	case acking != nil:
		return m.Ack(ctx)
	}
	return end()
}

func (m *Message) isHeld() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == held
}

// Finished reports whether Ack, Nack, Reject or Snooze has ended the message.
func (m *Message) Finished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == acked || m.state == ended
}
