package relection

import (
	_ "embed"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/fair"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed lead.lua
var leadSource string

//go:embed resign.lua
var resignSource string

//go:embed leader.lua
var leaderSource string

//go:embed enter.lua
var enterSource string

//go:embed leave.lua
var leaveSource string

//go:embed candidates.lua
var candidatesSource string

var (
	leadScript       = script.Embedded("relection.lead", &leadSource)
	resignScript     = script.Embedded("relection.resign", &resignSource)
	leaderScript     = script.Embedded("relection.leader", &leaderSource)
	enterScript      = script.Embedded("relection.enter", &enterSource)
	leaveScript      = script.Embedded("relection.leave", &leaveSource)
	candidatesScript = script.Embedded("relection.candidates", &candidatesSource)
)

// keys are those of an election, and its channel.
type keys struct{ lock, queue, timeouts, leader, candidates, channel string }

func keysOf(lock string) keys {
	queue, timeouts := fair.QueueKeys(lock)
	return keys{
		lock: lock, queue: queue, timeouts: timeouts,
		leader:     core.Prefixed("redlatch_election", lock),
		candidates: core.Prefixed("redlatch_election_candidates", lock),
		channel:    core.Prefixed("redlatch_election_channel", lock),
	}
}

// reign is for how long somebody leads, and which term it is. The zero value is that of one who has just got the lock.
type reign struct{ term, since int64 }

// said is a value with a number that decides which of two is newer.
type said struct {
	value   string
	version uint64
}

// lead writes down who leads, and keeps it for so long.
func (k keys) lead(owner string, r reign, s said, ttl time.Duration) *script.Call {
	return leadScript.Call(3, k.lock, k.leader, k.candidates, owner, r.term, r.since, s.value, s.version, k.channel, script.Millis(ttl))
}

// readReign reads the reply of lead.lua. It is the zero value for one who does not hold the lock.
func readReign(c *script.Call) (reign, error) {
	row := c.Row()
	r := reign{row.Int(), row.Int()}
	return r, row.Err()
}

func (k keys) resign(owner string) *script.Call {
	return resignScript.Call(1, k.leader, owner, k.channel)
}

func (k keys) whoLeads() *script.Call { return leaderScript.Call(2, k.lock, k.leader) }

// readLeader reads the reply of leader.lua.
func readLeader(c *script.Call) (Leader, error) {
	row := c.Row()
	if row.Err() == nil && !row.More() {
		return Leader{}, ErrNoLeader
	}
	l := Leader{ID: row.Text(), Value: row.Text(), Term: row.Int(), Since: time.UnixMicro(row.Int())}
	return l, row.Err()
}

func (k keys) enter(owner, value string, ttl time.Duration) *script.Call {
	return enterScript.Call(1, k.candidates, owner, value, script.Millis(ttl))
}

func (k keys) leave(owner string) *script.Call { return leaveScript.Call(1, k.candidates, owner) }

func (k keys) waiting() *script.Call {
	return candidatesScript.Call(3, k.queue, k.timeouts, k.candidates)
}

// readCandidates reads the reply of candidates.lua.
func readCandidates(c *script.Call) (all []Candidate, err error) {
	row := c.Row()
	for row.More() {
		all = append(all, Candidate{ID: row.Text(), Value: row.Text()})
	}
	return all, row.Err()
}
