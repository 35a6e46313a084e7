package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rtopic"
)

// silence bounds the time until a subscription to a silent server is found dead.
const silence = 20 * time.Second

// use is what one goroutine does again and again with an object that nobody holds.
type use struct {
	kind string
	once func(ctx context.Context) error
}

// sharedUses returns how two clients use a rate limiter, an id generator and topics. The server may forget the limiter so many times. check
// looks at what all uses have got together, once they have ended; an old master served beside the new one for twoMasters at most.
func sharedUses(t *testing.T, clients []*redlatch.Client, losses int, nameOf func(kind string) string) (all []use, check func(twoMasters time.Duration)) {
	t.Helper()
	const burst, rate = 10, 200
	var passed atomic.Int64
	began := time.Now()
	var given sync.Map // the ids
	for i, c := range clients {
		limiter := c.GetRateLimiter("{"+nameOf("limiter")+"}", rratelimiter.Per(rate, time.Second), rratelimiter.WithBurst(burst))
		ids := c.GetIDGenerator(nameOf("ids"), rid.WithBlock(1))
		var newest int64
		all = append(all, use{"limiter", func(ctx context.Context) error {
			err := limiter.Wait(ctx, "k", 1)
			if err == nil {
				passed.Add(1)
			}
			return err
		}}, use{"ids", func(ctx context.Context) error {
			id, err := ids.Next(ctx)
			if err != nil {
				return err
			}
			if _, twice := given.LoadOrStore(id, true); twice || id <= newest {
				return fmt.Errorf("id %d after %d, given twice: %t", id, newest, twice)
			}
			newest = id
			return nil
		}}, exchange(t, clients[1-i], c, nameOf(fmt.Sprint("topic", i))))
	}
	return all, func(twoMasters time.Duration) {
		waiting := len(clients) // calls that have their token already
		most := float64(burst+losses*(burst+waiting)) + rate*(time.Since(began)+twoMasters).Seconds()
		assert.LessOrEqual(t, float64(passed.Load()), most, "calls that the limiter let pass")
	}
}

// exchange has one client publish a value, and another one receive it. A gap may come in its place.
func exchange(t *testing.T, publisher, subscriber *redlatch.Client, name string) use {
	t.Helper()
	sub, err := redlatch.GetTopic[int](subscriber, name).Subscribe(t.Context())
	require.NoError(t, err)
	topic := redlatch.GetTopic[int](publisher, name)
	var next, newest int
	return use{"topic", func(ctx context.Context) error {
		next++
		if _, err := topic.Publish(ctx, next); err != nil {
			return err
		}
		timer := time.AfterFunc(silence+5*time.Second, sub.Close)
		defer timer.Stop()
		for value, err := range sub.All() {
			var gap *rtopic.Gap
			switch {
			case errors.As(err, &gap):
				newest = 0 // a node of a cluster may pass on what the one that died has published
				return nil
			case err != nil:
				return err
			case value <= newest || value > next:
				return fmt.Errorf("%d after %d, when %d was published", value, newest, next)
			}
			if newest = value; value == next {
				return nil
			}
		}
		return fmt.Errorf("%d is missing without a gap", next)
	}}
}

// F2, F9, F21: a failover that forgets the last calls gives no id twice, a rate at most once more, and topics go on.
func TestFailoverThatForgetsGivesNoIdTwice(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	group := locktest.StartGroup(t)
	all, check := sharedUses(t, []*redlatch.Client{group.Client(t), group.Client(t)}, 1, func(kind string) string { return kind })
	useAll := func() {
		locktest.Each(t, all, func(ctx context.Context, u use) {
			for range 30 {
				locktest.Persist(ctx, t, func() error {
					err := u.once(ctx)
					if errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown) {
						return err
					}
					assert.NoError(t, err, u.kind)
					return nil
				})
			}
		})
	}
	useAll()
	redistest.AwaitSync(t, group.Master, group.Replica)
	group.StopReplication(t)
	useAll()
	group.Master.Kill()
	useAll()
	check(0)
	group.Sentinel.AwaitMaster(group.Master.Addr())
}
