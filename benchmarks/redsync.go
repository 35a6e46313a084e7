package main

import (
	"context"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncSession struct {
	rdb   *redis.Client
	sync  *redsync.Redsync
	setup setup
}

func openRedsync(_ context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	return &redsyncSession{rdb: rdb, sync: redsync.New(goredis.NewPool(rdb)), setup: s}, nil
}

// handle makes the mutex once: it may be locked again and again, and its 32 tries would not do on a contended key.
func (s *redsyncSession) handle(key string) handle {
	return &redsyncHandle{mutex: s.sync.NewMutex(key,
		redsync.WithExpiry(s.setup.Lease), redsync.WithTries(math.MaxInt32), redsync.WithRetryDelay(s.setup.Retry))}
}

func (s *redsyncSession) close() error { return s.rdb.Close() }

type redsyncHandle struct{ mutex *redsync.Mutex }

func (h *redsyncHandle) Lock(ctx context.Context) error { return h.mutex.LockContext(ctx) }

func (h *redsyncHandle) Unlock(ctx context.Context) error {
	released, err := h.mutex.UnlockContext(ctx)
	if err == nil && !released {
		return errNotHeld
	}
	return err
}
