package relection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/fair"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

const title = "relection"

// Election is where processes campaign, one leads at a time, and all can see who. It has no state: any number of goroutines
// may use one. It is safe for concurrent use.
type Election struct {
	core *core.Core
	name string // with the client's prefix
	keys keys
	lock locker.Name
	err  error
}

// New returns the election with this name, as client.GetElection does. client is a *redlatch.Client. It does no I/O
// and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string) *Election {
	c := core.Of(client)
	e := &Election{core: c, name: c.Prefix + name, lock: core.Manager(c, fair.NewLocks).Elections.Name(name)}
	e.keys = keysOf(e.name)
	e.err = e.lock.Check()
	return e
}

// Name returns the election's name as it was given to the client.
func (e *Election) Name() string { return e.core.UserName(e.name) }

// Campaign becomes a candidate, and blocks until it is elected: until all candidates before it have led and resigned, or
// have died or given up. The leadership lasts until [Leadership.Resign], or until it is lost.
//
// It ends as rfairlock.Lock.Lock does: when ctx is done, when the client closes (redlatch.ErrClosed), and at an error that
// will not pass, on the first attempt also a refused connection; it waits out other errors for one lease in a row. It then
// leads nothing, and is no candidate any more. Under the context of a leadership of this election it returns [ErrHeld]; a value
// that is too long is redlatch.ErrInvalid. If Redis does not answer once it has the lock, it returns redlatch.ErrUnknown or
// redlatch.ErrUnavailable, and gives the lock back in the background.
//
// It costs two round trips if nobody leads, and otherwise two more; then one about every lease.
func (e *Election) Campaign(ctx context.Context, opts ...CampaignOption) (*Leadership, error) {
	o, err := e.campaignOptions(ctx, opts)
	var l *Leadership
	if err == nil {
		l, err = e.campaign(ctx, o)
	}
	return l, e.wrap("campaign", err)
}

// campaignOptions judges a campaign before any I/O.
func (e *Election) campaignOptions(ctx context.Context, opts []CampaignOption) (campaignOptions, error) {
	if err := e.check(ctx); err != nil {
		return campaignOptions{}, err
	}
	return collectCampaign(opts)
}

func (e *Election) campaign(ctx context.Context, o campaignOptions) (*Leadership, error) {
	for {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case e.core.Closed():
			return nil, errs.ErrClosed
		}
		m := newMember(e, o.value)
		hold, err := e.lock.Acquire(ctx, &locker.Options{NoNest: true, Owner: m.id}, locker.Forever)
		if err != nil {
			m.leave()
			return nil, err
		}
		l := &Leadership{member: m, hold: hold}
		if err = l.begin(); err == nil {
			return l, nil
		}
		lost := errors.Is(err, errs.ErrNotHeld) || errors.Is(context.Cause(hold.Context()), errs.ErrLost)
		l.giveBack(ctx)
		m.leave()
		if !lost && !e.core.Closed() {
			return nil, err
		}
	}
}

// Leader is who leads an election.
type Leader struct {
	// ID is the id under which Redis knows the leader, `<client id>:<number>`; see [Leadership.ID].
	ID string
	// Value is what it has proclaimed, or campaigned with.
	Value string
	// Term is the number of its leadership, which rises with each leader.
	Term int64
	// Since is when it was elected, on the clock of Redis.
	Since time.Time
}

// Leader returns who leads now, and [ErrNoLeader] if nobody does. It waits for Redis until ctx is done, or for the call
// timeout if ctx has no deadline (10 s by default, see redlatch.WithCallTimeout), and then returns redlatch.ErrUnavailable.
// It costs one round trip.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	err := e.check(ctx)
	var l Leader
	if err == nil {
		l, err = e.leader(ctx)
	}
	return l, e.wrap("leader", err)
}

func (e *Election) leader(ctx context.Context) (Leader, error) {
	answer, err := e.core.Read(ctx, e.keys.whoLeads)
	if err != nil {
		return Leader{}, err
	}
	return readLeader(answer)
}

// Candidate is one that waits to be elected.
type Candidate struct {
	// ID is its id; that of its leadership, if it is elected.
	ID string
	// Value is what it campaigns with.
	Value string
}

// Candidates returns who waits, the next one first. The leader and the dead are not among them. One that began to campaign
// a few milliseconds ago, and one that waits for the fair lock of this name without a campaign, may be there without its
// value. It blocks and fails as Leader does, and costs one round trip, and time in Redis in proportion to their number.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	err := e.check(ctx)
	var all []Candidate
	if err == nil {
		var answer *script.Call
		if answer, err = e.core.Read(ctx, e.keys.waiting); err == nil {
			all, err = readCandidates(answer)
		}
	}
	return all, e.wrap("candidates", err)
}

// check judges a call before any I/O.
func (e *Election) check(ctx context.Context) error {
	switch {
	case e.err != nil:
		return e.err
	case ctx == nil:
		return core.ErrNilContext
	}
	return nil
}

func (e *Election) wrap(verb string, err error) error {
	return errs.Wrap(title, verb, e.Name(), errs.Of("leadership", err))
}

// Run campaigns, runs fn while it leads, resigns when fn has returned, whatever it returned, and campaigns again, until
// ctx is done: then it returns nil. fn gets the context of the leadership, which ends when it is lost, and its term. What fn returns is
// logged. If it returned within a second, Run pauses before it campaigns again, for 10 ms up to a second. If fn panics, Run
// resigns, and the panic goes on.
//
// Run returns redlatch.ErrClosed when the client closes, redlatch.ErrInvalid for a bad option or a nil fn,
// redlatch.ErrWrongType for data of another type, and [ErrHeld]. It logs any other error, such as an outage of Redis, and
// campaigns again. While fn does not return Run waits for it, though its leadership is lost.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, term int64) error, opts ...CampaignOption) error {
	o, err := e.campaignOptions(ctx, opts)
	switch {
	case err != nil:
	case fn == nil:
		err = fmt.Errorf("%w: fn is nil", errs.ErrInvalid)
	default:
		err = e.run(ctx, fn, o)
	}
	return e.wrap("run", err)
}

const (
	shortTerm = time.Second      // Run pauses after a term that was shorter
	outageLog = 10 * time.Second // between two lines about one outage
)

func (e *Election) run(ctx context.Context, fn func(context.Context, int64) error, o campaignOptions) error {
	now := e.core.Clock.Now
	logged := -outageLog
	for short := 0; ; short++ {
		l, err := e.campaign(ctx, o)
		switch {
		case err == nil:
			began := now()
			e.term(ctx, l, fn)
			if now()-began >= shortTerm {
				short = -1
				continue
			}
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errs.ErrClosed), errors.Is(err, errs.ErrInvalid), errors.Is(err, errs.ErrWrongType), errors.Is(err, ErrHeld):
			return err
		case now()-logged >= outageLog:
			logged = now()
			e.core.Logger.Warn("redlatch: a campaign has failed, and begins again", "kind", kinds.Election, "name", e.Name(), "cause", err)
		}
		if core.Pause(ctx, short) != nil {
			return nil
		}
	}
}

// term runs fn for one leadership.
func (e *Election) term(ctx context.Context, l *Leadership, fn func(context.Context, int64) error) {
	defer func() { _ = l.Resign(ctx) }() // a loss is logged, and a release goes on in the background
	err := fn(l.Context(), l.Term())
	e.core.Logger.Info("redlatch: a leader has returned", "kind", kinds.Election, "name", e.Name(), "term", l.Term(), "cause", err)
}
