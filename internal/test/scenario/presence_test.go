package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlock"
)

// ids returns the ids of the clients that one of them sees.
func ids(t *testing.T, c *redlatch.Client) []string {
	t.Helper()
	all, err := c.Clients(t.Context())
	require.NoError(t, err)
	var ids []string
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	return ids
}

func TestClientsInUseAreSeenAndSayWhatTheyHold(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	onEachTopology(t, func(t *testing.T, w *watched) {
		prefix := redlatch.WithNamePrefix(fresh(t) + "?")
		client := func(name string) *redlatch.Client {
			return w.client(prefix, redlatch.WithClientName(name), redlatch.WithCallSites())
		}
		holder, waiter, viewer := client("holder"), client("waiter"), client("viewer")
		hold, err := holder.GetMultiLock(holder.GetLock("n"), holder.GetFairLock("other")).Lock(t.Context())
		require.NoError(t, err)
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := waiter.GetLock("n").Lock(ctx); ended <- err }()
		redistest.Eventually(t, 15*time.Second, "both are seen", func() error {
			if seen := ids(t, viewer); len(seen) != 2 {
				return fmt.Errorf("%v are seen", seen)
			}
			return nil
		})
		assert.Equal(t, []string{holder.ID(), waiter.ID()}, ids(t, viewer))
		all, err := viewer.Clients(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "holder", all[0].Name)

		r, err := viewer.Ask(t.Context(), holder.ID())
		require.NoError(t, err)
		host, _ := os.Hostname()
		assert.Equal(t, []any{holder.ID(), runtime.Version(), host, os.Getpid(), 2, 0}, []any{r.ID, r.Go, r.Host, r.PID, r.HoldCount, r.WaitCount})
		require.Len(t, r.Holds, 2)
		assert.ElementsMatch(t, []string{"n", "other"}, []string{r.Holds[0].Name, r.Holds[1].Name})
		for i, h := range r.Holds {
			assert.Equal(t, 1, h.Levels)
			assert.WithinDuration(t, holder.Holds()[i].Since, h.Since, time.Second)
			assert.Positive(t, h.Left)
			assert.Contains(t, h.Site, "presence_test.go:")
			assert.True(t, strings.HasPrefix(h.Owner, holder.ID()+":"))
		}
		r, err = viewer.Ask(t.Context(), waiter.ID())
		require.NoError(t, err)
		require.Len(t, r.Waits, 1)
		assert.Equal(t, []string{"lock", "n"}, []string{r.Waits[0].Kind, r.Waits[0].Name})
		assert.Contains(t, r.Waits[0].Site, "presence_test.go:")

		_, err = viewer.Ask(t.Context(), viewer.ID())
		require.ErrorIs(t, err, redlatch.ErrNotListening)
		assert.NotContains(t, err.Error(), "no answer", "it is known at once that nobody listens")
		giveUp()
		require.ErrorIs(t, <-ended, context.Canceled)
		locktest.Unlock(t, hold)
	})
}

// A client looks each three seconds whether it holds or waits for something. It listens once it does, and for half a minute after it did.
func TestClientListensWhileItIsInUse(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, viewer, silent := b.Peer(t), b.Peer(t), b.Peer(t, redlatch.WithoutPresence())
		hold := locktest.Acquire(t, t.Context(), c.GetLock("n"))
		unseen := locktest.Acquire(t, t.Context(), silent.GetLock("unseen"))
		time.Sleep(2900 * time.Millisecond)
		assert.Empty(t, ids(t, viewer.Client))
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, []string{c.ID()}, ids(t, viewer.Client))
		time.Sleep(time.Hour)
		assert.Equal(t, []string{c.ID()}, ids(t, viewer.Client))
		locktest.Unlock(t, hold)
		time.Sleep(20 * time.Second)
		assert.Equal(t, []string{c.ID()}, ids(t, viewer.Client))
		hold = locktest.Acquire(t, t.Context(), c.GetLock("n"))
		time.Sleep(20 * time.Second)
		locktest.Unlock(t, hold)
		time.Sleep(25 * time.Second)
		assert.Equal(t, []string{c.ID()}, ids(t, viewer.Client))
		time.Sleep(10 * time.Second)
		assert.Empty(t, ids(t, viewer.Client))

		_, err := viewer.GetCountDownLatch("latch").TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		ctx, giveUp := context.WithTimeout(t.Context(), 10*time.Second)
		defer giveUp()
		waits := make(chan error, 1)
		go func() { waits <- c.GetCountDownLatch("latch").Await(ctx) }()
		time.Sleep(5 * time.Second)
		assert.Contains(t, ids(t, viewer.Client), c.ID())
		require.ErrorIs(t, <-waits, context.DeadlineExceeded)
		locktest.Unlock(t, unseen)
	})
}

func TestAnswerSaysVersionUptimeAndRenewals(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const before, held = 1500 * time.Millisecond, 5 * lease
		c, viewer := b.Peer(t), b.Peer(t)
		time.Sleep(before)
		locktest.Acquire(t, t.Context(), c.GetLock("n"))
		time.Sleep(held)
		r, err := viewer.Ask(t.Context(), c.ID())
		require.NoError(t, err)
		info, ok := debug.ReadBuildInfo()
		require.True(t, ok)
		assert.Equal(t, info.Main.Version, r.Version)
		assert.Equal(t, before+held, r.Up)
		require.Len(t, r.Holds, 1)
		assert.Equal(t, c.Holds()[0].Renewed, r.Holds[0].Renewed)
		assert.InDelta(t, 15, r.Holds[0].Renewed, 1.1, "three times in a lease")
	})
}

// Once a client listens, it sends nothing for that but the PING of an idle subscription. It has one channel, whatever it holds.
func TestPresenceSendsNothingWhileIdle(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		seen, silent := b.Peer(t), b.Peer(t, redlatch.WithoutPresence())
		for _, p := range []*locktest.Peer{seen, silent} {
			for i := range 3 {
				locktest.Acquire(t, t.Context(), p.GetLock(fmt.Sprint(p.ID(), i)), rlock.WithFixedLease(24*time.Hour))
			}
		}
		time.Sleep(time.Minute)
		channels, err := b.Redis.PubSubChannels(t.Context(), "*").Result()
		require.NoError(t, err)
		assert.Equal(t, []string{"redlatch_client:" + seen.ID()}, channels)
		assert.Equal(t, 1, seen.Count("subscribe"))
		before := len(silent.Sent())
		sent, pings := len(seen.Sent()), seen.Count("ping")
		time.Sleep(time.Hour)
		pings = seen.Count("ping") - pings
		assert.Equal(t, before, len(silent.Sent()), "commands of a client without presence")
		assert.Equal(t, pings, len(seen.Sent())-sent, "commands beside PING")
		assert.LessOrEqual(t, pings, int(time.Hour/(15*time.Second)), "one for each 15 s of silence")
	})
}

// Names, presence and observers are no reason for a third command.
func TestPairIsTwoCommandsHoweverItIsWatched(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{
		"as it comes":      nil,
		"without presence": {redlatch.WithoutPresence()},
		"watched": {
			redlatch.WithClientName("web"), redlatch.WithCallSites(), redlatch.WithSlowLog(time.Minute, time.Minute),
			redlatch.WithObserver(redlatch.Observer{
				AcquireStart: func(ctx context.Context, _ redlatch.AcquireStartEvent) context.Context { return ctx },
				AcquireEnd:   func(context.Context, redlatch.AcquireEndEvent) {},
				HoldEnd:      func(context.Context, redlatch.HoldEndEvent) {},
				ScriptStart:  func(ctx context.Context, _ redlatch.ScriptStartEvent) context.Context { return ctx },
				ScriptEnd:    func(context.Context, redlatch.ScriptEndEvent) {},
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, opts...)
				kept := locktest.Acquire(t, t.Context(), p.GetLock("kept"), rlock.WithFixedLease(24*time.Hour))
				locktest.Free(t, p.GetLock("n")) // Redis knows the scripts
				time.Sleep(4 * time.Second)      // the client listens
				before := len(p.Sent())
				for range 100 {
					locktest.Unlock(t, locktest.Acquire(t, t.Context(), p.GetLock("n")))
				}
				sent := p.Sent()[before:]
				assert.Len(t, sent, 200)
				assert.Equal(t, []string{"evalsha"}, slices.Compact(sent))
				locktest.Unlock(t, kept)
			})
		})
	}
}

// A pair has had 21 allocations since before clients listened, at most 19 where the context cannot end. A client that has a name, is
// listed and has an observer without functions needs no more.
func TestPairAllocatesNoMoreThanItDid(t *testing.T) {
	c, err := redlatch.New(redistest.Start(t).Client(t), redlatch.WithClientName("web"), redlatch.WithObserver(redlatch.Observer{}))
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	lock, runs := c.GetLock("n"), faulttest.Rounds(t, 500, 5000)
	if faulttest.Soaking() { // it takes 3 to 8 s, in which no other test may run
		locktest.Acquire(t, t.Context(), c.GetLock("kept"))
		redistest.Eventually(t, 15*time.Second, "it is listed", func() error {
			if seen := ids(t, c); !slices.Equal(seen, []string{c.ID()}) {
				return fmt.Errorf("%v are listed", seen)
			}
			return nil
		})
	}
	for most, ctx := range map[float64]context.Context{21: t.Context(), 19: context.Background()} {
		assert.LessOrEqual(t, testing.AllocsPerRun(runs, func() {
			locktest.Unlock(t, locktest.Acquire(t, ctx, lock))
		}), most)
	}
}

// What a client says of itself has no payload, no argument of its program and nothing of its environment.
func TestAnswersTellNoSecrets(t *testing.T) {
	t.Setenv("REDLATCH_SECRET", "of-the-environment")
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, viewer := b.Peer(t, redlatch.WithCallSites()), b.Peer(t)
		q := redlatch.GetDelayedQueue[string](c.Client, "mails")
		_, err := q.Offer(t.Context(), "of-the-payload", 0)
		require.NoError(t, err)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		lead, err := c.GetElection("leader").Campaign(t.Context(), relection.WithValue("of-the-leader"))
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		answers := b.Redis.PSubscribe(t.Context(), "redlatch_reply:*")
		defer func() { assert.NoError(t, answers.Close()) }()
		_, err = answers.Receive(t.Context())
		require.NoError(t, err)
		r, err := viewer.Ask(t.Context(), c.ID())
		require.NoError(t, err)
		require.Equal(t, 2, r.HoldCount, "the message and the leader")
		answer, err := answers.ReceiveMessage(t.Context())
		require.NoError(t, err)
		assert.Contains(t, answer.Payload, "mails")
		for _, secret := range append([]string{"of-the-environment", "of-the-payload", "of-the-leader"}, os.Args[1:]...) {
			assert.NotContains(t, answer.Payload, secret)
		}
		require.NoError(t, m.Ack(t.Context()))
		require.NoError(t, lead.Resign(t.Context()))
	})
}

func TestClientsTellWhatTheyHaveLost(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, viewer := b.Peer(t, redlatch.WithCallSites()), b.Peer(t)
		locktest.Acquire(t, t.Context(), c.GetLock("kept"))
		for i := range 103 {
			name := fmt.Sprint("lost", i)
			hold := locktest.Acquire(t, t.Context(), c.GetFairLock(name))
			_, err := viewer.GetFairLock(name).ForceUnlock(t.Context())
			require.NoError(t, err)
			<-hold.Context().Done()
		}
		at := time.Now()
		time.Sleep(time.Minute)
		r, err := viewer.Ask(t.Context(), c.ID())
		require.NoError(t, err)
		assert.Equal(t, 103, r.LossCount)
		require.Len(t, r.Losses, 100)
		newest := r.Losses[0]
		assert.Equal(t, []string{"fair_lock", "lost102"}, []string{newest.Kind, newest.Name})
		assert.True(t, strings.HasPrefix(newest.Owner, c.ID()+":"))
		assert.WithinDuration(t, at, newest.At, time.Millisecond)
		assert.Positive(t, newest.Held)
		assert.Contains(t, newest.Site, "presence_test.go:")
		assert.Contains(t, newest.Cause, "taken away")
		assert.Equal(t, "lost3", r.Losses[99].Name)
	})
}

// However a lock is lost, the client can say by what and where it was acquired.
func TestLossesTellTheirCauseAndTheLine(t *testing.T) {
	const ended, gone = "the lease ended", "Redis has it no longer"
	steps := map[string]struct {
		cause string
		lose  func(t *testing.T, c, operator *locktest.Peer, hold *rlock.Hold)
	}{
		"taken": {gone, func(t *testing.T, _, operator *locktest.Peer, _ *rlock.Hold) {
			_, err := operator.GetLock("n").ForceUnlock(t.Context())
			require.NoError(t, err)
			time.Sleep(lease)
		}},
		"found by Unlock": {gone, func(t *testing.T, _, operator *locktest.Peer, hold *rlock.Hold) {
			_, err := operator.GetLock("n").ForceUnlock(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrNotHeld)
		}},
		"cut off": {"could not be renewed", func(_ *testing.T, c, _ *locktest.Peer, _ *rlock.Hold) {
			c.Blackhole(true)
			time.Sleep(2 * lease)
			c.Blackhole(false)
		}},
		"its lease": {ended, func(t *testing.T, _, _ *locktest.Peer, hold *rlock.Hold) {
			require.NoError(t, hold.Extend(t.Context(), time.Second))
			time.Sleep(2 * time.Second)
		}},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var log logbook
				c, viewer := b.Peer(t, redlatch.WithCallSites(), log.option()), b.Peer(t)
				kept := locktest.Acquire(t, t.Context(), c.GetLock("kept"), rlock.WithFixedLease(time.Hour))
				time.Sleep(time.Millisecond)
				hold := locktest.Acquire(t, t.Context(), c.GetLock("n"))
				site := c.Holds()[1].Site
				time.Sleep(4 * time.Second)
				step.lose(t, c, b.Peer(t), hold)
				time.Sleep(time.Minute)
				r, err := viewer.Ask(t.Context(), c.ID())
				require.NoError(t, err)
				require.Len(t, r.Losses, 1)
				assert.Equal(t, site, r.Losses[0].Site)
				assert.Contains(t, r.Losses[0].Cause, step.cause)
				assert.Empty(t, r.Failovers)
				for _, line := range log.take() {
					if line["msg"] == "redlatch: a lock was lost" {
						assert.Equal(t, site, line["site"])
					}
				}
				locktest.Unlock(t, kept)
			})
		})
	}
}

func TestAskListsTheLongestHoldsAndCountsAll(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c, viewer := b.Peer(t), b.Peer(t)
		var names []string
		for i := range 1010 {
			names = append(names, fmt.Sprint("n", i))
			locktest.Acquire(t, t.Context(), c.GetLock(names[i]))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		r, err := viewer.Ask(t.Context(), c.ID())
		require.NoError(t, err)
		assert.Equal(t, 1010, r.HoldCount)
		var listed []string
		for _, h := range r.Holds {
			listed = append(listed, h.Name)
		}
		assert.Equal(t, names[:1000], listed)
	})
}

// Whoever may publish can ask: what is no question has no answer, and too many questions have none.
func TestQuestionsAreTakenAsHostile(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		hold := locktest.Acquire(t, t.Context(), c.GetLock("n"))
		time.Sleep(4 * time.Second)
		all := b.Redis.PSubscribe(t.Context(), "*")
		defer func() { require.NoError(t, all.Close()) }()
		_, err := all.Receive(t.Context())
		require.NoError(t, err)
		heard := all.Channel()
		answers := func(question string) (channels []string) {
			require.NoError(t, b.Redis.Publish(t.Context(), "redlatch_client:"+c.ID(), question).Err())
			synctest.Wait()
			for len(heard) > 0 {
				if m := <-heard; m.Payload != question {
					channels = append(channels, m.Channel)
				}
			}
			return channels
		}
		const asker, nonce = "me.0123456789abcdef", "00112233445566778899aabbccddeeff"
		ask := func(v int, from, nonce string, name string) string {
			return fmt.Sprint(v, " ", from, " ", nonce, " ", name)
		}
		for name, bad := range map[string]string{
			"one word":             "hello",
			"empty":                "",
			"another version":      ask(2, asker, nonce, ""),
			"another channel":      ask(1, "me:{x}.0123456789abcdef", nonce, ""),
			"no client":            ask(1, "me", nonce, ""),
			"a short nonce":        ask(1, asker, "0011", ""),
			"a nonce with a colon": ask(1, asker, "00112233445566778899aabbccddee:f", ""),
			"long":                 ask(1, asker, nonce, strings.Repeat("x", 4096)),
		} {
			assert.Empty(t, answers(bad), name)
		}
		assert.Equal(t, []string{"redlatch_reply:" + asker + ":" + nonce}, answers(ask(1, asker, nonce, "x")))
		time.Sleep(time.Second)
		answered := func(questions int) (n int) {
			for range questions {
				n += len(answers(ask(1, asker, nonce, "")))
			}
			return n
		}
		assert.Equal(t, 1, answered(1))
		time.Sleep(900 * time.Millisecond)
		assert.Equal(t, 9, answered(50), "ten within a second")
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, 1, answered(50), "the first one was more than a second ago")
		locktest.Unlock(t, hold)
	})
}

// An answer that is forged, or garbage, is left out; the one that belongs to the client that was asked counts.
func TestAskEndsWithoutAnAnswer(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		viewer := b.Peer(t)
		const gone = "gone.0123456789abcdef"
		_, err := viewer.Ask(t.Context(), gone)
		require.ErrorIs(t, err, redlatch.ErrNotListening)
		require.NotErrorIs(t, err, redlatch.ErrUnavailable, "Redis has answered")
		for _, bad := range []string{"", "gone", "gone.0123", "a b.0123456789abcdef", strings.Repeat("x", 60) + ".0123456789abcdef"} {
			_, err = viewer.Ask(t.Context(), bad)
			require.ErrorIs(t, err, redlatch.ErrInvalid, bad)
		}

		mute := b.Redis.Subscribe(t.Context(), "redlatch_client:"+gone)
		defer func() { require.NoError(t, mute.Close()) }()
		_, err = mute.Receive(t.Context())
		require.NoError(t, err)
		_ = mute.Channel() // it reads
		began := time.Now()
		_, err = viewer.Ask(t.Context(), gone)
		require.ErrorIs(t, err, redlatch.ErrNotListening)
		assert.Equal(t, 3*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = viewer.Ask(ctx, gone)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		viewer.Blackhole(true)
		began = time.Now()
		_, err = viewer.Ask(t.Context(), gone)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(began), 11*time.Second)
		viewer.Blackhole(false)
	})
}

// F20
func TestRefusedChannelIsAskedForOnceAnHour(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		hold := locktest.Acquire(t, t.Context(), c.GetLock("n"))
		tries := 0
		b.Mini.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
			if cmd != "SUBSCRIBE" || !strings.HasPrefix(args[0], "redlatch_client:") {
				return false
			}
			tries++
			peer.WriteError("NOPERM this user has no permissions to access one of the channels used as arguments")
			return true
		})
		time.Sleep(50 * time.Minute)
		assert.Equal(t, 1, tries)
		time.Sleep(50 * time.Minute)
		assert.Equal(t, 2, tries)
		locktest.Unlock(t, hold)
		lines := log.take()
		require.Len(t, lines, 1, "of both")
		assert.Equal(t, "redlatch: subscription refused", lines[0]["msg"])
	})
}

// A user without the right to its channel is none the worse for it.
//
// F20
func TestClientWithoutTheRightToItsChannelGoesOn(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "limited", "on", ">pass", "~*", "resetchannels", "&redisson_*", "+@all").Err())
	opts := *server.Client(t).Options()
	opts.Username, opts.Password = "limited", "pass"
	rdb := redis.NewClient(&opts)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	var log logbook
	c, err := redlatch.New(rdb, log.option())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	hold := locktest.Acquire(t, t.Context(), c.GetLock("n"))
	redistest.Eventually(t, 10*time.Second, "the refusal is logged", func() error {
		for _, line := range log.take() {
			if line["msg"] == "redlatch: subscription refused" {
				return nil
			}
		}
		return errors.New("it is not")
	})
	waiter, err := redlatch.New(server.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, waiter.Close()) })
	got := make(chan error, 1)
	go func() {
		h, err := waiter.GetLock("n").Lock(t.Context())
		if err == nil {
			err = h.Unlock(t.Context())
		}
		got <- err
	}()
	redistest.AwaitChannels(t, admin, 1)
	locktest.Unlock(t, hold)
	require.NoError(t, next(t, got))
}
