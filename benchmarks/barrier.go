package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const barrierParties = 8

// party waits for the others of a round.
type party func(ctx context.Context, round int) error

// barriers measures how many rounds participants make, each with a client of its own.
func barriers(ctx context.Context, b *bench) ([]row, error) {
	setUps := []struct {
		name string
		join func(ctx context.Context, b *bench) (party, func() error, error)
	}{{barrierName, joinBarrier}, {countName, joinByCount}}
	found := samples{}
	for range b.rounds {
		for _, s := range setUps {
			n, err := roundsPerSecond(ctx, b, s.join)
			if err != nil {
				return nil, err
			}
			found.add(s.name, n)
		}
	}
	progress("barrier: %s rounds/s", figure(median(found[barrierName])))
	measure := fmt.Sprintf("barrier of %d: ", barrierParties)
	return []row{
		{Measure: measure + "rounds/s", Cells: found.cells(), Rounds: found},
		{Measure: measure + "ratio to " + countName, Cells: found.ratios(countName)},
	}, b.server.empty(ctx)
}

func joinBarrier(_ context.Context, b *bench) (party, func() error, error) {
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, nil, err
	}
	barrier := s.client.GetBarrier("parties", barrierParties)
	return func(ctx context.Context, _ int) error { return barrier.Await(ctx) }, s.close, nil
}

// joinByCount is what users write by hand: each one counts itself, and the last one tells the others. It waits for ever for one that
// has died, and for a message that was lost.
func joinByCount(ctx context.Context, b *bench) (party, func() error, error) {
	rdb := newGoRedis(setup{Addr: b.server.addr})
	sub := rdb.Subscribe(ctx, "full")
	if _, err := sub.Receive(ctx); err != nil {
		return nil, nil, errors.Join(err, sub.Close(), rdb.Close())
	}
	return func(ctx context.Context, round int) error {
		key := "parties:" + strconv.Itoa(round)
		n, err := rdb.Incr(ctx, key).Result()
		if err == nil && n == barrierParties {
			_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.Publish(ctx, "full", round)
				p.Del(ctx, key)
				return nil
			})
		}
		if err != nil {
			return err
		}
		_, err = sub.ReceiveMessage(ctx) // each round has one, and no round is left before it has come
		return err
	}, func() error { return errors.Join(sub.Close(), rdb.Close()) }, nil
}

func roundsPerSecond(ctx context.Context, b *bench, join func(context.Context, *bench) (party, func() error, error)) (float64, error) {
	var all []party
	var leave []func() error
	closeAll := func() (err error) {
		for _, l := range leave {
			err = errors.Join(err, l())
		}
		return err
	}
	for range barrierParties {
		p, l, err := join(ctx, b)
		if err != nil {
			return 0, errors.Join(err, closeAll())
		}
		all, leave = append(all, p), append(leave, l)
	}
	play := func(from, to int) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		failed := make(chan error, barrierParties)
		var running sync.WaitGroup
		for _, p := range all {
			running.Go(func() {
				for round := from; round < to; round++ {
					if err := p(ctx, round); err != nil {
						failed <- err
						cancel()
						return
					}
				}
			})
		}
		running.Wait()
		close(failed)
		return <-failed
	}
	const warm = 100
	rounds := 2000
	if b.config.quick {
		rounds = 500
	}
	err := play(0, warm) // connected, and subscribed
	start := time.Now()
	if err == nil {
		err = play(warm, warm+rounds)
	}
	took := time.Since(start)
	return float64(rounds) / took.Seconds(), errors.Join(err, closeAll())
}
