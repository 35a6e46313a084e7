package redlatchgocron

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redlatch/redlatch/relection"
)

// ErrNotLeader is returned by [Elector.IsLeader] if this process does not lead.
var ErrNotLeader = errors.New("redlatchgocron: this process does not lead")

// Elector is a gocron.Elector, for gocron.WithDistributedElector: the leader of an election runs the jobs. It is safe for concurrent use.
//
// The leadership may be lost while a job runs. A job that must not go on then hands [Elector.Term] to what it writes to.
type Elector struct {
	election *relection.Election
	options  []relection.CampaignOption
	leads    atomic.Pointer[leadership] // nil if this process does not lead
}

// leadership is one term of this process.
type leadership struct {
	term  int64
	ended func() error
}

// NewElector returns the elector of a process in an election. It does not campaign until [Elector.Run].
func NewElector(election *relection.Election, opts ...relection.CampaignOption) *Elector {
	return &Elector{election: election, options: opts}
}

// Run campaigns, and leads when it is elected, again and again, until ctx is done; then it resigns and returns nil. It is called once.
// It fails as Run of a relection.Election does.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(ctx context.Context, term int64) error {
		e.leads.Store(&leadership{term, ctx.Err})
		defer e.leads.Store(nil)
		<-ctx.Done()
		return nil
	}, e.options...)
}

// IsLeader returns nil while this process leads, and [ErrNotLeader] while it does not. It does no I/O. A process that lost Redis
// leads no more before another one can.
func (e *Elector) IsLeader(context.Context) error {
	if e.Term() == 0 {
		return ErrNotLeader
	}
	return nil
}

// Term returns the number of the leadership while this process leads, higher than that of all leaders before: a fencing token. It is 0
// while it does not lead.
func (e *Elector) Term() int64 {
	l := e.leads.Load()
	if l == nil || l.ended() != nil {
		return 0
	}
	return l.term
}
