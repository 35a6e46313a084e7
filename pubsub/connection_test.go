package pubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/pubsub"
)

// F4
func TestReconnectionNotifiesEveryListener(t *testing.T) {
	var calls atomic.Int32
	o := pubsub.Options{OnReconnect: func() { calls.Add(1) }}
	inBubble(t, o, func(t *testing.T, r *rig) {
		ears := make([]ear, 1200)
		for i := range ears {
			if _, confirmed := r.Join(fmt.Sprint("c", i%700), &ears[i]); confirmed {
				ears[i].Subscribed() // so that all count alike
			}
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, r.wire(t).Conn.Close())
		synctest.Wait()
		assert.Zero(t, time.Since(start), "the first retry comes at once")
		for i := range ears {
			require.Equal(t, 2, ears[i].confirmations(), i)
		}
		assert.EqualValues(t, 1, calls.Load())
		assert.EqualValues(t, 1, r.Stats().Reconnects)

		r.server.Publish("c3", "0")
		synctest.Wait()
		assert.Equal(t, []string{"0"}, ears[3].heard())
	})
}

// F16
func TestConnectionNeverOutlivesAnError(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, r *rig, late *ear){
		"read": func(t *testing.T, r *rig, _ *ear) {
			t.Helper()
			require.NoError(t, r.wire(t).Conn.Close())
		},
		"write": func(t *testing.T, r *rig, late *ear) {
			t.Helper()
			w := r.wire(t)
			w.set(func() { w.broken = true })
			_, _ = r.Join("late", late)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var failures atomic.Int32
			var log bytes.Buffer
			o := pubsub.Options{OnFailure: func() { failures.Add(1) }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			inBubble(t, o, func(t *testing.T, r *rig) {
				var e, late ear
				_, _ = r.Join("a", &e)
				synctest.Wait()
				r.set(func() { r.hang = true })
				start := time.Now()
				fault(t, r, &late)
				synctest.Wait()
				assert.EqualValues(t, 1, failures.Load(), "the Redis client dials before it reports the error")
				assert.Zero(t, time.Since(start))
				assert.NotContains(t, log.String(), "canceled", "the cause is the first error")

				r.set(func() { r.hang = false })
				_, _ = r.Join("late", &late)
				time.Sleep(11 * time.Second) // a dial that hangs ends after 10 s
				synctest.Wait()
				assert.Equal(t, 2, e.confirmations())
				assert.Positive(t, late.confirmations())
			})
		})
	}
}

// F21
func TestRetriesBackOff(t *testing.T) {
	var log bytes.Buffer
	o := pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	inBubble(t, o, func(t *testing.T, r *rig) {
		var e ear
		_, _ = r.Join("a", &e)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		r.set(func() { r.refuse = true })
		require.NoError(t, r.wire(t).Conn.Close())
		time.Sleep(60 * time.Second)
		synctest.Wait()
		assert.Greater(t, r.refused, 60)
		assert.Less(t, r.refused, 150)
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), "the begin of an outage is one line")
		assert.Contains(t, log.String(), "level=WARN")

		r.set(func() { r.refuse = false })
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 2, e.confirmations())
		assert.EqualValues(t, 1, r.Stats().Reconnects)
		assert.Equal(t, 2, strings.Count(log.String(), "\n"), "so is its end")
		assert.Regexp(t, `level=INFO .* length=(1m0|60)\S*s`, log.String())
	})
}

func TestConnectionsCutAtOnceBackOff(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		_, _ = r.Join("a", &e)
		synctest.Wait()
		cuts := 0
		for start := time.Now(); time.Since(start) < 20*time.Second; cuts++ {
			before := e.confirmations()
			require.NoError(t, r.wire(t).Conn.Close())
			for e.confirmations() == before {
				time.Sleep(10 * time.Millisecond)
			}
		}
		assert.Less(t, cuts, 60)
	})
}

// F10
func TestSubscriptionsOutliveAServerThatIsLoadingOrBusy(t *testing.T) {
	for name, refused := range map[string][]string{
		"LOADING": {"PING"},
		"BUSY":    {"PING", "SUBSCRIBE"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
				var refusing atomic.Bool
				var e ear
				for i := range 3 {
					_, _ = r.Join(fmt.Sprint(i), &e)
				}
				synctest.Wait()
				require.Equal(t, 3, e.confirmations())
				r.server.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
					if !refusing.Load() || !slices.Contains(refused, cmd) {
						return false
					}
					time.Sleep(time.Millisecond) // a round trip
					c.WriteError(name + " it will pass")
					return true
				})
				refusing.Store(true)
				require.NoError(t, r.wire(t).Close())
				time.Sleep(3 * time.Second)
				refusing.Store(false)
				time.Sleep(time.Second)
				assert.Equal(t, 6, e.confirmations())
			})
		})
	}
}

// F10
func TestIdleConnectionCostsFourPingsAMinute(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		_, _ = r.Join("a", &e)
		synctest.Wait()
		w := r.wire(t)
		before := w.total()
		time.Sleep(14 * time.Second)
		assert.Equal(t, before, w.total())
		time.Sleep(47 * time.Second)
		synctest.Wait()
		assert.Equal(t, 4, w.count("ping"))
		assert.Equal(t, before+4, w.total())

		for range 60 {
			r.server.Publish("a", "0")
			time.Sleep(time.Second)
		}
		assert.Equal(t, 4, w.count("ping"), "messages are signs of life")
		assert.Len(t, r.subscriptions(), 1)
	})
}

// F4
func TestDeadConnectionIsReplaced(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e, late ear
		_, _ = r.Join("a", &e)
		synctest.Wait()
		w := r.wire(t)
		w.set(func() { w.dead = true })
		time.Sleep(19900 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, e.confirmations())
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, e.confirmations(), "15 s of silence, 5 s without a pong")

		w = r.wire(t)
		w.set(func() { w.dead = true })
		_, _ = r.Join("b", &late)
		time.Sleep(5100 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1, late.confirmations(), "5 s without the confirmation")
	})
}

// F10
func TestUnusedRouterHoldsNothing(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		for range 3 {
			m, _ := r.Join("a", &e)
			synctest.Wait()
			m.Leave()
			time.Sleep(28 * time.Second)
			m, _ = r.Join("a", &e)
			synctest.Wait()
			require.Equal(t, 1, r.server.CurrentConnectionCount(), "still connected")
			m.Leave()
			time.Sleep(32 * time.Second)
			synctest.Wait()
			assert.Zero(t, r.server.CurrentConnectionCount())
			assert.Zero(t, goroutines())
		}
		assert.Equal(t, 6, e.confirmations())
		assert.Len(t, r.subscriptions(), 3)
		assert.Zero(t, r.Stats().Reconnects)
	})
}

func TestTwoGoroutinesServeAllListeners(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		for i := range 1000 {
			_, _ = r.Join(fmt.Sprint("c", i), &e)
		}
		synctest.Wait()
		assert.Equal(t, 2, goroutines())
	})
}

// goroutines counts those that routers have started.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("created by github.com/redlatch/redlatch/pubsub.(*"))
}

func TestJoinAfterCloseIsNeverConfirmed(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		m, _ := r.Join("a", &e)
		synctest.Wait()
		start := time.Now()
		r.Close()
		r.Close()
		assert.Zero(t, time.Since(start))
		synctest.Wait()
		assert.Zero(t, r.server.CurrentConnectionCount())

		late, confirmed := r.Join("a", &e)
		time.Sleep(time.Minute)
		assert.False(t, confirmed)
		assert.Equal(t, 1, e.confirmations())
		assert.Zero(t, r.Stats().Channels)
		late.Leave()
		m.Leave()
	})
}

func TestRouterWithoutASubscriberIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := pubsub.New(nil, pubsub.Options{})
		var e ear
		m, confirmed := r.Join("a", &e)
		assert.False(t, confirmed)
		time.Sleep(time.Minute)
		assert.Zero(t, r.Stats())
		m.Leave()
		r.Close()
	})
}

// F10
func TestCloseIsBoundedOnADeadNetwork(t *testing.T) {
	t.Run("silent connection", func(t *testing.T) {
		inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
			var e ear
			_, _ = r.Join("a", &e)
			synctest.Wait()
			w := r.wire(t)
			w.set(func() { w.dead = true })
			start := time.Now()
			r.Close()
			assert.Zero(t, time.Since(start))
		})
	})
	t.Run("silent handshake", func(t *testing.T) {
		inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
			var e ear
			r.set(func() { r.dead = true })
			_, _ = r.Join("a", &e)
			synctest.Wait()
			start := time.Now()
			r.Close()
			assert.LessOrEqual(t, time.Since(start), 2*time.Second)
			time.Sleep(5 * time.Second) // the handshake ends by the client's own time-out
		})
	})
	t.Run("hanging dial", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var e ear
			rdb := redis.NewClient(options(func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}))
			r := pubsub.New(rdb, pubsub.Options{})
			_, _ = r.Join("a", &e)
			synctest.Wait()
			start := time.Now()
			r.Close()
			assert.Zero(t, time.Since(start))
			require.NoError(t, rdb.Close())
		})
	})
}

func TestRESP2(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		o := options(r.dial)
		o.Protocol = 2
		rdb := redis.NewClient(o)
		router := pubsub.New(rdb, pubsub.Options{})
		var a, b ear
		_, _ = router.Join("a", &a)
		mb, _ := router.Join("b", &b)
		synctest.Wait()
		mb.Leave()
		time.Sleep(40 * time.Second)
		r.server.Publish("a", "0")
		synctest.Wait()
		assert.Equal(t, []string{"0"}, a.heard())
		assert.Equal(t, 1, a.confirmations(), "PING is answered")
		router.Close()
		require.NoError(t, rdb.Close())
	})
}
