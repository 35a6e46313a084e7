package main

import (
	"context"
	_ "embed"
	"errors"
	"strconv"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

//go:embed raw_release.lua
var rawReleaseSource string

var errNotHeld = errors.New("the lock was not held at its release")

// rawSession is the floor: SET NX PX, and compare-and-delete by EVALSHA, on a plain go-redis client. No renewal,
// no notification, no word about a lost reply.
type rawSession struct {
	rdb   *redis.Client
	sha   string
	id    string
	setup setup
}

func openRaw(ctx context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	sha, err := rdb.ScriptLoad(ctx, rawReleaseSource).Result()
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &rawSession{rdb: rdb, sha: sha, id: uuid.NewString(), setup: s}, nil
}

func (s *rawSession) handle(key string) handle {
	return &rawHandle{session: s, keys: []string{key}, prefix: s.id + ":" + uuid.NewString() + ":"}
}

func (s *rawSession) close() error { return s.rdb.Close() }

type rawHandle struct {
	session  *rawSession
	keys     []string
	prefix   string
	token    string
	sequence int64
	pause    pause
}

func (h *rawHandle) Lock(ctx context.Context) error {
	h.sequence++
	h.token = h.prefix + strconv.FormatInt(h.sequence, 10)
	for {
		err := h.session.rdb.SetArgs(ctx, h.keys[0], h.token, redis.SetArgs{Mode: "NX", TTL: h.session.setup.Lease}).Err()
		if !errors.Is(err, redis.Nil) {
			return err
		}
		if err := h.pause.wait(ctx, h.session.setup.Retry); err != nil {
			return err
		}
	}
}

func (h *rawHandle) Unlock(ctx context.Context) error {
	deleted, err := h.session.rdb.EvalSha(ctx, h.session.sha, h.keys, h.token).Int()
	if err == nil && deleted == 0 {
		return errNotHeld
	}
	return err
}
