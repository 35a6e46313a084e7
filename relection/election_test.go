package relection_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/relection"
)

// F11
func TestCandidatesLeadInOrderWithRisingTerms(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		one, two := election(b.Peer(t)), election(b.Peer(t))
		nobodyLeads(t, one)
		assert.Empty(t, values(t, one))
		begin := time.Now()
		l := lead(t, one, "a")
		leader, err := two.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, relection.Leader{ID: l.ID(), Value: "a", Term: l.Term(), Since: begin}, leader)

		var waiting []<-chan result
		want := []string{"b", "c", "", "d 9\x00\n"}
		for i, value := range want {
			waiting = append(waiting, campaign(t.Context(), []*relection.Election{one, two}[i%2], value))
		}
		assert.Equal(t, want, values(t, one))
		queued, err := two.Candidates(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Minute) // values last as long as their candidates
		for i, value := range want {
			assert.Equal(t, want[i:], values(t, two))
			before := l
			resign(t, l)
			l = elected(t, waiting[i])
			assert.Greater(t, l.Term(), before.Term())
			assert.Equal(t, queued[i].ID, l.ID())
			leads(t, two, l, value)
			locktest.Ended(t, before.Context(), relection.ErrResigned)
			locktest.Live(t, l.Context())
		}
		resign(t, l)
		synctest.Wait()
		nobodyLeads(t, one)
		assert.Equal(t, []string{record}, b.Keys(t))
		assert.Len(t, b.Hash(t, record), 1, "the last term")
		time.Sleep(25 * time.Hour)
		assert.Empty(t, b.Keys(t))
	})
}

func TestCandidatesQueueInRedissonsLayoutToo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		e := election(b.Peer(t, redlatch.WithRedissonFairQueue()))
		l := lead(t, e, "a")
		second, third := campaign(t.Context(), e, "b"), campaign(t.Context(), e, "c")
		assert.Equal(t, []string{"b", "c"}, values(t, e))
		resign(t, l)
		l = elected(t, second)
		leads(t, e, l, "b")
		resign(t, l)
		resign(t, elected(t, third))
		nobodyLeads(t, e)
	})
}

// F11
func TestDeadCandidatesArePassedOver(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, dead := b.Peer(t), b.Peer(t)
		e := election(p)
		l := lead(t, e, "a")
		gone := campaign(t.Context(), election(dead), "b")
		next := campaign(t.Context(), e, "c")
		behind := campaign(t.Context(), election(dead), "x")
		assert.Equal(t, []string{"b", "c", "x"}, values(t, e))
		dead.Refuse(true)
		dead.Blackhole(true)
		time.Sleep(deadTime + time.Second)
		assert.Equal(t, []string{"c"}, values(t, e))
		resign(t, l)
		l = elected(t, next)
		leads(t, e, l, "c")
		last := campaign(t.Context(), e, "d")
		assert.Len(t, b.Hash(t, candidates), 3)
		time.Sleep(15 * time.Minute)
		assert.Len(t, b.Hash(t, candidates), 1, "the leader sweeps what the dead left")
		assert.Equal(t, []string{"d"}, values(t, e))
		require.Error(t, (<-behind).err)
		require.Error(t, (<-gone).err, "it has waited for Redis for a lease")
		resign(t, l)
		resign(t, elected(t, last))
	})
}

// F1
func TestLeaderThatCannotRenewStopsBeforeTheNextIsElected(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		for range 10 {
			old, next := b.Peer(t), b.Peer(t)
			l := lead(t, election(old), "old")
			waiting := campaign(t.Context(), election(next), "next")
			time.Sleep(rand.N(time.Minute))
			old.Refuse(true)
			old.Blackhole(true)
			started := time.Now()
			after := elected(t, waiting)
			require.ErrorIs(t, context.Cause(l.Context()), relection.ErrLost)
			assert.Less(t, time.Since(started), lease+2*recheck)
			assert.Greater(t, after.Term(), l.Term())
			old.Refuse(false)
			old.Blackhole(false)
			require.ErrorIs(t, l.Proclaim(t.Context(), "late"), relection.ErrNotHeld)
			require.ErrorIs(t, l.Resign(t.Context()), relection.ErrNotHeld)
			leads(t, election(next), after, "next")
			resign(t, after)
		}
	})
}

// F1
func TestLeaderWhoseLockIsForcedOpenIsNoLeader(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, operator := b.Peer(t), b.Peer(t)
		l := lead(t, election(p), "a")
		forced, err := operator.GetFairLock(name).ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.True(t, forced)
		nobodyLeads(t, election(operator))
		// It does not know yet.
		require.ErrorIs(t, l.Proclaim(t.Context(), "still me"), relection.ErrNotHeld)
		next := lead(t, election(operator), "b")
		require.ErrorIs(t, l.Proclaim(t.Context(), "still me"), relection.ErrNotHeld)
		leads(t, election(p), next, "b")
		assert.Greater(t, next.Term(), l.Term())
		time.Sleep(lease / 2)
		require.ErrorIs(t, context.Cause(l.Context()), relection.ErrLost)
		require.ErrorIs(t, l.Resign(t.Context()), relection.ErrNotHeld)
		leads(t, election(p), next, "b")
		time.Sleep(10 * lease)
		leads(t, election(p), next, "b")
		resign(t, next)
	})
}

// F9
func TestTermsRiseWhateverRedisForgets(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		e := election(b.Peer(t))
		last := int64(0)
		for round, forget := range []func(){
			func() {},
			func() { b.Delete(t, record) },
			func() { time.Sleep(48 * time.Hour) }, // the keys have expired
			func() { require.NoError(t, b.Redis.FlushAll(t.Context()).Err()) },
			func() { // what another master has given out by a clock that is ahead
				last += time.Hour.Microseconds()
				require.NoError(t, b.Redis.HSet(t.Context(), record, "term", last).Err())
			},
			func() {},
		} {
			forget()
			l := lead(t, e, "")
			require.Greater(t, l.Term(), last, "round %d", round)
			if round == 4 {
				require.Equal(t, last+1, l.Term())
			}
			last = l.Term()
			resign(t, l)
			time.Sleep(time.Millisecond)
		}
	})
}

// F1, F2, F9
func TestTermsRiseOverChangesWithFaults(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		peers := []*locktest.Peer{b.Peer(t), b.Peer(t), b.Peer(t)}
		operator := b.Peer(t)
		var seen []int64
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() {
			for leader, err := range election(operator).Observe(ctx) {
				if err == nil {
					seen = append(seen, leader.Term)
				}
			}
		})
		now := peers[0]
		l := lead(t, election(now), "")
		terms := []int64{l.Term()}
		cutOff := func(on bool) {
			now.Refuse(on)
			now.Blackhole(on)
		}
		forced := func() {
			_, err := operator.GetFairLock(name).ForceUnlock(t.Context())
			require.NoError(t, err)
		}
		for change := range faulttest.Rounds(t, 60, 1000) {
			next := peers[(change+1)%len(peers)]
			waiting := campaign(t.Context(), election(next), "")
			time.Sleep(rand.N(lease))
			least := l.Term()
			fault := rand.N(10)
			switch fault {
			case 0:
				resign(t, l)
			case 1:
				cutOff(true)
			case 2:
				forced()
			case 3:
				next.LoseReplies(1 + rand.N(3)) // to acquire, and to draw the term
				resign(t, l)
			case 4:
				next.Withhold(1 + rand.N(3))
				resign(t, l)
			case 5:
				now.LoseReplies(1)
				resign(t, l)
			case 6:
				require.NoError(t, b.Redis.FlushAll(t.Context()).Err())
			case 7:
				b.Delete(t, record)
				resign(t, l)
			case 8:
				next.Cut()
				operator.Cut()
				resign(t, l)
			case 9: // another master has given out a term by a clock that is ahead
				least = time.Now().Add(10 * time.Millisecond).UnixMicro()
				require.NoError(t, b.Redis.HSet(t.Context(), record, "term", least).Err())
				resign(t, l)
			}
			after := elected(t, waiting)
			require.Greater(t, after.Term(), least, "change %d by fault %d", change, fault)
			if fault == 1 {
				require.Error(t, l.Context().Err(), "the next one leads")
				cutOff(false)
				time.Sleep(2 * time.Second) // for so long go-redis goes on as if it was refused
			}
			next.LoseReplies(0)
			next.Withhold(0)
			now.Deliver(t) // what it sent when it was a candidate
			leads(t, election(operator), after, "")
			now, l = next, after
			terms = append(terms, l.Term())
		}
		resign(t, l)
		time.Sleep(recheck)
		stop()
		watching.Wait()
		assert.IsIncreasing(t, seen, "as others saw them")
		assert.Subset(t, terms, seen)
		assert.Greater(t, len(seen), len(terms)/2)
	})
}

func TestNobodyLeadsUntilTheTermIsDrawn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		old, p := b.Peer(t), b.Peer(t)
		lead(t, election(old), "old")
		old.Refuse(true)
		old.Blackhole(true)
		hold := locktest.Acquire(t, t.Context(), p.GetFairLock(name)) // who has the lock without a campaign
		assert.Equal(t, "old", b.Hash(t, record)["value"])
		nobodyLeads(t, election(p))
		locktest.Unlock(t, hold)
	})
}

func TestProclaimedValueReplacesTheFirst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		e, other := election(p), election(b.Peer(t))
		l := lead(t, e, "1")
		require.NoError(t, l.Proclaim(t.Context(), "2"))
		leads(t, other, l, "2")
		require.NoError(t, l.Proclaim(t.Context(), ""))
		leads(t, other, l, "")

		// One whose request is on its way while a later one is answered.
		p.Withhold(1)
		require.NoError(t, l.Proclaim(t.Context(), "3"))
		require.NoError(t, l.Proclaim(t.Context(), "4"))
		assert.Equal(t, 1, p.Deliver(t))
		leads(t, other, l, "4")
		time.Sleep(10 * lease)
		leads(t, other, l, "4")
		resign(t, l)
		require.ErrorIs(t, l.Proclaim(t.Context(), "5"), relection.ErrNotHeld)
		require.ErrorIs(t, l.Resign(t.Context()), relection.ErrNotHeld)
		nobodyLeads(t, other)
	})
}

// F9, F19
func TestWhatIsDeletedComesBack(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		e := election(p)
		l := lead(t, e, "a")
		require.NoError(t, l.Proclaim(t.Context(), "b"))
		next := campaign(t.Context(), e, "next")
		before, err := e.Leader(t.Context())
		require.NoError(t, err)
		b.Delete(t, record)
		b.Delete(t, candidates)
		nobodyLeads(t, e)
		assert.Equal(t, []string{""}, values(t, e))
		time.Sleep(lease * 5 / 4)
		after, err := e.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, before, after, "the term too")
		assert.Equal(t, []string{"next"}, values(t, e))
		locktest.Live(t, l.Context())
		resign(t, l)
		resign(t, elected(t, next))
	})
}

// F2
func TestLostRepliesAreElectedOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		for n := range 8 {
			p := b.Peer(t)
			e, other := election(p), election(b.Peer(t))
			p.LoseReplies(n)
			l := lead(t, e, "a")
			leads(t, other, l, "a")
			assert.Equal(t, map[string]string{l.ID(): "1"}, b.Hash(t, name))
			p.LoseReplies(n % 3)
			require.NoError(t, l.Proclaim(t.Context(), "b"))
			leads(t, other, l, "b")
			p.LoseReplies(n % 4)
			resign(t, l)
			time.Sleep(time.Second)
			nobodyLeads(t, other)
			assert.Empty(t, values(t, other))
			assert.Equal(t, []string{record}, b.Keys(t))
			require.NoError(t, p.Close())
		}
	})
}

// F2, F25
func TestTermOfALostReplyIsTheOneThatWasDrawn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		e := election(p)
		for n := 1; n <= 4; n++ {
			p.HangReply(n) // to acquire, to draw the term
			done := make(chan result, 1)
			go func() {
				l, err := e.Campaign(t.Context())
				done <- result{l, err}
			}()
			seen := map[string]bool{}
			for ended := false; !ended; { // once more after its end, which may come at the moment of a look
				ended = len(done) > 0
				time.Sleep(50 * time.Millisecond)
				if said := b.Hash(t, record); said["owner"] != "" {
					seen[said["term"]] = true
				}
			}
			l := elected(t, done)
			require.Equal(t, map[string]bool{fmt.Sprint(l.Term()): true}, seen)
			p.HangReplies(0)
			resign(t, l)
			time.Sleep(10 * time.Second)
		}
	})
}

// F1
func TestCampaignGoesOnIfTheLockIsLostBeforeTheTermIsKnown(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		e := election(p)
		resign(t, lead(t, e, "")) // Redis knows the scripts
		time.Sleep(time.Second)
		p.HangReply(2) // to draw the term
		done := campaign(t.Context(), e, "a")
		drawn, err := e.Leader(t.Context())
		require.NoError(t, err)
		b.Delete(t, name)
		l := elected(t, done)
		leads(t, e, l, "a")
		assert.NotEqual(t, drawn.ID, l.ID())
		assert.Greater(t, l.Term(), drawn.Term)
		assert.Equal(t, map[string]string{l.ID(): "1"}, b.Hash(t, name))
		resign(t, l)
	})
}

// beforeTheTerm returns an election of a client that calls fn when it has the lock, before it draws the term.
func beforeTheTerm(t *testing.T, b *locktest.Bubble, fn func(p *locktest.Peer)) *relection.Election {
	var p *locktest.Peer
	p = b.Peer(t, redlatch.WithObserver(redlatch.Observer{AcquireEnd: func(_ context.Context, e redlatch.AcquireEndEvent) {
		if e.Err == nil {
			fn(p)
		}
	}}))
	return election(p)
}

// F3, F16, F26
func TestCampaignEndsWithItsContextBeforeTheTermIsKnown(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var silent *locktest.Peer
		e := beforeTheTerm(t, b, func(p *locktest.Peer) {
			silent = p
			p.Blackhole(true)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := e.Campaign(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		assert.LessOrEqual(t, time.Since(start), 350*time.Millisecond)
		silent.Blackhole(false)
		time.Sleep(10 * time.Second)
		assert.NotContains(t, b.Keys(t), name, "the lock is given back")
		nobodyLeads(t, election(b.Peer(t)))
	})
}

// F23
func TestCloseBeforeTheTermIsKnownIsErrClosed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		e := beforeTheTerm(t, b, func(p *locktest.Peer) {
			go func() { assert.NoError(t, p.Close()) }()
			time.Sleep(time.Millisecond) // it has begun
		})
		_, err := e.Campaign(t.Context())
		require.ErrorIs(t, err, redlatch.ErrClosed)
		require.NotErrorIs(t, err, context.Canceled)
		time.Sleep(10 * time.Second)
		assert.NotContains(t, b.Keys(t), name, "the lock is given back")
	})
}

// F3, F5
func TestCampaignThatIsCancelledLeavesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		holder, p := b.Peer(t), b.Peer(t)
		for range 50 {
			l := lead(t, election(holder), "a")
			ctx, cancel := context.WithCancel(t.Context())
			waiting := make(chan result, 1)
			go func() {
				l, err := election(p).Campaign(ctx, relection.WithValue("b"))
				waiting <- result{l, err}
			}()
			time.Sleep(rand.N(15 * time.Millisecond)) // its value is written after some
			release := time.AfterFunc(rand.N(3*time.Millisecond), func() { assert.NoError(t, l.Resign(context.WithoutCancel(t.Context()))) })
			time.Sleep(rand.N(3 * time.Millisecond))
			cancel()
			r := <-waiting
			if r.err == nil {
				require.NoError(t, r.lead.Resign(ctx), "also with a context that is done")
			} else {
				require.ErrorIs(t, r.err, context.Canceled)
			}
			time.Sleep(10 * time.Millisecond)
			release.Stop()
			synctest.Wait()
			require.Empty(t, values(t, election(p)))
			require.Equal(t, []string{record}, b.Keys(t))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l := lead(t, election(holder), "a")
		_, err := election(p).Campaign(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, `relection: campaign "e": context deadline exceeded`)
		resign(t, l)
	})
}

func TestLeadershipEndsWithResignNotWithTheContextItWasGiven(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		e := election(b.Peer(t))
		ctx, cancel := context.WithCancel(t.Context())
		l, err := e.Campaign(ctx)
		require.NoError(t, err)
		_, err = e.Campaign(l.Context())
		require.ErrorIs(t, err, relection.ErrHeld)
		assert.EqualError(t, err, `relection: campaign "e": leadership already held by this context`)
		cancel()
		locktest.Ended(t, l.Context(), context.Canceled)
		time.Sleep(time.Hour)
		leads(t, e, l, "")
		require.NoError(t, l.Proclaim(t.Context(), "winding down"))
		leads(t, e, l, "winding down")
		require.NoError(t, l.Resign(ctx))
		nobodyLeads(t, e)
	})
}

// F16
func TestCloseEndsLeadersAndCandidates(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t, redlatch.WithCloseGrace(time.Second)), b.Peer(t)
		l := lead(t, election(p), "a")
		mine, theirs := campaign(t.Context(), election(p), "b"), campaign(t.Context(), election(other), "c")
		running := make(chan error, 1)
		go func() {
			running <- election(p).Run(t.Context(), func(context.Context, int64) error { return nil })
		}()
		seen := observe(t.Context(), election(p))
		seen.saw(t, "a")
		go func() { assert.NoError(t, p.Close()) }()
		synctest.Wait()
		locktest.Ended(t, l.Context(), redlatch.ErrClosed)
		require.ErrorIs(t, (<-mine).err, redlatch.ErrClosed)
		require.ErrorIs(t, <-running, redlatch.ErrClosed)
		<-seen.ended
		seen.saw(t, redlatch.ErrClosed)
		leads(t, election(other), l, "a") // until it resigns, or the grace is over
		next := elected(t, theirs)
		assert.Greater(t, next.Term(), l.Term())
		require.Error(t, l.Proclaim(t.Context(), "late"))
		require.Error(t, l.Resign(t.Context()))
		leads(t, election(other), next, "c")
		_, err := election(p).Campaign(t.Context())
		require.ErrorIs(t, err, redlatch.ErrClosed)
		_, err = election(p).Leader(t.Context())
		require.ErrorIs(t, err, redlatch.ErrClosed)
		resign(t, next)
	})
}

// F21
func TestLeaderAndCandidatesCostLittle(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		resign(t, lead(t, election(p), "a")) // Redis knows the scripts
		time.Sleep(time.Second)
		before := p.Scripts()
		l := lead(t, election(p), "a")
		assert.Equal(t, before+2, p.Scripts())
		time.Sleep(time.Second)
		before = p.Scripts()
		time.Sleep(10 * time.Minute)
		// Renewals every third of the lease, and what is written again about once in a lease.
		assert.LessOrEqual(t, p.Scripts()-before, 60+30)
		resign(t, l)
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		fn := func(context.Context, int64) error { return nil }
		long := string(make([]byte, relection.MaxValue+1))
		campaign := func(e *relection.Election, ctx context.Context, opts ...relection.CampaignOption) error {
			_, err := e.Campaign(ctx, opts...)
			return err
		}
		leader := func(e *relection.Election, ctx context.Context) error {
			_, err := e.Leader(ctx)
			return err
		}
		e := election(p)
		for want, err := range map[string]error{
			`relection: campaign "": invalid argument: the name is empty`:                           leader(p.GetElection(""), t.Context()),
			`relection: campaign "a}": invalid argument: the name "a}" has a } outside a hash tag`:  campaign(p.GetElection("a}"), t.Context()),
			`relection: campaign "e": invalid argument: an option is nil`:                           campaign(e, t.Context(), nil),
			`relection: campaign "e": invalid argument: the value has 65537 bytes, more than 65536`: campaign(e, t.Context(), relection.WithValue(long)),
			`relection: campaign "e": invalid argument: the context is nil`:                         campaign(e, nil),
			`relection: run "e": invalid argument: fn is nil`:                                       e.Run(t.Context(), nil),
			`relection: run "e": invalid argument: the context is nil`:                              e.Run(nil, fn), //nolint:staticcheck // that is the point
			`relection: run "e": invalid argument: the value has 65537 bytes, more than 65536`:      e.Run(t.Context(), fn, relection.WithValue(long)),
		} {
			require.ErrorIs(t, err, redlatch.ErrInvalid)
			if want != `relection: campaign "": invalid argument: the name is empty` {
				assert.EqualError(t, err, want)
			}
		}
		for _, err := range p.GetElection("a}").Observe(t.Context()) {
			require.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		assert.Zero(t, p.Scripts())
		assert.Equal(t, name, e.Name())

		var none *relection.Leadership
		require.ErrorIs(t, none.Proclaim(t.Context(), ""), relection.ErrNotHeld)
		assert.EqualError(t, none.Resign(t.Context()), `relection: resign "": leadership not held`)
		locktest.Ended(t, none.Context(), relection.ErrNotHeld)
		assert.Zero(t, none.Term())
		assert.Empty(t, none.ID())

		l := lead(t, e, "")
		require.ErrorIs(t, l.Proclaim(t.Context(), long), redlatch.ErrInvalid)
		require.ErrorIs(t, l.Proclaim(nil, ""), redlatch.ErrInvalid) //nolint:staticcheck // that is the point
		require.ErrorIs(t, l.Resign(nil), redlatch.ErrInvalid)       //nolint:staticcheck // that is the point
		leads(t, e, l, "")
		resign(t, l)
	})
}

// F23
func TestNameOfAnotherKindIsRefused(t *testing.T) {
	for key, make := range map[string]func(context.Context, *redis.Client) error{
		name:       func(ctx context.Context, r *redis.Client) error { return r.Set(ctx, name, "x", 0).Err() },
		record:     func(ctx context.Context, r *redis.Client) error { return r.Set(ctx, record, "x", 0).Err() },
		candidates: func(ctx context.Context, r *redis.Client) error { return r.Set(ctx, candidates, "x", 0).Err() },
	} {
		t.Run(key, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				require.NoError(t, make(t.Context(), b.Redis))
				p := b.Peer(t)
				_, err := election(p).Campaign(t.Context())
				require.ErrorIs(t, err, redlatch.ErrWrongType)
				require.ErrorIs(t, election(p).Run(t.Context(), func(context.Context, int64) error { return nil }), redlatch.ErrWrongType)
				time.Sleep(time.Second)
				assert.Equal(t, []string{key}, b.Keys(t), "the lock is free again")
			})
		})
	}
}
