package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/rtopic"
)

const (
	topicSubscribers = 10
	topicAhead       = 10_000 // messages that the publisher may be ahead of the slowest subscriber
	topicBuffer      = 4 * topicAhead
	deliveredTopic   = "delivered"
)

// oneCall is a call as a handle: Lock makes it, and there is nothing to unlock.
type oneCall func(ctx context.Context) error

func (c oneCall) Lock(ctx context.Context) error { return c(ctx) }

func (oneCall) Unlock(context.Context) error { return nil }

type topicSession struct{ *redlatchSession }

func openTopic(_ context.Context, s setup) (session, error) {
	r, err := newRedlatch(s, reentrantLock)
	if err != nil {
		return nil, err
	}
	return topicSession{r}, nil
}

func topicOf(s *redlatchSession, name string) *rtopic.Topic[string] {
	return redlatch.GetTopic[string](s.client, name, rtopic.WithCodec(codec.Text{}))
}

func (s topicSession) handle(key string) handle {
	topic := topicOf(s.redlatchSession, key)
	return oneCall(func(ctx context.Context) error {
		_, err := topic.Publish(ctx, payload)
		return err
	})
}

type publishSession struct{ rdb *redis.Client }

func openPublish(_ context.Context, s setup) (session, error) {
	return publishSession{newGoRedis(s)}, nil
}

func (s publishSession) handle(key string) handle {
	return oneCall(func(ctx context.Context) error { return s.rdb.Publish(ctx, key, payload).Err() })
}

func (s publishSession) close() error { return s.rdb.Close() }

// topics measures how many values are published to topics that nobody subscribes to, and how many reach ten subscribers.
func topics(ctx context.Context, b *bench) ([]row, error) {
	open, err := openAll(ctx, b, topicName, publishName)
	if err != nil {
		return nil, err
	}
	defer closeAll(open)
	var rows []row
	for _, l := range levels()[:4] {
		found, err := l.measure(ctx, b, open)
		if err != nil {
			return nil, err
		}
		progress("topic, %s: %s values/s published", l.label, figure(median(found[topicName])))
		rows = append(rows, row{
			Measure: "topic, " + l.label + ": values published/s",
			Cells:   found.cells(), Rounds: found,
			Targets: []target{atLeast("× bare PUBLISH", 0.9, found.ratio(topicName, publishName))},
		})
	}
	delivered, err := deliveries(ctx, b)
	return append(rows, delivered...), errors.Join(err, b.server.empty(ctx))
}

// audience is the subscribers of one topic, in one client.
type audience struct {
	received []atomic.Int64 // by subscriber
	failed   atomic.Pointer[error]
	running  sync.WaitGroup
	asleep   *rtopic.Subscription[string] // reads nothing; nil for none
}

// subscribe opens the subscriptions, which end with ctx.
func subscribe(ctx context.Context, s *redlatchSession, name string, sleeper bool) (a *audience, err error) {
	a = &audience{received: make([]atomic.Int64, topicSubscribers)}
	topic := topicOf(s, name)
	if sleeper {
		if a.asleep, err = topic.Subscribe(ctx); err != nil {
			return a, err
		}
	}
	for i := range a.received {
		sub, err := topic.Subscribe(ctx, rtopic.WithBuffer(topicBuffer))
		if err != nil {
			return a, err
		}
		a.running.Go(func() {
			for _, err := range sub.All() {
				if err != nil { // a gap too: the publisher waits, so that nothing is dropped
					a.failed.Store(&err)
					return
				}
				a.received[i].Add(1)
			}
		})
	}
	return a, nil
}

// await waits until the slowest subscriber has received so many, and returns its number.
func (a *audience) await(ctx context.Context, wanted int64) (int64, error) {
	for {
		least := int64(math.MaxInt64)
		for i := range a.received {
			least = min(least, a.received[i].Load())
		}
		if err := a.failed.Load(); err != nil {
			return least, *err
		}
		if least >= wanted {
			return least, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return least, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// deliveries measures how many values a second each of the subscribers in one process receives, while the same process
// publishes them; and what one that sleeps keeps.
func deliveries(ctx context.Context, b *bench) ([]row, error) {
	window := 8 * b.window
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	defer closeAll([]opened{{contestant{name: topicName}, s}})
	found := samples{}
	pipelined := pipelinedPublisher(s.rdb)
	for range b.rounds {
		n, _, err := deliver(ctx, s, pipelined, window, false)
		if err != nil {
			return nil, fmt.Errorf("deliver: %w", err)
		}
		found.add(topicName, n)
	}
	progress("topic: %s values/s to each of %d subscribers", figure(median(found[topicName])), topicSubscribers)
	published := samples{}
	for range b.rounds {
		n, _, err := deliver(ctx, s, topicPublisher(s), window, false)
		if err != nil {
			return nil, fmt.Errorf("publish and deliver: %w", err)
		}
		published.add(topicName, n)
	}
	_, kept, err := deliver(ctx, s, pipelined, window, true)
	if err != nil {
		return nil, fmt.Errorf("deliver beside a sleeper: %w", err)
	}
	prefix := fmt.Sprintf("topic, %d subscribers in one process: ", topicSubscribers)
	return []row{
		{
			Measure: prefix + "values/s that each receives, published by PUBLISH in pipelines",
			Cells:   found.cells(), Rounds: found,
			Targets: []target{atLeast("values/s", 100_000, median(found[topicName]))},
		},
		{Measure: prefix + "values/s that each receives, published by Publish from 64 goroutines", Cells: published.cells(), Rounds: published},
		{
			Measure: "topic, a subscriber that sleeps beside them: KiB of heap when they have received all",
			Cells:   map[string][]float64{topicName: {kept / 1024}},
			Targets: []target{atMost("KiB", 1024, kept/1024)},
		},
	}, nil
}

// publisher publishes a batch of values to a channel, from several goroutines at a time.
type publisher struct {
	goroutines, batch int
	publish           func(ctx context.Context, channel string) error
}

func pipelinedPublisher(rdb *redis.Client) publisher {
	return publisher{2, 100, func(ctx context.Context, channel string) error {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 100 {
				p.Publish(ctx, channel, payload)
			}
			return nil
		})
		return err
	}}
}

func topicPublisher(s *redlatchSession) publisher {
	return publisher{64, 1, func(ctx context.Context, channel string) error {
		_, err := topicOf(s, channel).Publish(ctx, payload)
		return err
	}}
}

// deliver publishes to the subscribers for a window, never too far ahead of the slowest, and returns how many values a second
// each received, and by how many bytes the heap has grown while the subscriptions last.
func deliver(ctx context.Context, s *redlatchSession, p publisher, window time.Duration, sleeper bool) (perSecond, grown float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, window+10*time.Second)
	a, err := subscribe(ctx, s, deliveredTopic, sleeper)
	defer func() { // the subscriptions end with ctx
		cancel()
		a.running.Wait()
	}()
	if err != nil {
		return 0, 0, err
	}
	before, start := heap(), time.Now()
	var published, received atomic.Int64
	var publishing errgroup.Group
	for range p.goroutines {
		publishing.Go(func() error {
			for time.Since(start) < window {
				if sent := published.Add(int64(p.batch)); sent-received.Load() > topicAhead {
					least, err := a.await(ctx, sent-topicAhead)
					if err != nil {
						return err
					}
					received.Store(least)
				}
				if err := p.publish(context.WithoutCancel(ctx), deliveredTopic); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := publishing.Wait(); err != nil {
		return 0, 0, err
	}
	if _, err := a.await(ctx, published.Load()); err != nil {
		return 0, 0, err
	}
	perSecond = float64(published.Load()) / time.Since(start).Seconds()
	grown = float64(heap() - before)
	runtime.KeepAlive(a)
	return perSecond, grown, nil
}
