package relection_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/relection"
)

// F4
func TestObserversSeeThePresentStateAndEachChangeAtOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		one, two, third := b.Peer(t), b.Peer(t), b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		seen := []*observer{observe(ctx, election(third)), observe(ctx, election(one))}
		all := func(want ...any) {
			t.Helper()
			time.Sleep(moment)
			for _, o := range seen {
				o.saw(t, want...)
			}
		}
		all(relection.ErrNoLeader)
		l := lead(t, election(one), "a")
		all("a")
		require.NoError(t, l.Proclaim(t.Context(), "b"))
		all("b")
		require.NoError(t, l.Proclaim(t.Context(), "b"))
		all()
		resign(t, l)
		all(relection.ErrNoLeader)
		l = lead(t, election(two), "c")
		all("c")
		time.Sleep(time.Minute)
		all()
		seen = append(seen, observe(ctx, election(two)))
		seen[2].saw(t, "c")
		waiting := campaign(t.Context(), election(one), "d")
		all()
		resign(t, l)
		l = elected(t, waiting)
		time.Sleep(moment)
		for _, o := range seen { // whether or not it saw that for a moment nobody led
			o.mu.Lock()
			assert.Equal(t, "d", o.got[len(o.got)-1])
			o.got = nil
			o.mu.Unlock()
		}
		cancel()
		for _, o := range seen {
			<-o.ended
			o.saw(t)
		}
		time.Sleep(2 * time.Second)
		n, err := b.Redis.PubSubNumSub(t.Context(), channel).Result()
		require.NoError(t, err)
		assert.Zero(t, n[channel])
		resign(t, l)
	})
}

// F4
func TestSlowObserverSkipsStatesButGetsTheNewest(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := lead(t, election(b.Peer(t)), "0")
		var got []string
		for leader, err := range election(b.Peer(t)).Observe(t.Context()) {
			require.NoError(t, err)
			got = append(got, leader.Value)
			if leader.Value == "last" {
				break
			}
			for _, value := range []string{"1", "2", "3", "last"} {
				require.NoError(t, l.Proclaim(t.Context(), value))
			}
			time.Sleep(time.Minute)
		}
		assert.Equal(t, []string{"0", "last"}, got)
		resign(t, l)
	})
}

// F4, F1
func TestObserversNoticeWhatNobodyAnnounces(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, dead := b.Peer(t), b.Peer(t)
		seen := observe(t.Context(), election(p))
		seen.saw(t, relection.ErrNoLeader)
		l := lead(t, election(dead), "a")
		seen.saw(t, "a")
		dead.Refuse(true)
		dead.Blackhole(true)
		<-l.Context().Done()
		left := b.TTL(t, name)
		time.Sleep(left - time.Millisecond)
		seen.saw(t)
		time.Sleep(recheck + 10*time.Millisecond)
		seen.saw(t, relection.ErrNoLeader)

		l = lead(t, election(p), "b")
		seen.saw(t, "b")
		b.Delete(t, name)
		time.Sleep(recheck)
		seen.saw(t, relection.ErrNoLeader)
		require.ErrorIs(t, l.Resign(t.Context()), relection.ErrNotHeld)
	})
}

// F4
func TestObserverLooksAgainWhenItsConnectionIsBack(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := lead(t, election(b.Peer(t)), "a")
		seen := observe(t.Context(), election(p))
		seen.saw(t, "a")
		time.Sleep(time.Second)
		p.Refuse(true)
		p.Cut()
		synctest.Wait()
		require.NoError(t, l.Proclaim(t.Context(), "b")) // which nobody receives
		p.Refuse(false)
		time.Sleep(2 * time.Second)
		seen.saw(t, "b")
		resign(t, l)
		seen.saw(t, relection.ErrNoLeader)
	})
}

// F4
func TestNothingIsMissedBetweenTheFirstLookAndTheSubscription(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := lead(t, election(b.Peer(t)), "0")
		for i := range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			o := &observer{ended: make(chan struct{})}
			p := b.Peer(t)
			go func() {
				defer close(o.ended)
				for leader, err := range election(p).Observe(ctx) {
					assert.NoError(t, err)
					o.mu.Lock()
					o.got = append(o.got, leader.Value)
					o.mu.Unlock()
				}
			}()
			value := string(rune('a' + i))
			require.NoError(t, l.Proclaim(t.Context(), value))
			time.Sleep(moment)
			o.mu.Lock()
			require.Equal(t, value, o.got[len(o.got)-1])
			o.mu.Unlock()
			cancel()
			<-o.ended
			require.NoError(t, p.Close())
		}
		resign(t, l)
	})
}

// F27
func TestObserverSeesAnOutageOnceAndGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := lead(t, election(b.Peer(t)), "a")
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour) // which does not keep it from noticing
		defer cancel()
		seen := observe(ctx, election(p))
		seen.saw(t, "a")
		for _, outage := range []func(bool){p.Refuse, p.Blackhole} {
			outage(true)
			p.Cut()
			time.Sleep(2 * time.Minute)
			seen.saw(t, redlatch.ErrUnavailable)
			outage(false)
			time.Sleep(30 * time.Second)
			seen.saw(t, "a")
		}
		resign(t, l)
		seen.saw(t, relection.ErrNoLeader)
	})
}

// F21
func TestObserverCostsAboutOneCommandASecond(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		seen := observe(t.Context(), election(p))
		seen.saw(t, relection.ErrNoLeader)
		before := p.Scripts()
		time.Sleep(time.Minute)
		assert.InDelta(t, 60, p.Scripts()-before, 12)
	})
}
