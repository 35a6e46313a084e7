package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const (
	bound      = 8
	offeredIDs = "offered" // set of the ids of which Offer has returned
)

func boundedQueue(c *redlatch.Client, opts ...rdelayedqueue.QueueOption) *rdelayedqueue.Queue[job] {
	return queue(c, append(opts, rdelayedqueue.WithVisibility(jobVisibility), rdelayedqueue.WithMaxAttempts(0), rdelayedqueue.WithCapacity(bound))...)
}

// boundedUser offers as fast as the capacity lets it, and handles messages, until it is killed. Args: the addresses for the queue and the
// notes.
func boundedUser(args []string) {
	ctx := context.Background()
	notes := redis.NewClient(&redis.Options{Addr: args[1]})
	q := boundedQueue(childClient(args[0]), rdelayedqueue.WithWait(time.Hour))
	go func() {
		must(q.Consume(ctx, func(ctx context.Context, m *message) error {
			if m.Attempt == 1 && rand.N(4) == 0 {
				return errors.New("again")
			}
			return notes.SAdd(ctx, handledIDs, m.ID).Err()
		}, rdelayedqueue.WithBackoff(func(int) time.Duration { return rand.N(jobDelay) })))
	}()
	for n := 0; ; n++ {
		id := fmt.Sprint(os.Getpid(), "-", n)
		if _, err := q.Offer(ctx, job{}, rand.N(jobDelay), rdelayedqueue.WithID(id)); err == nil {
			must(notes.SAdd(ctx, offeredIDs, id).Err())
		}
	}
}

// The witness counts in Redis, beside the library.
//
// F8
func TestCapacityHoldsWhileProcessesDieAndStop(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	start := func() *faulttest.Child {
		return faulttest.StartChild(t, "bounded user", r.proxy.Addr(), r.server.Addr())
	}
	users := []*faulttest.Child{start(), start(), start()}
	most, looks := int64(0), 0
	rdb := r.server.Client(t)
	look := func() {
		var bodies, dead *redis.IntCmd
		_, err := rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			bodies, dead = p.HLen(t.Context(), "redlatch_dq:{jobs}:bodies"), p.ZCard(t.Context(), "redlatch_dq:{jobs}:dead")
			return nil
		})
		if assert.NoError(t, err) {
			most, looks = max(most, bodies.Val()-dead.Val()), looks+1
		}
	}
	handled := func() int64 { return rdb.SCard(t.Context(), handledIDs).Val() }
	for round := range faulttest.Rounds(t, 6, 200) {
		goal := handled() + 30
		redistest.Eventually(t, patience, "messages are handled", func() error {
			look()
			if now := handled(); now < goal {
				return fmt.Errorf("%d of %d", now, goal)
			}
			return nil
		})
		r.proxy.DropReply(faulttest.Script, 1+rand.N(10))
		victim := round % len(users)
		if rand.N(2) == 0 {
			users[victim].Kill()
			users[victim] = start()
			continue
		}
		users[victim].Stop()
		<-time.After(rand.N(2 * jobVisibility))
		users[victim].Cont()
	}
	for _, user := range users {
		user.Kill()
	}
	t.Logf("%d messages handled; at most %d of %d in the queue, in %d looks", handled(), most, bound, looks)
	assert.EqualValues(t, bound, most)
	q := boundedQueue(r.direct(t))
	consume(t, q, func(ctx context.Context, m *message) error { return rdb.SAdd(ctx, handledIDs, m.ID).Err() })
	redistest.Eventually(t, patience, "what is left is handled", func() error {
		s, err := q.Stats(t.Context())
		if err == nil && s != (rdelayedqueue.Stats{}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	lost, err := rdb.SDiff(t.Context(), offeredIDs, handledIDs).Result()
	require.NoError(t, err)
	assert.Empty(t, lost)
	items := make([]rdelayedqueue.Item[job], bound)
	_, err = q.OfferBatch(t.Context(), items)
	require.NoError(t, err, "there is room for as many as before")
}
