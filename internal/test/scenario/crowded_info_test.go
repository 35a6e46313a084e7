package scenario_test

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rrwlock"
)

const (
	infoCrowd = 10_000 // that wait or hold
	infoList  = 100    // of them that an Info lists
)

// Whatever the number of those who hold a thing or wait for it, Info lists the first of them, counts all, and holds up the server for no
// longer.
func TestInfoOfACrowdIsShort(t *testing.T) {
	redistest.Long(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	c, err := redlatch.New(server.Client(t), redlatch.WithCloseGrace(0), redlatch.WithoutPresence())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	writeCrowds(t, rdb)
	for name, look := range map[string]func(t *testing.T){
		"fair lock": func(t *testing.T) {
			info, err := c.GetFairLock("fair").Info(t.Context())
			require.NoError(t, err)
			assert.Equal(t, infoCrowd, info.Waiting)
			require.Len(t, info.Queue, infoList)
			for i, w := range info.Queue {
				assert.Equal(t, crowdOwner(i), w.Owner)
				assert.Positive(t, w.Left)
			}
		},
		"permits": func(t *testing.T) {
			info, err := c.GetPermitSemaphore("permits").Info(t.Context())
			require.NoError(t, err)
			assert.Equal(t, infoCrowd+5, info.Permits)
			assert.Equal(t, 15, info.Available, "5 that are free, and 10 that have expired")
			require.Len(t, info.Holders, infoList)
			for i, h := range info.Holders {
				assert.Equal(t, hex.EncodeToString(fmt.Appendf(nil, "%016d", 10+i)), h.ID)
				assert.Positive(t, h.Left)
			}
		},
		"readers": func(t *testing.T) {
			info, err := c.GetReadWriteLock("readers").Info(t.Context())
			require.NoError(t, err)
			assert.Equal(t, infoCrowd, len(info.Readers)+info.MoreReaders)
			assert.Len(t, info.Readers, infoList)
			assert.InDelta(t, time.Hour, info.Left, float64(time.Minute))
		},
		"barrier": func(t *testing.T) {
			info, err := c.GetDoubleBarrier("barrier", 1).Info(t.Context())
			require.NoError(t, err)
			assert.Equal(t, infoCrowd, info.Participants)
			for _, crowd := range []rbarrier.Crowd{info.Arrived, info.Inside, info.Leaving} {
				assert.Equal(t, infoCrowd-10, crowd.Count, "10 places have lapsed")
				require.Len(t, crowd.Places, infoList)
				for i, p := range crowd.Places {
					assert.Equal(t, crowdOwner(10+i), p.Owner)
					assert.Positive(t, p.Left)
				}
			}
		},
		"all readers but one are dead": func(t *testing.T) {
			lock := c.GetReadWriteLock("dead")
			info, err := lock.Info(t.Context())
			require.NoError(t, err)
			require.Len(t, info.Readers, 1)
			assert.Equal(t, crowdOwner(0), info.Readers[0].Owner)
			locked, err := lock.IsLocked(t.Context())
			require.NoError(t, err)
			assert.True(t, locked)
		},
		"all readers are dead": func(t *testing.T) {
			lock := c.GetReadWriteLock("all dead")
			info, err := lock.Info(t.Context())
			require.NoError(t, err)
			assert.Equal(t, rrwlock.Info{Name: "all dead", Mode: rrwlock.Free}, info)
			left, err := lock.TTL(t.Context())
			require.NoError(t, err)
			assert.Zero(t, left)
		},
	} {
		t.Run(name, func(t *testing.T) {
			look(t) // it loads the script
			fastest := time.Hour
			for range 10 { // the machine may take time away from some of the calls
				redistest.WatchCalls(t, rdb, 0)
				look(t)
				calls := redistest.LongCalls(t, rdb, "evalsha")
				require.NotEmpty(t, calls)
				fastest = min(fastest, calls[len(calls)/2].Duration)
			}
			t.Logf("a script call took %v at best", fastest)
			assert.Less(t, fastest, 2*time.Millisecond)
		})
	}
}

func crowdOwner(i int) string { return fmt.Sprintf("web.9f2c1a0b77d01e42:%d", i) }

// writeCrowds writes a fair lock with a queue, permits of which 10 have expired, a double barrier of whose places 10 have lapsed, readers,
// readers of whom all but one have died, and dead ones alone.
func writeCrowds(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	now := time.Now()
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, "fair", "java:1", 1)
		p.Set(ctx, "permits", 5, 0)
		p.Set(ctx, "redlatch_double:{barrier}", infoCrowd, 0)
		p.HSet(ctx, "readers", "mode", "read")
		p.HSet(ctx, "dead", "mode", "read")
		p.HSet(ctx, "all dead", "mode", "read")
		p.Set(ctx, "{dead}:"+crowdOwner(0)+":rwlock_timeout:1", 1, time.Hour)
		for i := range infoCrowd {
			owner, later := crowdOwner(i), float64(now.Add(time.Duration(i)*time.Second).Add(time.Hour).UnixMilli())
			p.RPush(ctx, "redisson_lock_queue:{fair}", owner)
			p.ZAdd(ctx, "redisson_lock_timeout:{fair}", redis.Z{Score: later, Member: owner})
			if i < 10 {
				later = float64(i)
			}
			p.ZAdd(ctx, "{permits}:timeout", redis.Z{Score: later, Member: fmt.Sprintf("%016d", i)})
			for _, crowd := range []string{"arrived", "inside", "leaving"} {
				p.ZAdd(ctx, "redlatch_double_"+crowd+":{barrier}", redis.Z{Score: later, Member: owner})
			}
			p.HSet(ctx, "readers", owner, 1)
			p.Set(ctx, "{readers}:"+owner+":rwlock_timeout:1", 1, time.Hour)
			p.HSet(ctx, "dead", owner, 1)
			p.HSet(ctx, "all dead", owner, 1)
		}
		p.PExpire(ctx, "readers", time.Hour)
		p.PExpire(ctx, "dead", time.Hour)
		p.PExpire(ctx, "all dead", time.Hour)
		return nil
	})
	require.NoError(t, err)
}
