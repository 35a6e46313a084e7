package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rbarrier"
)

// refusals are what may happen to the repetition of a call: a reply, or what is done to the connections, and its end.
var refusals = map[string]struct {
	reply string
	begin func(p *refusedPeer) (end func())
}{
	"READONLY": {reply: "READONLY You can't write against a read only replica."},
	"NOPERM":   {reply: "NOPERM this user has no permissions to run the 'evalsha' command"},
	"NOAUTH":   {reply: "NOAUTH Authentication required."},
	"OOM":      {reply: "OOM command not allowed when used memory > 'maxmemory'."},
	"LOADING":  {reply: "LOADING Redis is loading the dataset in memory"},
	"MISCONF":  {reply: "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."},
	"refused": {begin: func(p *refusedPeer) func() {
		p.Refuse(true)
		return func() { p.Refuse(false) }
	}},
	"pool": {begin: func(p *refusedPeer) func() {
		p.full.Store(true)
		return func() { p.full.Store(false) }
	}},
}

// refusedPeer is a client whose pool has no connection left while it is full. In a bubble go-redis cannot wait for one itself: its timers
// are shared by all bubbles.
type refusedPeer struct {
	*locktest.Peer
	full atomic.Bool
}

func newRefusedPeer(t *testing.T, b *locktest.Bubble) *refusedPeer {
	t.Helper()
	p := &refusedPeer{}
	p.Peer = b.Peer(t, redlatch.WithHooks(p), redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
	return p
}

func (p *refusedPeer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *refusedPeer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !p.full.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(redis.ErrPoolTimeout)
		return redis.ErrPoolTimeout
	}
}

func (p *refusedPeer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !p.full.Load() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(redis.ErrPoolTimeout)
		}
		return redis.ErrPoolTimeout
	}
}

// obstacle is in the way of what a peer sends.
type obstacle struct {
	peer           *refusedPeer
	refusal, owner string
	lost           int

	mu            sync.Mutex // guards the rest: calls of several connections come at the same time
	sent, refused int
	over          bool
	end           func()
}

// obstruct has the peer's next scripts pass, as many as are skipped; those after them run, and lose their replies; what comes then is
// refused. Only scripts count that have an argument which begins with the owner.
func (p *refusedPeer) obstruct(b *locktest.Bubble, refusal, owner string, skip, lost int) *obstacle {
	o := &obstacle{peer: p, refusal: refusal, owner: owner, lost: lost, sent: -skip, end: func() {}}
	if lost == 0 {
		if refusal != "pool" { // which sends nothing
			p.Cut()
		}
		o.begin()
	}
	b.Mini.Server().SetPreHook(o.refuses)
	if skip == 0 {
		p.LoseReplies(lost)
	}
	return o
}

func (o *obstacle) begin() {
	if begin := refusals[o.refusal].begin; begin != nil {
		o.end = begin(o.peer)
	}
}

func (o *obstacle) refuses(conn *server.Peer, cmd string, args ...string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, o.owner) })
	if !strings.HasPrefix(cmd, "EVAL") || !of || o.over {
		return false
	}
	if o.sent++; o.sent == 0 {
		o.peer.LoseReplies(o.lost)
	}
	if o.sent == o.lost {
		o.begin()
	}
	reply := refusals[o.refusal].reply
	if o.sent <= o.lost || reply == "" {
		return false
	}
	o.refused++
	conn.WriteError(reply)
	return true
}

// lift ends the refusals.
func (o *obstacle) lift() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.over = true
		o.end()
	}
}

// F2, F25: whoever repeats a call after an error that is not ErrUnknown never acts twice, whatever refuses the repetition of one whose
// reply was lost.
func TestRefusedRepetitionsLeaveDoneOrNotDone(t *testing.T) {
	for _, c := range slices.Concat(lockChanges(), permitChanges(), semaphoreChanges(), latchChanges(), queueChanges(), onceChanges(), electionChanges(), jobChanges(), limitChanges()) {
		for refusal := range refusals {
			for _, lost := range []int{1, 0, 2}[:faulttest.Rounds(t, 1, 3)] {
				if lost == 0 && c.skip > 0 {
					continue // the scripts before it would be refused
				}
				t.Run(fmt.Sprint(c.name, " ", refusal, " ", lost), func(t *testing.T) {
					t.Parallel()
					locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) { c.refused(t, b, refusal, lost) })
				})
			}
		}
	}
}

// F2, F25: a participant whose error is not ErrUnknown has not completed the round for the others, whatever refuses the repetition of a
// call whose reply was lost.
func TestRefusedRepetitionsLeaveARoundCompleteOrNot(t *testing.T) {
	for kind, newcomer := range pairs {
		for _, verb := range []string{"enter", "leave"} {
			for refusal := range refusals {
				for _, lost := range []int{1, 0, 2}[:faulttest.Rounds(t, 1, 3)] {
					t.Run(fmt.Sprint(kind, " ", verb, " ", refusal, " ", lost), func(t *testing.T) {
						t.Parallel()
						locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) { refusedRound(t, b, newcomer, verb, refusal, lost) })
					})
				}
			}
		}
	}
}

func refusedRound(t *testing.T, b *locktest.Bubble, newcomer func(*redlatch.Client) participant, verb, refusal string, lost int) {
	t.Helper()
	p := newRefusedPeer(t, b)
	first, last := newcomer(b.Peer(t).Client), newcomer(p.Client)
	passed := make(chan error, 1)
	type verbOf = func(participant, context.Context) error
	start := func(call verbOf) {
		go func() { passed <- call(first, t.Context()) }()
		time.Sleep(time.Millisecond) // in the bubble: it waits
	}
	both := func(call verbOf) {
		start(call)
		require.NoError(t, errors.Join(call(last, t.Context()), <-passed))
	}
	both(participant.Enter)
	call := participant.Leave
	if verb == "enter" {
		both(call)
		call = participant.Enter
	}
	start(call)
	o := p.obstruct(b, refusal, p.ID(), 0, lost)
	err := call(last, t.Context())
	o.lift()
	if refusals[refusal].reply != "" {
		assert.Positive(t, o.refused, "nothing was refused")
	}
	time.Sleep(10 * time.Second) // in the bubble: a place that is not kept has ended
	var other error
	waits := false
	select {
	case other = <-passed:
	default:
		waits = true
	}
	switch {
	case err == nil:
		require.False(t, waits)
		require.NoError(t, other)
	case waits: // it has never come
		require.NoError(t, errors.Join(call(last, t.Context()), <-passed))
	case !errors.Is(err, redlatch.ErrUnknown) || other != nil:
		require.ErrorIs(t, other, rbarrier.ErrBroken, "after %v", err)
	}
}
