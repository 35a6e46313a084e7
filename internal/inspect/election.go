package inspect

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/relection"
)

// Election is who leads, and who comes next.
type Election struct {
	Name       string
	Leader     *relection.Leader // nil if nobody leads
	Candidates []relection.Candidate
}

// ElectionOf asks for the state of an election.
func ElectionOf(ctx context.Context, c *redlatch.Client, name string) (Election, error) {
	e := Election{Name: name}
	election := c.GetElection(name)
	leader, err := election.Leader(ctx)
	switch {
	case err == nil:
		e.Leader = &leader
	case !errors.Is(err, relection.ErrNoLeader):
		return e, err
	}
	e.Candidates, err = election.Candidates(ctx)
	return e, err
}
