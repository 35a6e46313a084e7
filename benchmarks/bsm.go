package main

import (
	"context"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

type bsmSession struct {
	rdb    *redis.Client
	client *redislock.Client
	setup  setup
}

func openBSM(_ context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	return &bsmSession{rdb: rdb, client: redislock.New(rdb), setup: s}, nil
}

func (s *bsmSession) handle(key string) handle {
	return &bsmHandle{session: s, key: key, options: &redislock.Options{RetryStrategy: redislock.LinearBackoff(s.setup.Retry)}}
}

func (s *bsmSession) close() error { return s.rdb.Close() }

type bsmHandle struct {
	session *bsmSession
	key     string
	options *redislock.Options
	lock    *redislock.Lock
}

func (h *bsmHandle) Lock(ctx context.Context) (err error) {
	h.lock, err = h.session.client.Obtain(ctx, h.key, h.session.setup.Lease, h.options)
	return err
}

func (h *bsmHandle) Unlock(ctx context.Context) error { return h.lock.Release(ctx) }
