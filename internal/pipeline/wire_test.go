package pipeline_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// retries is what a user may ask go-redis for.
const retries = 5

// wires are the clients whose transport may want to repeat what got no answer. Addr is the proxy's.
var wires = map[string]func(addr string) redis.UniversalClient{
	"defaults": func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr})
	},
	"retries of the user's": func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: retries, MinRetryBackoff: time.Millisecond})
	},
	"retries and deadlines": func(addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{
			Addr: addr, MaxRetries: retries, MinRetryBackoff: time.Millisecond, ContextTimeoutEnabled: true,
		})
	},
	"cluster": func(addr string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			MaxRedirects: retries, MaxRetries: retries, MinRetryBackoff: time.Millisecond,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
			},
		})
	},
}

// eachWire gives a test a batcher behind a proxy, and a connection that goes past it. Redis knows the script add.
func eachWire(t *testing.T, test func(t *testing.T, b *pipeline.Batcher, p *faulttest.Proxy, direct *redis.Client)) {
	t.Helper()
	for name, open := range wires {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			faulttest.LeakCheck(t, server.Addr(), "k*")
			proxy := faulttest.NewProxy(t, server.Addr())
			rdb := open(proxy.Addr())
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			b := pipeline.New(rdb, time.Minute)
			t.Cleanup(b.Close)
			require.NoError(t, b.Do(t.Context(), add().Call(1, "k", 0), pipeline.SendOptions{}))
			test(t, b, proxy, server.Client(t))
		})
	}
}

func TestLoneCallWithoutAnAnswerRanOnce(t *testing.T) {
	eachWire(t, func(t *testing.T, b *pipeline.Batcher, p *faulttest.Proxy, direct *redis.Client) {
		for i := range 3 {
			p.DropReply(faulttest.Script, 1)
			err := b.Do(t.Context(), add().Call(1, "k", 1), pipeline.SendOptions{})
			assert.Equal(t, script.Unknown, script.Judge(err), "%v", err)
			assert.Equal(t, i+1, p.Dropped())
		}
		n, err := direct.Get(t.Context(), "k").Int()
		require.NoError(t, err)
		assert.Equal(t, 3, n)
	})
}

func TestPipelineWithoutAnswersRanOnce(t *testing.T) {
	eachWire(t, func(t *testing.T, b *pipeline.Batcher, p *faulttest.Proxy, direct *redis.Client) {
		const calls, spared = 40, 10
		arrived, open := make(chan struct{}, calls+2), make(chan struct{})
		p.OnCommand(func(cmd []string) {
			if faulttest.Script(cmd) {
				arrived <- struct{}{}
				<-open // the first calls wait there while the others gather
			}
		})
		// Two lone calls are under way, then comes the pipeline, of which only the first calls can be answered.
		p.DropReply(faulttest.Script, 2+spared+1)
		outcomes := make(chan *script.Call, calls+2) // one of each call
		for i := range calls + 2 {
			b.Start(add().Call(1, "k:"+strconv.Itoa(i), 1), pipeline.Normal, func(c *script.Call) { outcomes <- c })
			if i < 2 {
				<-arrived
			}
		}
		close(open)
		unknown := 0
		for range calls + 2 {
			c := <-outcomes
			n, err := direct.Get(t.Context(), c.Key()).Int()
			if c.Err() == nil {
				require.NoError(t, err)
				assert.Equal(t, 1, n, "a call that was answered")
				continue
			}
			unknown++
			assert.Equal(t, script.Unknown, script.Judge(c.Err()), "%v", c.Err())
			assert.LessOrEqual(t, n, 1, "a call that was not") // the proxy may hang up before it has passed on all
		}
		p.OnCommand(nil)
		assert.Equal(t, 1, p.Dropped())
		assert.Greater(t, unknown, 2, "it was the answer of a pipeline")
	})
}
