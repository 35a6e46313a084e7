package main

import (
	"context"
	_ "embed"
	"errors"
	"strconv"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed shape_acquire.lua
	shapeAcquireSource string
	//go:embed shape_release.lua
	shapeReleaseSource string
)

// shapeSession runs two scripts of redlatch's shape with nothing around them, plainly or through AutoPipeline: what
// pipelining alone is worth.
type shapeSession struct {
	rdb              *redis.Client
	scripter         redis.Scripter
	acquire, release string // SHA-1
	id               string
	setup            setup
}

func openPlain(ctx context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	return openShape(ctx, s, rdb, rdb)
}

func openAutoPipeline(ctx context.Context, s setup) (session, error) {
	rdb := newGoRedis(s)
	pipeliner, err := rdb.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return openShape(ctx, s, rdb, pipeliner)
}

func openShape(ctx context.Context, s setup, rdb *redis.Client, scripter redis.Scripter) (session, error) {
	acquire, err := rdb.ScriptLoad(ctx, shapeAcquireSource).Result()
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	release, err := rdb.ScriptLoad(ctx, shapeReleaseSource).Result()
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &shapeSession{rdb: rdb, scripter: scripter, acquire: acquire, release: release, id: uuid.NewString(), setup: s}, nil
}

func (s *shapeSession) handle(key string) handle {
	return &shapeHandle{session: s, keys: []string{key, "redisson_lock__channel:{" + key + "}"}, prefix: s.id + ":" + uuid.NewString() + ":"}
}

// close ends the AutoPipeliner too, which belongs to the client.
func (s *shapeSession) close() error { return s.rdb.Close() }

type shapeHandle struct {
	session  *shapeSession
	keys     []string // the lock and its channel
	prefix   string
	owner    string
	sequence int64
	pause    pause
}

func (h *shapeHandle) Lock(ctx context.Context) error {
	s := h.session
	h.sequence++
	h.owner = h.prefix + strconv.FormatInt(h.sequence, 10)
	for {
		left, err := s.scripter.EvalSha(ctx, s.acquire, h.keys[:1], h.owner, s.setup.Lease.Milliseconds()).Int64()
		if err != nil || left == -1 {
			return err
		}
		if err := h.pause.wait(ctx, s.setup.Retry); err != nil {
			return err
		}
	}
}

func (h *shapeHandle) Unlock(ctx context.Context) error {
	released, err := h.session.scripter.EvalSha(ctx, h.session.release, h.keys, h.owner).Int()
	if err == nil && released == 0 {
		return errNotHeld
	}
	return err
}
