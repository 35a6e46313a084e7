package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

type redlatchSession struct {
	rdb    *redis.Client
	client *redlatch.Client
	lock   lockOf // the kind of lock
}

// lockOf returns a lock of one kind by its key.
type lockOf func(c *redlatch.Client, key string) rlock.Locker

func reentrantLock(c *redlatch.Client, key string) rlock.Locker { return c.GetLock(key) }

func openRedlatch(_ context.Context, s setup) (session, error) { return newRedlatch(s, reentrantLock) }

func openRedlatchNoBudget(_ context.Context, s setup) (session, error) {
	return newRedlatch(s, reentrantLock, redlatch.WithHandoffBudget(0))
}

func newRedlatch(s setup, lock lockOf, opts ...redlatch.Option) (*redlatchSession, error) {
	rdb := newGoRedis(s)
	client, err := redlatch.New(rdb, append(opts, redlatch.WithWatchdogTimeout(s.Lease))...)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &redlatchSession{rdb: rdb, client: client, lock: lock}, nil
}

func (s *redlatchSession) handle(key string) handle {
	return &redlatchHandle{lock: s.lock(s.client, key)}
}

func (s *redlatchSession) close() error { return errors.Join(s.client.Close(), s.rdb.Close()) }

func (s *redlatchSession) doneOf(hold any) <-chan struct{} {
	return hold.(*rlock.Hold).Context().Done()
}

type redlatchHandle struct {
	lock rlock.Locker
	hold *rlock.Hold
}

func (h *redlatchHandle) Lock(ctx context.Context) (err error) {
	h.hold, err = h.lock.Lock(ctx)
	return err
}

func (h *redlatchHandle) Unlock(ctx context.Context) error { return h.hold.Unlock(ctx) }

// kept leaves out the Lock, which a user need not keep.
func (h *redlatchHandle) kept() any { return h.hold }
