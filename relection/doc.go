// Package relection elects one leader among processes.
//
//	election := client.GetElection("scheduler")
//	lead, err := election.Campaign(ctx, relection.WithValue("web-3:8080")) // blocks until elected
//	if err != nil {
//		return err
//	}
//	defer lead.Resign(ctx)
//	return schedule(lead.Context(), lead.Term())
//
// [Election.Run] does this again and again. Any process may ask who leads ([Election.Leader]), follow it
// ([Election.Observe]), and see who is next ([Election.Candidates]).
//
// # What is promised
//
// The leader holds the fair lock of the election's name, with the client's lease, which is renewed: all that package rfairlock
// promises holds. Candidates are served in the order in which Redis has seen them, and dead ones are passed over. The context of a leader
// that cannot renew ends before anybody else can be elected.
//
// Each leader has a term, higher than all before it: the last one and 1, or the clock of Redis in microseconds if that is
// more, so that it also rises after Redis has forgotten the last one. Hand the term to what the leader writes to, which
// refuses one lower than the highest it has seen.
//
// The term and the value are written down after the lock was acquired, by a script that looks whether it is still held, and
// Campaign returns after that. In between, for a round trip, nobody leads ([ErrNoLeader]): the last leader is never named
// once it has lost the lock, and a new one never before its term is drawn.
//
// # What is not promised
//
// A process that stood still learns that it leads no more when it runs again: only what checks the term closes that gap. A
// master that fails over may forget a leader, whose context then ends at its next renewal.
// Who holds the fair lock of this name without a campaign keeps candidates out, and is no leader. ForceUnlock of that lock
// deposes a leader.
//
// # In Redis
//
// Beside the keys of the fair lock an election has two hashes. That of the leader, with the last term, expires a day after
// the last leader. That of the candidates' values expires 10 leases after the last candidate, and after a minute at least.
// Each of them writes its own again about once in a lease, so what somebody deletes comes back.
package relection
