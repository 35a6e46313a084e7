package rid_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rid"
)

// forms are the options of each form of id.
var forms = map[string][]rid.Option{"plain": {rid.WithBlock(100)}, "timed": {rid.WithBlock(100), rid.WithTimePrefix(32)}}

func TestBlockThatIsNotConfirmedIsNotUsed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) { // its server has no replicas
		b.Mini.SetTime(monday)
		p, other := b.Peer(t, redlatch.WithReplicas(1, 10*time.Millisecond)), b.Peer(t)
		for form, third := range map[string]int64{"plain": monday.UnixMicro() + 200, "timed": timed(monday.Add(time.Second), 0)<<16 | 2} {
			for range 2 {
				_, err := p.GetIDGenerator(form, forms[form]...).Next(t.Context())
				require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
			}
			assert.Equal(t, third, next(t, other.GetIDGenerator(form, forms[form]...)))
		}
	})
}

// Two servers that both take themselves for the master, as in a failover by Sentinel: the ids of neither are given out by
// the other.
//
// F9
func TestTwoMastersGiveOutNoConfirmedIdTwice(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	client := func(s *redistest.Server) *redlatch.Client {
		c, err := redlatch.New(s.Client(t), redlatch.WithReplicas(1, 50*time.Millisecond))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	before, after := client(master), client(replica)
	highest := map[string]int64{}
	for form, opts := range forms {
		redistest.Eventually(t, 10*time.Second, "the replica confirms", func() (err error) {
			highest[form], err = before.GetIDGenerator(form, opts...).Next(t.Context())
			return err
		})
	}
	require.NoError(t, replica.Client(t).Do(t.Context(), "replicaof", "no", "one").Err())
	for form, opts := range forms {
		got := map[int64]bool{}
		for _, c := range []*redlatch.Client{before, after, before, after} {
			g := c.GetIDGenerator(form, opts...)
			id, err := g.Next(t.Context())
			for ; err == nil; id, err = g.Next(t.Context()) {
				require.False(t, got[id], "%d comes twice", id)
				require.Greater(t, id, highest[form])
				got[id] = true
				require.Less(t, len(got), 100, "no more than what is left of a block that both know")
			}
			require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
		}
		for id := range got {
			highest[form] = max(highest[form], id)
		}
	}
	old := master.Client(t)
	host, port, err := net.SplitHostPort(replica.Addr())
	require.NoError(t, err)
	require.NoError(t, old.ReplicaOf(t.Context(), host, port).Err())
	for form, opts := range forms {
		redistest.Eventually(t, 10*time.Second, "the old master confirms", func() error {
			id, err := after.GetIDGenerator(form, opts...).Next(t.Context())
			if err == nil {
				assert.Greater(t, id, highest[form])
			}
			return err
		})
		_, err := before.GetIDGenerator(form, opts...).Next(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnavailable, "a replica gives out nothing")
	}
}

// F9
func TestPlannedFailoverGivesOutNoConfirmedIdTwice(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	group := locktest.StartGroup(t)
	ctx, end := context.WithCancel(t.Context())
	var mu sync.Mutex // guards the rest
	got, refused := map[string]map[int64]int{"plain": {}, "timed": {}}, 0
	var all sync.WaitGroup
	for range 4 {
		c := group.Client(t, redlatch.WithReplicas(1, 20*time.Millisecond))
		for form, opts := range forms {
			all.Go(func() {
				for ctx.Err() == nil {
					id, err := c.GetIDGenerator(form, append(opts, rid.WithBlock(5))...).Next(ctx)
					mu.Lock()
					if err == nil {
						got[form][id]++
					} else if errors.Is(err, redlatch.ErrNotConfirmed) {
						refused++
					}
					mu.Unlock()
				}
			})
		}
	}
	drawn := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return map[string]int{"plain": len(got["plain"]), "timed": len(got["timed"])}
	}
	more := func(what string) {
		begin := drawn()
		redistest.Eventually(t, redistest.ElectionLimit, what, func() error {
			for form, n := range drawn() {
				if n < begin[form]+1000 {
					return errors.New("no ids of " + form)
				}
			}
			return nil
		})
	}
	more("ids before the failover")
	group.Sentinel.Failover()
	redistest.AwaitSync(t, group.Replica, group.Master)
	more("ids after it")
	end()
	all.Wait()
	assert.Positive(t, refused, "draws while there were two masters, or one without a replica")
	for form, ids := range got {
		for id, times := range ids {
			assert.Equal(t, 1, times, "%s %d", form, id)
		}
	}
}
