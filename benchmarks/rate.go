package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/redlatch/redlatch/rratelimiter"
)

// ratePerSecond is a rate that nobody reaches, so that each call takes a token.
const ratePerSecond = 1_000_000

var errOverRate = errors.New("over the rate")

// decision is a rate limiter as a handle: Lock asks whether one more may pass, and there is nothing to unlock.
type decision func(ctx context.Context) (allowed bool, err error)

func (d decision) Lock(ctx context.Context) error {
	allowed, err := d(ctx)
	if err == nil && !allowed {
		err = errOverRate
	}
	return err
}

func (decision) Unlock(context.Context) error { return nil }

type limiterSession struct {
	*redlatchSession
	limiter *rratelimiter.Limiter
}

func openLimiter(_ context.Context, s setup) (session, error) {
	r, err := newRedlatch(s, reentrantLock)
	if err != nil {
		return nil, err
	}
	return &limiterSession{r, r.client.GetRateLimiter("rate", rratelimiter.Per(ratePerSecond, time.Second))}, nil
}

func (s *limiterSession) handle(key string) handle {
	return decision(func(ctx context.Context) (bool, error) {
		res, err := s.limiter.Allow(ctx, key, 1)
		return res.Allowed, err
	})
}

type redisRateSession struct {
	rdb     *redis.Client
	limiter *redis_rate.Limiter
}

func openRedisRate(_ context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	return &redisRateSession{rdb, redis_rate.NewLimiter(rdb)}, nil
}

func (s *redisRateSession) handle(key string) handle {
	limit := redis_rate.Limit{Rate: ratePerSecond, Burst: ratePerSecond, Period: time.Second}
	return decision(func(ctx context.Context) (bool, error) {
		res, err := s.limiter.Allow(ctx, key, limit)
		return err == nil && res.Allowed > 0, err
	})
}

func (s *redisRateSession) close() error { return s.rdb.Close() }

type throttledSession struct {
	rdb     *redis.Client
	limiter *throttled.GCRARateLimiterCtx
}

func openThrottled(_ context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	store, err := goredisstore.NewCtx(rdb, "throttled:")
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(ratePerSecond), MaxBurst: ratePerSecond - 1})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &throttledSession{rdb, limiter}, nil
}

func (s *throttledSession) handle(key string) handle {
	return decision(func(ctx context.Context) (bool, error) {
		limited, _, err := s.limiter.RateLimitCtx(ctx, key, 1)
		return !limited, err
	})
}

func (s *throttledSession) close() error { return s.rdb.Close() }

// rates measures decisions of rate limiters, each goroutine about a key of its own.
func rates(ctx context.Context, b *bench) ([]row, error) {
	open, err := openAll(ctx, b, limiterName, redisRateName, throttledName)
	if err != nil {
		return nil, err
	}
	defer closeAll(open)
	var rows []row
	for _, goroutines := range []int{1, 16, 64, 256} {
		l := level{goroutines: goroutines, label: plural(goroutines)}
		found, err := l.measure(ctx, b, open)
		if err != nil {
			return nil, err
		}
		progress("rate limiter, %s: %s decisions/s", l.label, figure(median(found[limiterName])))
		ratio := row{Measure: fmt.Sprintf("rate limiter, %s: ratio to %s", l.label, redisRateName), Cells: found.ratios(redisRateName)}
		if goroutines == 64 {
			ratio.Targets = []target{atLeast("× "+redisRateName, 2, found.ratio(limiterName, redisRateName))}
		}
		rows = append(rows, row{Measure: "rate limiter, " + l.label + ": decisions/s", Cells: found.cells(), Rounds: found}, ratio)
	}
	return rows, b.server.empty(ctx)
}
