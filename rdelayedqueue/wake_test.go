package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// idle is clients that consume jobs and sleep.
type idle struct {
	peers   []*locktest.Peer
	handled chan time.Time
}

func sleepers(t *testing.T, b *locktest.Bubble, n int) *idle {
	t.Helper()
	s := &idle{handled: make(chan time.Time, 10)}
	for range n {
		p := b.Peer(t, redlatch.WithCloseGrace(0))
		s.peers = append(s.peers, p)
		consume(t, jobs(p), func(context.Context, *rdelayedqueue.Message[job]) error {
			s.handled <- time.Now()
			return nil
		})
	}
	time.Sleep(time.Second)
	synctest.Wait()
	return s
}

// alarm returns the client that is to look in first.
func (s *idle) alarm(t *testing.T, b *locktest.Bubble) *locktest.Peer {
	t.Helper()
	return whoIs(t, s.peers, b.Hash(t, "redlatch_dq:{jobs}:meta")["alarm"])
}

func TestAlarmThatAnOfferAppointsHasASpare(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := sleepers(t, b, 2)
		start := time.Now()
		offer(t, jobs(b.Peer(t)), "x", 5*time.Second) // sooner than the safety check of anybody
		synctest.Wait()
		dead := s.alarm(t, b)
		dead.Blackhole(true)
		defer dead.Blackhole(false)
		assert.WithinDuration(t, start.Add(5*time.Second), <-s.handled, 500*time.Millisecond)
	})
}

func TestOfferToASleeperCostsLittle(t *testing.T) {
	// One that is due is claimed, handled and acknowledged, and two clients then look for the later one.
	offers := map[time.Duration]int{0: 8, 5 * time.Second: 3}
	for delay, most := range offers {
		t.Run(delay.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := sleepers(t, b, 3)
				producer := b.Peer(t)
				count := func() int {
					n := producer.Scripts()
					for _, p := range s.peers {
						n += p.Scripts()
					}
					return n
				}
				q := jobs(producer)
				require.Zero(t, stats(t, q)) // connects
				offer(t, q, "makes the scripts known", 0)
				offer(t, q, "later", time.Hour)
				time.Sleep(time.Second)
				synctest.Wait()
				before := count()
				offer(t, q, "x", delay)
				synctest.Wait()
				assert.LessOrEqual(t, count()-before, most)
			})
		})
	}
}

// F7
func TestToldOfALaterMessageASleeperHearsOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	ring := c.Client(t)
	client := newClient(t, c.Client(t))
	far, near := "far-"+t.Name(), ""
	for i := 0; near == ""; i++ { // a queue on another node than the one that all channels are heard over
		if name := fmt.Sprintf("near-%d", i); c.Owner(t, name).Addr() != c.Owner(t, far).Addr() {
			near = name
		}
	}
	handled := make(chan string, 10)
	handle := func(_ context.Context, m *rdelayedqueue.Message[job]) error {
		handled <- m.Value.Name
		return nil
	}
	asleep := func(name string) {
		redistest.Eventually(t, patience, "the consumer sleeps", func() error {
			if ring.ZCard(t.Context(), "redlatch_dq:{"+name+"}:waiters").Val() == 0 {
				return errors.New("nobody waits")
			}
			return nil
		})
	}
	for _, name := range []string{far, near} {
		consume(t, redlatch.GetDelayedQueue[job](client, name), handle)
		asleep(name)
	}
	producer := redlatch.GetDelayedQueue[job](newClient(t, c.Client(t)), near)
	lag := faulttest.MeasureLag(t, c.Owner(t, near).Addr())
	offer(t, producer, "later", time.Hour)
	start := time.Now()
	offer(t, producer, "now", 0)
	assert.Equal(t, "now", <-handled)
	assert.Less(t, time.Since(start), time.Second+lag.Late())
}

func newClient(t *testing.T, rdb redis.UniversalClient) *redlatch.Client {
	t.Helper()
	client, err := redlatch.New(rdb, redlatch.WithCloseGrace(100*time.Millisecond), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// taken is when somebody else got a message.
type taken struct {
	at  time.Time
	err error
}

// sleepingTake takes from the queue once there is something, and returns when it sleeps.
func sleepingTake(t *testing.T, q *rdelayedqueue.Queue[job]) <-chan taken {
	t.Helper()
	got := make(chan taken, 1)
	go func() {
		_, err := q.Take(t.Context())
		got <- taken{time.Now(), err}
	}()
	time.Sleep(time.Second)
	synctest.Wait()
	return got
}

func TestClosingClientTellsOthersWhatItLeaves(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCloseGrace(0))
		q := jobs(p, rdelayedqueue.WithVisibility(time.Hour))
		offer(t, q, "a", 0)
		take(t, q)
		got := sleepingTake(t, jobs(b.Peer(t)))
		start := time.Now()
		require.NoError(t, p.Close())
		other := <-got
		require.NoError(t, other.err)
		assert.WithinDuration(t, start, other.at, 10*time.Millisecond)
	})
}

func TestClosingClientHandsOnItsAlarm(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := sleepers(t, b, 2)
		start := time.Now()
		offer(t, jobs(b.Peer(t)), "x", 5*time.Second)
		synctest.Wait()
		closing := s.alarm(t, b)
		require.NoError(t, closing.Close())
		assert.WithinDuration(t, start.Add(5*time.Second), <-s.handled, 10*time.Millisecond, "not left to the spare")
	})
}

func TestClaimThatIsTakenBackIsAnnounced(t *testing.T) {
	ends := map[string]func(p *locktest.Peer, cancel context.CancelFunc) error{
		"caller gone":   func(p *locktest.Peer, cancel context.CancelFunc) error { cancel(); p.Refuse(false); return nil },
		"client closed": func(p *locktest.Peer, _ context.CancelFunc) error { p.Refuse(false); return p.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				q := jobs(p, rdelayedqueue.WithVisibility(time.Hour))
				offer(t, q, "known", 0)
				require.NoError(t, take(t, q).Ack(t.Context())) // Redis knows the scripts after it
				offer(t, q, "a", 0)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				p.LoseReplies(1)
				go func() {
					_, err := q.Take(ctx)
					ended <- err
				}()
				synctest.Wait()
				p.Refuse(true)
				other := jobs(b.Peer(t))
				require.Equal(t, 1, stats(t, other).InFlight)
				got := sleepingTake(t, other)
				start := time.Now()
				require.NoError(t, end(p, cancel))
				require.Error(t, <-ended)
				found := <-got
				require.NoError(t, found.err)
				assert.WithinDuration(t, start, found.at, time.Second)
			})
		})
	}
}

func TestShortenedVisibilityIsAnnounced(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithVisibility(time.Hour))
		offer(t, q, "a", 0)
		m := take(t, q)
		got := sleepingTake(t, jobs(b.Peer(t)))
		start := time.Now()
		require.NoError(t, m.Extend(t.Context(), time.Second))
		found := <-got
		require.NoError(t, found.err)
		assert.WithinDuration(t, start.Add(time.Second), found.at, 10*time.Millisecond)
	})
}
