package main

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"
)

//go:embed counter_take.lua
var counterTakeSource string

//go:embed counter_give.lua
var counterGiveSource string

// counterKey is the name of every semaphore here.
const counterKey = "permits"

// counterSession is the floor of semaphores: a counter in two scripts on a plain go-redis client, a command for each operation.
// What a process had when it died is gone, a repeated command counts twice, and waiters poll.
type counterSession struct {
	rdb        *redis.Client
	take, give string // the scripts
	setup      setup
}

func openCounter(ctx context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	take, takeErr := rdb.ScriptLoad(ctx, counterTakeSource).Result()
	give, giveErr := rdb.ScriptLoad(ctx, counterGiveSource).Result()
	err := rdb.SetNX(ctx, "counter:"+counterKey, s.Permits, 0).Err()
	if err := errors.Join(takeErr, giveErr, err); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &counterSession{rdb: rdb, take: take, give: give, setup: s}, nil
}

func (s *counterSession) handle(string) handle {
	return &counterHandle{session: s, keys: []string{"counter:" + counterKey}}
}

func (s *counterSession) close() error { return s.rdb.Close() }

type counterHandle struct {
	session *counterSession
	keys    []string
	pause   pause
}

func (h *counterHandle) Lock(ctx context.Context) error {
	for {
		taken, err := h.session.rdb.EvalSha(ctx, h.session.take, h.keys).Int()
		if err != nil || taken == 1 {
			return err
		}
		if err := h.pause.wait(ctx, h.session.setup.Retry); err != nil {
			return err
		}
	}
}

func (h *counterHandle) Unlock(ctx context.Context) error {
	return h.session.rdb.EvalSha(ctx, h.session.give, h.keys, "counter:channel").Err()
}

// inProcessSession is the limit: a semaphore that no other process sees.
type inProcessSession struct{ weighted *semaphore.Weighted }

func openInProcess(_ context.Context, s setup) (session, error) {
	return &inProcessSession{semaphore.NewWeighted(int64(s.Permits))}, nil
}

func (s *inProcessSession) handle(string) handle { return inProcessHandle{s.weighted} }

func (s *inProcessSession) close() error { return nil }

type inProcessHandle struct{ weighted *semaphore.Weighted }

func (h inProcessHandle) Lock(ctx context.Context) error { return h.weighted.Acquire(ctx, 1) }

func (h inProcessHandle) Unlock(context.Context) error {
	h.weighted.Release(1)
	return nil
}
