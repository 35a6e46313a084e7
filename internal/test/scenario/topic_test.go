package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rtopic"
)

// received returns the next values of a subscription and how many gaps were between them.
func received[E any](t *testing.T, sub *rtopic.Subscription[E], n int) (values []E, gaps []*rtopic.Gap) {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, sub.Close)
	defer timer.Stop()
	for value, err := range sub.All() {
		var gap *rtopic.Gap
		if errors.As(err, &gap) {
			gaps = append(gaps, gap)
			continue
		}
		require.NoError(t, err)
		if values = append(values, value); len(values) == n {
			break
		}
	}
	require.Len(t, values, n, "gaps: %v", gaps)
	return values, gaps
}

// F4
func TestTopicReachesEverySubscriberInOrder(t *testing.T) {
	t.Parallel()
	onEachTopology(t, func(t *testing.T, w *watched) {
		prefix := fresh(t)
		name := prefix + ".a"
		topic := func(c *redlatch.Client) *rtopic.Topic[int] { return redlatch.GetTopic[int](c, name) }
		subscribe := func(c *redlatch.Client) *rtopic.Subscription[int] {
			sub, err := topic(c).Subscribe(t.Context())
			require.NoError(t, err)
			return sub
		}
		subs := []*rtopic.Subscription[int]{subscribe(w.holder), subscribe(w.holder), subscribe(w.waiter)}
		all, err := redlatch.GetPatternTopic[int](w.waiter, prefix+".*").Subscribe(t.Context())
		require.NoError(t, err)
		some, err := redlatch.GetPatternTopic[int](w.waiter, prefix+".[ab]").Subscribe(t.Context())
		require.NoError(t, err)

		info, err := topic(w.viewer).Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rtopic.Info{Name: name, Subscribers: 2}, info)
		const count = 300
		for n := range count {
			c := []*redlatch.Client{w.viewer, w.holder}[n%2] // of several clients, one after another
			receivers, err := topic(c).Publish(t.Context(), n)
			require.NoError(t, err)
			if _, single := w.rdb.(*redis.Client); single {
				assert.Equal(t, 4, receivers, "two connections, and one of them by two patterns")
			}
		}
		for _, sub := range subs {
			values, gaps := received(t, sub, count)
			assert.Empty(t, gaps)
			for n, value := range values {
				require.Equal(t, n, value)
			}
		}
		for _, sub := range []*rtopic.Subscription[rtopic.Event[int]]{all, some} {
			events, gaps := received(t, sub, count)
			assert.Empty(t, gaps)
			for n, event := range events {
				require.Equal(t, rtopic.Event[int]{Topic: name, Value: n}, event)
			}
		}
	})
}

// F4: any node of a cluster takes a PUBLISH, and values would overtake each other when the slot moves.
func TestClusterPublishesAtTheNodeOfTheTopicOnly(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	rdb := cluster.Client(t)
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	name := fresh(t)
	owner, err := rdb.MasterForKey(t.Context(), name)
	require.NoError(t, err)
	monitors := map[string]*faulttest.Monitor{}
	for _, addr := range cluster.Addrs() {
		monitors[addr] = faulttest.MonitorWrites(t, addr, name)
	}
	_, err = redlatch.GetTopic[int](c, name).Publish(t.Context(), 1)
	require.NoError(t, err)
	for addr, monitor := range monitors {
		published := monitor.Since(time.Time{}, "PUBLISH")
		if addr != owner.Options().Addr {
			assert.Empty(t, published, addr)
			continue
		}
		require.Len(t, published, 1)
		assert.Equal(t, "lua", published[0].Source, "a script, which a node without the slot refuses")
	}
}

// F4, F21
func TestKilledSubscriptionConnectionIsAGap(t *testing.T) {
	run := func(name string, connect func(t *testing.T) redis.UniversalClient, kill func(ctx context.Context) error, opts ...redlatch.Option) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := func() *redlatch.Client {
				c, err := redlatch.New(connect(t), opts...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Close()) })
				return c
			}
			reader, writer := client(), client()
			topic := redlatch.GetTopic[int](writer, "t")
			sub, err := redlatch.GetTopic[int](reader, "t").Subscribe(t.Context())
			require.NoError(t, err)
			all, err := redlatch.GetPatternTopic[int](reader, "*").Subscribe(t.Context())
			require.NoError(t, err)
			_, err = topic.Publish(t.Context(), 1)
			require.NoError(t, err)
			values, gaps := received(t, sub, 1)
			assert.Equal(t, []int{1}, values)
			assert.Empty(t, gaps)
			for value, err := range all.All() {
				require.NoError(t, err)
				assert.Equal(t, 1, value.Value)
				break
			}

			require.NoError(t, kill(t.Context()))
			awaitGap(t, sub)
			awaitGap(t, all)
			for n := 2; n < 100; n++ {
				_, err = topic.Publish(t.Context(), n)
				require.NoError(t, err)
			}
			values, gaps = received(t, sub, 98)
			assert.Empty(t, gaps, "after the gap nothing is missed")
			assert.Equal(t, 2, values[0])
			events, gaps := received(t, all, 98)
			assert.Empty(t, gaps)
			assert.Equal(t, rtopic.Event[int]{Topic: "t", Value: 2}, events[0])
		})
	}
	t.Parallel()
	killPubSub := func(ctx context.Context, c *redis.Client) (killed int, err error) {
		return c.Do(ctx, "client", "kill", "type", "pubsub").Int()
	}
	server := redistest.Start(t)
	single := func(t *testing.T) redis.UniversalClient { t.Helper(); return server.Client(t) }
	kill := func(ctx context.Context) error {
		_, err := killPubSub(ctx, server.Client(t))
		return err
	}
	run("server", single, kill)
	cluster := redistest.StartCluster(t, 3)
	// Only on the node that has the connection: a kill on another one may hit the connection that replaces it.
	killOne := func(ctx context.Context) error {
		for _, node := range cluster.Nodes() {
			if n, err := killPubSub(ctx, node.Client(t)); n > 0 || err != nil {
				return err
			}
		}
		return errors.New("no subscription connection")
	}
	run("cluster", func(t *testing.T) redis.UniversalClient { t.Helper(); return cluster.Client(t) }, killOne)
}

// awaitGap waits for the gap of a lost connection.
func awaitGap[E any](t *testing.T, sub *rtopic.Subscription[E]) {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, sub.Close)
	defer timer.Stop()
	for _, err := range sub.All() {
		var gap *rtopic.Gap
		require.ErrorAs(t, err, &gap)
		assert.True(t, gap.Reconnected)
		assert.Zero(t, gap.Dropped)
		return
	}
	require.Fail(t, "no gap")
}

// F20
func TestTopicNeedsTheDocumentedRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), documentedUser(t)...).Err())
	use := func() (errs [3]error) { // by another client, which knows of no refusal
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
		defer func() { assert.NoError(t, rdb.Close()) }()
		c, err := redlatch.New(rdb, redlatch.WithNamePrefix("app:"))
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		topic := redlatch.GetTopic[int](c, "t")
		_, errs[0] = topic.Publish(t.Context(), 1)
		_, errs[1] = topic.Subscribe(t.Context())
		_, errs[2] = redlatch.GetPatternTopic[int](c, "t*").Subscribe(t.Context())
		return errs
	}
	refused := func(err error) {
		t.Helper()
		require.ErrorContains(t, err, "redlatch.Check")
		assert.NotErrorIs(t, err, redlatch.ErrUnavailable)
	}
	for _, err := range use() {
		refused(err)
	}
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", "&app:*").Err())
	errs := use()
	require.NoError(t, errors.Join(errs[0], errs[1]))
	refused(errs[2])
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", "+psubscribe", "+punsubscribe").Err())
	refused(use()[2]) // a pattern has to be among the rights as it is
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", "&app:t*").Err())
	for _, err := range use() {
		require.NoError(t, err)
	}
}

// F10, F16
func TestManySubscriptionsComeAndGo(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	onEachTopology(t, func(t *testing.T, w *watched) {
		name := fresh(t)
		var users sync.WaitGroup
		for g := range 20 {
			users.Go(func() {
				for i := range 20 {
					own := fmt.Sprint(name, g%5)
					topic := redlatch.GetTopic[string](w.holder, own)
					sub, err := topic.Subscribe(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					want := fmt.Sprint(g, ".", i)
					_, err = redlatch.GetTopic[string](w.waiter, own).Publish(t.Context(), want)
					assert.NoError(t, err)
					for value, err := range sub.All() {
						if !assert.NoError(t, err) || value == want {
							break
						}
					}
					sub.Close()
				}
			})
		}
		users.Wait()
		redistest.Eventually(t, 10*time.Second, "nobody subscribes", func() error {
			for g := range 5 {
				info, err := redlatch.GetTopic[string](w.viewer, fmt.Sprint(name, g)).Info(t.Context())
				if err != nil || info.Subscribers > 0 {
					return fmt.Errorf("%d subscribe: %w", info.Subscribers, err)
				}
			}
			return nil
		})
	})
}
