package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// moves are the keys that have moved while the slot stands half-moved.
var moves = map[string]func(all []string, base string) []string{
	"none":            func([]string, string) []string { return nil },
	"flight":          func(_ []string, base string) []string { return []string{base + "flight"} },
	"claims":          func(_ []string, base string) []string { return []string{base + "claims"} },
	"all but flight":  func(all []string, base string) []string { return without(all, base+"flight") },
	"all that exists": func(all []string, _ string) []string { return all },
}

func without(all []string, key string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(k string) bool { return k == key })
}

// mover is a queue whose slot moves while a handler works.
type mover struct {
	name, base     string
	cluster        *redistest.Cluster
	producer       *rdelayedqueue.Queue[job]
	deliveries     chan *rdelayedqueue.Message[job] // as many as a test may see
	first          *rdelayedqueue.Message[job]
	finish         chan struct{} // closed when the handlers may return
	stop           func() error
	migration      *redistest.Migration
	source, target *redis.Client
	patient        chan error // 1: of an offer that waits for the end of the move
}

// startMover begins the work, then the move, and stops it when the given keys have moved.
func startMover(t *testing.T, cluster *redistest.Cluster, name string, visibility time.Duration) *mover {
	t.Helper()
	m := &mover{
		name: name, base: "redlatch_dq:{" + name + "}:", cluster: cluster, finish: make(chan struct{}),
		deliveries: make(chan *rdelayedqueue.Message[job], 10), patient: make(chan error, 1),
	}
	q := redlatch.GetDelayedQueue[job](newClient(t, cluster.Client(t)), name, rdelayedqueue.WithVisibility(visibility))
	m.producer = redlatch.GetDelayedQueue[job](newClient(t, cluster.Client(t)), name)
	offer(t, m.producer, "done", 0)
	require.NoError(t, take(t, q).Ack(t.Context()))
	m.stop = consume(t, q, func(ctx context.Context, message *rdelayedqueue.Message[job]) error {
		m.deliveries <- message
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.finish:
			return nil
		}
	}, rdelayedqueue.WithConcurrency(2), rdelayedqueue.WithPrefetch(0))
	offer(t, m.producer, "held", 0)
	m.first = <-m.deliveries
	from := cluster.Owner(t, m.base)
	for _, n := range cluster.Nodes() {
		if n.Addr() != from.Addr() {
			m.migration, m.source, m.target = cluster.Migrate(t, m.base, n), from.Client(t), n.Client(t)
			break
		}
	}
	m.migration.Move(t, moves[name](queueKeys(t, m.source, m.base), m.base)...)
	return m
}

// offerMeanwhile offers while the slot stands half-moved.
func (m *mover) offerMeanwhile(t *testing.T, visibility time.Duration) {
	t.Helper()
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience) // it outlives the subtest
		defer cancel()
		_, err := m.producer.Offer(ctx, job{Name: "patient"}, time.Hour, rdelayedqueue.WithID("b"))
		m.patient <- err
	}()
	other := redlatch.GetDelayedQueue[job](newClient(t, m.cluster.Client(t)), m.name)
	for range 2 { // the first one may be cut off in the middle of a try
		ctx, cancel := context.WithTimeout(t.Context(), visibility)
		_, err := other.Offer(ctx, job{Name: "in the meantime"}, 0, rdelayedqueue.WithID("a"))
		cancel()
		if err == nil || !errors.Is(err, redlatch.ErrUnknown) {
			if err != nil { // else all that it needs is at one place
				assert.ErrorIs(t, err, redlatch.ErrUnavailable)
			}
			return
		}
	}
	assert.Fail(t, "nobody knows what came of an offer that was refused each time")
}

// end ends the move, and the work.
func (m *mover) end(t *testing.T) {
	t.Helper()
	require.NoError(t, m.first.Context().Err(), "%v", context.Cause(m.first.Context()))
	m.migration.Finish(t)
	assert.NoError(t, <-m.patient)
	close(m.finish)
	_, err := m.producer.Offer(t.Context(), job{Name: "after"}, 0, rdelayedqueue.WithID("a"))
	require.NoError(t, err)
	assert.Equal(t, "a", (<-m.deliveries).ID)
	redistest.Eventually(t, patience, "all is done", func() error {
		s, err := m.producer.Stats(t.Context())
		if err == nil && s != (rdelayedqueue.Stats{Delayed: 1}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	assert.NoError(t, m.stop())
	assert.Empty(t, m.deliveries, "a second delivery")
	for _, key := range queueKeys(t, m.target, m.base) {
		assert.NotContains(t, queueKeys(t, m.source, m.base), key, "on both nodes")
	}
}

// F24
func TestMovingSlotLosesNoMessage(t *testing.T) {
	redistest.Long(t)
	const visibility = 2 * time.Second
	cluster := redistest.StartCluster(t, 3)
	movers := map[string]*mover{}
	for name := range moves {
		movers[name] = startMover(t, cluster, name, visibility)
	}
	for name, m := range movers {
		t.Run("offer, moved: "+name, func(t *testing.T) { m.offerMeanwhile(t, visibility) })
	}
	time.Sleep(3*visibility + visibility/2) // by the clock of a real server the visibility has to be over three times
	for name, m := range movers {
		t.Run("moved: "+name, func(t *testing.T) { m.end(t) })
	}
}

func queueKeys(t *testing.T, rdb *redis.Client, base string) []string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), base+"*").Result()
	require.NoError(t, err)
	return keys
}

// F5, F24: the node that a slot leaves runs no script to the middle, where it would look at a key that the script has emptied.
func TestEndWhileTheSlotOfAllKeysLeavesFreesTheGroup(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	ctx := t.Context()
	for name, end := range map[string]func(m *rdelayedqueue.Message[job]) error{
		"ack":    func(m *rdelayedqueue.Message[job]) error { return m.Ack(ctx) },
		"nack":   func(m *rdelayedqueue.Message[job]) error { return m.Nack(ctx, time.Hour) },
		"snooze": func(m *rdelayedqueue.Message[job]) error { return m.Snooze(ctx, time.Hour) },
		"reject": func(m *rdelayedqueue.Message[job]) error { return m.Reject(ctx, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			q := redlatch.GetDelayedQueue[job](newClient(t, cluster.Client(t)), name, rdelayedqueue.WithGroupSkip())
			other := redlatch.GetDelayedQueue[job](newClient(t, cluster.Client(t)), name)
			base := "redlatch_dq:{" + name + "}:"
			offer(t, q, "done", 0) // from here on there are all keys
			require.NoError(t, take(t, q).Ack(ctx))
			offer(t, q, "dead", 0)
			require.NoError(t, take(t, q).Reject(ctx, "x"))
			offer(t, q, "later", time.Hour)
			offer(t, q, "first", 0, rdelayedqueue.WithGroup("g"))
			first := take(t, q)
			offer(t, q, "second", 0, rdelayedqueue.WithGroup("g"))
			taken := make(chan *rdelayedqueue.Message[job], 1)
			go func() { taken <- take(t, other) }()
			source := cluster.Owner(t, base).Client(t)
			redistest.Eventually(t, patience, "somebody waits for the group", func() error {
				if n := source.ZCard(ctx, base+"waiters").Val(); n != 1 {
					return fmt.Errorf("%d wait", n)
				}
				return nil
			})
			migration := cluster.Migrate(t, base, cluster.Other(t, base))
			ended := make(chan error, 1)
			go func() { ended <- end(first) }()
			select {
			case err := <-ended:
				ended <- err
			case <-time.After(300 * time.Millisecond): // it is refused until the slot has moved
			}
			migration.Finish(t)
			require.NoError(t, <-ended)
			select {
			case m := <-taken:
				assert.Equal(t, "second", m.Value.Name)
			case <-time.After(patience):
				require.Fail(t, "the group has lost its place")
			}
		})
	}
}
