package rtopic_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rtopic"
)

func topic(p *locktest.Peer) *rtopic.Topic[int] { return redlatch.GetTopic[int](p.Client, "t") }

func subscribe(t *testing.T, to *rtopic.Topic[int], opts ...rtopic.SubscribeOption) *rtopic.Subscription[int] {
	t.Helper()
	sub, err := to.Subscribe(t.Context(), opts...)
	require.NoError(t, err)
	return sub
}

// publish publishes the numbers from first to last.
func publish(t *testing.T, to *rtopic.Topic[int], first, last int) {
	t.Helper()
	for n := first; n <= last; n++ {
		_, err := to.Publish(t.Context(), n)
		require.NoError(t, err)
	}
	synctest.Wait() // until they have arrived
}

func TestPublicationsShareRoundTrips(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		publish(t, topic(p), 1, 1)
		values, trips := p.Count("publish"), p.Trips()
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				_, err := topic(p).Publish(t.Context(), 2)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		assert.Equal(t, 1000, p.Count("publish")-values)
		assert.Less(t, p.Trips()-trips, 500)
	})
}

// read returns the next values and errors of a loop.
func read[E any](sub *rtopic.Subscription[E], n int) (got []any) {
	for value, err := range sub.All() {
		if err != nil {
			got = append(got, err)
		} else {
			got = append(got, value)
		}
		if len(got) == n {
			break
		}
	}
	return got
}

func numbers(first, last int) (all []any) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// rest returns what a loop gets until it ends.
func rest[E any](sub *rtopic.Subscription[E]) []any { return read(sub, -1) }

func TestEverySubscriptionReceivesTheValuesInOrder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		one, two, three := topic(b.Peer(t)), topic(b.Peer(t)), topic(b.Peer(t))
		receivers, err := one.Publish(t.Context(), 0)
		require.NoError(t, err)
		assert.Zero(t, receivers)

		subs := []*rtopic.Subscription[int]{subscribe(t, one), subscribe(t, two), subscribe(t, two), subscribe(t, two)}
		receivers, err = three.Publish(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, 2, receivers, "connections, not subscriptions")
		info, err := three.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rtopic.Info{Name: "t", Subscribers: 2}, info)
		publish(t, three, 2, 500)
		publish(t, two, 501, 600)
		for _, sub := range subs {
			assert.Equal(t, numbers(1, 600), read(sub, 600))
		}
	})
}

// F4
func TestNothingIsMissedOnceSubscribeHasReturned(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		one, two := b.Peer(t), b.Peer(t)
		for i := range 300 {
			name := fmt.Sprint("t", i%100) // some are left just before
			sub, err := redlatch.GetTopic[int](one.Client, name).Subscribe(t.Context())
			require.NoError(t, err)
			receivers, err := redlatch.GetTopic[int](two.Client, name).Publish(t.Context(), i)
			require.NoError(t, err)
			require.Equal(t, 1, receivers)
			require.Equal(t, []any{i}, read(sub, 1))
			sub.Close()
			if i%50 == 49 {
				time.Sleep(time.Second) // the channels that were left are unsubscribed just now
			}
		}
	})
}

func TestFullBufferDropsTheOldestAndHoldsUpNobody(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := topic(b.Peer(t))
		to := topic(b.Peer(t))
		slow, slowest, fast := subscribe(t, p, rtopic.WithBuffer(3)), subscribe(t, p, rtopic.WithBuffer(1)), subscribe(t, p)
		publish(t, to, 1, 10)
		assert.Equal(t, numbers(1, 10), read(fast, 10))
		assert.Equal(t, []any{&rtopic.Gap{Topic: "t", Dropped: 7}, 8}, read(slow, 2))
		publish(t, to, 11, 13)
		assert.Equal(t, []any{&rtopic.Gap{Topic: "t", Dropped: 2}}, read(slow, 1), "9 and 10 made room for 12 and 13")
		publish(t, to, 14, 14)
		assert.Equal(t, []any{&rtopic.Gap{Topic: "t", Dropped: 1}, 12, 13, 14}, read(slow, 4))
		assert.Equal(t, []any{&rtopic.Gap{Topic: "t", Dropped: 13}, 14}, read(slowest, 2))
		publish(t, to, 15, 15)
		assert.Equal(t, []any{15}, read(slow, 1))
		assert.Equal(t, numbers(11, 15), read(fast, 5))
	})
}

// F4, F10
func TestLostConnectionIsAGapInItsPlace(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		sub, small, to := subscribe(t, topic(p)), subscribe(t, topic(p), rtopic.WithBuffer(2)), topic(b.Peer(t))
		for round := range 3 {
			publish(t, to, 1, 2)
			synctest.Wait()
			p.Refuse(true)
			p.Cut()
			synctest.Wait() // until the server knows
			time.Sleep(time.Duration(round) * time.Second)
			receivers, err := to.Publish(t.Context(), 3)
			require.NoError(t, err)
			require.Zero(t, receivers, "it is lost")
			p.Refuse(false)
			time.Sleep(2 * time.Second)
			publish(t, to, 4, 5)
			lost := &rtopic.Gap{Topic: "t", Reconnected: true}
			assert.Equal(t, []any{1, 2, lost, 4, 5}, read(sub, 5))
			assert.Equal(t, []any{&rtopic.Gap{Topic: "t", Reconnected: true, Dropped: 2}, 4, 5}, read(small, 3))
		}
		p.Cut() // with nothing published after it
		assert.Equal(t, []any{&rtopic.Gap{Topic: "t", Reconnected: true}}, read(sub, 1))
	})
}

func TestUndecodableValueIsAnErrorInItsPlace(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		to := redlatch.GetTopic[int](p.Client, "t", rtopic.WithCodec(codec.JSON{}))
		sub := subscribe(t, to)
		publish(t, to, 1, 1)
		require.NoError(t, b.Redis.Publish(t.Context(), "t", `"secret"`).Err())
		publish(t, to, 2, 2)
		got := read(sub, 3)
		assert.Equal(t, []any{1, 2}, []any{got[0], got[2]})
		err, _ := got[1].(error)
		require.ErrorIs(t, err, codec.ErrDecode)
		require.ErrorContains(t, err, `rtopic: decode a value of "t": bytes cannot be decoded: codec.JSON into a *int`)
		assert.NotContains(t, err.Error(), "secret")

		all := redlatch.GetPatternTopic[int](p.Client, "*", rtopic.WithCodec(codec.JSON{}))
		events, err := all.Subscribe(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Redis.Publish(t.Context(), "t2", "{").Err())
		for event, err := range events.All() {
			require.ErrorIs(t, err, codec.ErrDecode)
			assert.Equal(t, rtopic.Event[int]{Topic: "t2"}, event)
			break
		}
	})
}

// F3, F16
func TestSubscriptionEnds(t *testing.T) {
	for how, end := range map[string]func(p *locktest.Peer, sub *rtopic.Subscription[int], cancel func()){
		"by its context":      func(_ *locktest.Peer, _ *rtopic.Subscription[int], cancel func()) { cancel() },
		"by Close":            func(_ *locktest.Peer, sub *rtopic.Subscription[int], _ func()) { sub.Close(); sub.Close() },
		"by that of a client": func(p *locktest.Peer, _ *rtopic.Subscription[int], _ func()) { _ = p.Close() },
		"by all of them": func(p *locktest.Peer, sub *rtopic.Subscription[int], cancel func()) {
			cancel()
			sub.Close()
			_ = p.Close()
		},
	} {
		t.Run(how, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				to := topic(p)
				waiting, err := to.Subscribe(ctx)
				require.NoError(t, err)
				full, err := to.Subscribe(ctx)
				require.NoError(t, err)
				got := make(chan []any, 1)
				go func() { got <- rest(waiting) }()
				publish(t, to, 1, 2)
				synctest.Wait()
				assert.Equal(t, numbers(1, 1), read(full, 1))

				end(p, waiting, cancel)
				end(p, full, cancel)
				want := 2
				if how == "by that of a client" {
					want = 3
					left := rest(full)
					require.Len(t, left, 1, "what was not read is left out")
					require.EqualError(t, left[0].(error), `rtopic: receive from "t": client closed`)
				} else {
					assert.Empty(t, rest(full), "what was not read is left out")
				}
				ended := <-got
				require.Len(t, ended, want)
				assert.Equal(t, numbers(1, 2), ended[:2])
				if want == 3 {
					require.ErrorIs(t, ended[2].(error), redlatch.ErrClosed)
				}
				time.Sleep(2 * time.Second)
				n, err := b.Redis.PubSubNumSub(t.Context(), "t").Result()
				require.NoError(t, err)
				assert.Zero(t, n["t"])
			})
		})
	}
}

// F10, F19
func TestSubscriptionsShareOneChannelAndHaveNoGoroutines(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithoutPresence())
		first := subscribe(t, topic(p))
		synctest.Wait()
		goroutines, commands := runtime.NumGoroutine(), p.Count("subscribe")
		ctx, cancel := context.WithCancel(t.Context())
		subs := make([]*rtopic.Subscription[int], 1000)
		for i := range subs {
			var err error
			subs[i], err = topic(p).Subscribe(ctx)
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Less(t, runtime.NumGoroutine(), goroutines+10) // some are not of this test
		assert.Equal(t, commands, p.Count("subscribe"))
		receivers, err := topic(b.Peer(t)).Publish(t.Context(), 7)
		require.NoError(t, err)
		assert.Equal(t, 1, receivers)
		for _, sub := range append(subs, first) {
			require.Equal(t, []any{7}, read(sub, 1))
		}

		cancel()
		time.Sleep(5 * time.Second)
		assert.Zero(t, p.Count("unsubscribe"), "one is left")
		first.Close()
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, p.Count("unsubscribe"))
		time.Sleep(time.Minute)
		n, err := b.Redis.PubSubChannels(t.Context(), "*").Result()
		require.NoError(t, err)
		assert.Empty(t, n)
	})
}

func TestPatternTopicReceivesWhatMatchesWithItsName(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t, redlatch.WithNamePrefix("a*b:")), b.Peer(t, redlatch.WithNamePrefix("a*b:"))
		get := func(name string) *rtopic.Topic[int] { return redlatch.GetTopic[int](other.Client, name) }
		all, err := redlatch.GetPatternTopic[int](p.Client, "price.*").Subscribe(t.Context())
		require.NoError(t, err)
		again, err := redlatch.GetPatternTopic[int](p.Client, "price.*").Subscribe(t.Context(), rtopic.WithBuffer(2))
		require.NoError(t, err)
		// The in-memory server sends a message to one pattern of a connection only.
		some, err := redlatch.GetPatternTopic[int](other.Client, "price.[ac]*").Subscribe(t.Context())
		require.NoError(t, err)
		same := subscribe(t, redlatch.GetTopic[int](p.Client, "price.*")) // a topic whose name is the pattern

		for i, name := range []string{"price.a", "price.b", "price.c", "prices", "price.*"} {
			receivers, err := get(name).Publish(t.Context(), i)
			require.NoError(t, err)
			assert.Equal(t, []int{2, 1, 2, 0, 2}[i], receivers, name)
		}
		require.NoError(t, b.Redis.Publish(t.Context(), "axb:price.a", "another prefix").Err())
		type event = rtopic.Event[int]
		assert.Equal(t, []any{event{"price.a", 0}, event{"price.b", 1}, event{"price.c", 2}, event{"price.*", 4}}, read(all, 4))
		assert.Equal(t, []any{&rtopic.Gap{Topic: "price.*", Dropped: 2}, event{"price.c", 2}, event{"price.*", 4}}, read(again, 3))
		assert.Equal(t, []any{event{"price.a", 0}, event{"price.c", 2}}, read(some, 2))
		assert.Equal(t, []any{4}, read(same, 1))

		p.Cut()
		assert.Equal(t, []any{&rtopic.Gap{Topic: "price.*", Reconnected: true}}, read(all, 1))
		publish(t, get("price.b"), 5, 5)
		assert.Equal(t, []any{event{"price.b", 5}}, read(all, 1))
		for _, sub := range []*rtopic.Subscription[event]{all, again, some} {
			sub.Close()
		}
		time.Sleep(2 * time.Second)
		n, err := b.Redis.PubSubNumPat(t.Context()).Result()
		require.NoError(t, err)
		assert.Zero(t, n)
		publish(t, get("price.*"), 6, 6)
		assert.Equal(t, []any{&rtopic.Gap{Topic: "price.*", Reconnected: true}, 6}, read(same, 2))
	})
}

func TestLoopsShareASubscription(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		to := topic(b.Peer(t))
		sub := subscribe(t, to)
		var loops sync.WaitGroup
		var mu sync.Mutex
		got := map[any]int{}
		for range 4 {
			loops.Go(func() {
				for _, value := range rest(sub) {
					mu.Lock()
					got[value]++
					mu.Unlock()
				}
			})
		}
		synctest.Wait()
		publish(t, to, 1, 200)
		synctest.Wait()
		sub.Close()
		loops.Wait()
		assert.Len(t, got, 200)
		for value, times := range got {
			assert.Equal(t, 1, times, "%v", value)
		}
	})
}

// F16
func TestSubscribeWithoutAnAnswerEnds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCallTimeout(2*time.Second))
		p.Blackhole(true)
		to := topic(p)
		ended := func(want time.Duration, ctx context.Context) error {
			t.Helper()
			start := time.Now()
			_, err := to.Subscribe(ctx)
			assert.Equal(t, want, time.Since(start))
			return err
		}
		late, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), late} {
			err := ended(2*time.Second, ctx)
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.EqualError(t, err, `rtopic: subscribe to "t": redis unavailable: not confirmed within 2s`)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := ended(time.Second, soon)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		done := make(chan error, 1)
		go func() {
			_, err := to.Subscribe(t.Context())
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-done, redlatch.ErrClosed)
	})
}

// F2, F25
func TestPublishWhoseReplyIsLostIsNotRepeated(t *testing.T) {
	for fault, f := range map[string]struct {
		begin func(p *locktest.Peer)
		want  error
		read  []any
	}{
		"reply lost":   {func(p *locktest.Peer) { p.LoseReplies(1) }, redlatch.ErrUnknown, []any{1, 2, 3, 4}},
		"no answer":    {func(p *locktest.Peer) { p.HangReplies(1) }, redlatch.ErrUnknown, []any{1, 2, 3, 4}},
		"arrives late": {func(p *locktest.Peer) { p.Withhold(1) }, redlatch.ErrUnknown, []any{1, 3, 2, 4}},
		"never sent":   {func(p *locktest.Peer) { p.Down(true) }, redlatch.ErrUnavailable, []any{1, 3, 4}},
	} {
		t.Run(fault, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p, other := b.Peer(t), topic(b.Peer(t))
				sub := subscribe(t, topic(b.Peer(t)))
				publish(t, other, 1, 1) // Redis knows the script from here on
				f.begin(p)
				receivers, err := topic(p).Publish(t.Context(), 2)
				require.ErrorIs(t, err, f.want)
				assert.Zero(t, receivers)
				time.Sleep(time.Minute)
				publish(t, other, 3, 3)
				p.Deliver(t)
				publish(t, other, 4, 4)
				assert.Equal(t, f.read, read(sub, len(f.read)))
			})
		})
	}
}

func TestBadInputIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		try := func(name string, topicOpts []rtopic.Option, opts ...rtopic.SubscribeOption) (errs []error) {
			_, err := redlatch.GetTopic[int](p.Client, name, topicOpts...).Subscribe(t.Context(), opts...)
			errs = append(errs, err)
			_, err = redlatch.GetPatternTopic[int](p.Client, name, topicOpts...).Subscribe(t.Context(), opts...)
			return append(errs, err)
		}
		for name, want := range map[string]string{
			"":                       `rtopic: subscribe to "": invalid argument: the name is empty`,
			"\x01":                   `rtopic: subscribe to "\x01": invalid argument: the name "\x01" has a control character`,
			strings.Repeat("n", 513): `rtopic: subscribe to "` + strings.Repeat("n", 512) + `…": invalid argument: the name has 513 bytes, more than 512`,
		} {
			for _, err := range try(name, nil) {
				require.EqualError(t, err, want)
				require.ErrorIs(t, err, redlatch.ErrInvalid)
			}
		}
		errs := try("a{*", nil)
		require.ErrorIs(t, errs[0], redlatch.ErrInvalid)
		require.NoError(t, errs[1], "a pattern has no slot")
		var noCodec *pointerCodec
		for what, errs := range map[string][]error{
			"nil option":           try("t", []rtopic.Option{nil}),
			"nil codec":            try("t", []rtopic.Option{rtopic.WithCodec(nil)}),
			"nil pointer":          try("t", []rtopic.Option{rtopic.WithCodec(noCodec)}),
			"nil subscribe option": try("t", nil, nil),
			"no buffer":            try("t", nil, rtopic.WithBuffer(0)),
			"huge buffer":          try("t", nil, rtopic.WithBuffer(1<<20+1)),
		} {
			for _, err := range errs {
				require.ErrorIs(t, err, redlatch.ErrInvalid, what)
			}
		}
		for _, err := range try("t", nil, rtopic.WithBuffer(1<<20)) {
			require.NoError(t, err)
		}

		_, err := redlatch.GetTopic[chan int](p.Client, "t").Publish(t.Context(), nil)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.ErrorIs(t, err, codec.ErrEncode)
		var none context.Context
		_, err = topic(p).Publish(none, 1)
		require.EqualError(t, err, `rtopic: publish "t": invalid argument: the context is nil`)
		_, err = topic(p).Subscribe(none)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = topic(p).Publish(done, 1)
		require.ErrorIs(t, err, context.Canceled)
		_, err = topic(p).Subscribe(done)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, p.Close())
		_, err = topic(p).Publish(t.Context(), 1)
		require.EqualError(t, err, `rtopic: publish "t": client closed`)
		_, err = topic(p).Subscribe(t.Context())
		require.ErrorIs(t, err, redlatch.ErrClosed)
		_, err = topic(p).Info(t.Context())
		require.ErrorIs(t, err, redlatch.ErrClosed)
		assert.Equal(t, "t", topic(p).Name())
		assert.Equal(t, "t*", redlatch.GetPatternTopic[int](p.Client, "t*").Pattern())
	})
}

type pointerCodec struct{ codec.JSON }

func (*pointerCodec) Encode(any) ([]byte, error) { return nil, errors.New("not called") }

func TestGapSaysWhatIsMissing(t *testing.T) {
	for want, gap := range map[string]rtopic.Gap{
		`rtopic: gap in "t": 3 values dropped`:                  {Topic: "t", Dropped: 3},
		`rtopic: gap in "t": connection lost`:                   {Topic: "t", Reconnected: true},
		`rtopic: gap in "t": connection lost, 3 values dropped`: {Topic: "t", Reconnected: true, Dropped: 3},
	} {
		assert.EqualError(t, &gap, want)
	}
}
