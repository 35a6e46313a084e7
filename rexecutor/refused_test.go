package rexecutor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rexecutor"
)

// refusable are the commands of the scripts that an ACL may forbid.
var refusable = strings.Fields(`publish exists get set hget hset hdel hexists hlen hmget hgetall hincrby zadd zrem zscore zmscore
	zrange zrangebyscore zrangebylex zlexcount zrevrange zrevrangebyscore zremrangebyscore zcount zcard pexpire pttl persist`)

// F25
func TestRefusedCommandLeavesNoTaskHalfDone(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	acl := func(rules ...any) {
		require.NoError(t, r.redis.Do(t.Context(), append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err())
	}
	acl("on", ">secret", "~*", "&*", "+@all")
	open := func() *rexecutor.Executor {
		rdb := redis.NewClient(&redis.Options{Addr: r.server.Addr(), Username: "app", Password: "secret"})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, redlatch.WithCloseGrace(100*time.Millisecond), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return rexecutor.New(c, "media")
	}
	ex, caller, sound := open(), open(), r.direct(t)
	require.NoError(t, greet.Handle(ex, hello))
	work(t, ex)
	r.asleep(t, 1)
	for _, command := range refusable {
		for _, group := range []string{"", "g"} {
			id := command + group
			opts := []rexecutor.SubmitOption{rexecutor.WithID(id)}
			later := []rexecutor.SubmitOption{rexecutor.WithID(id + " later"), rexecutor.WithDelay(time.Hour)}
			if group != "" {
				opts, later = append(opts, rexecutor.WithGroup(group)), append(later, rexecutor.WithGroup("later"+id))
			}
			submit(t, sound, args{}, later...)
			acl("-" + command)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_, failed := greet.Submit(ctx, caller, args{Name: id}, opts...)
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			cancelled, notCancelled := greet.Future(caller, id+" later").Cancel(ctx)
			cancel()
			acl("+" + command)
			switch {
			case failed == nil:
				short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				got, err := greet.Future(sound, id).Get(short)
				cancel()
				require.NoError(t, err, id)
				assert.Equal(t, answer{"hello " + id}, got)
			case !errors.Is(failed, redlatch.ErrUnknown):
				_, err := greet.Future(sound, id).Status(t.Context())
				require.ErrorIs(t, err, rexecutor.ErrNotFound, "%s: %v", id, failed)
			}
			st, err := greet.Future(sound, id+" later").Status(t.Context())
			require.NoError(t, err)
			switch {
			case cancelled:
				require.ErrorIs(t, st.Err, rexecutor.ErrCancelled, id)
			case !errors.Is(notCancelled, redlatch.ErrUnknown):
				require.Equal(t, rexecutor.Delayed, st.State, "%s: %v", id, notCancelled)
			}
		}
	}
	redistest.Eventually(t, patience, "all is done", func() error {
		s, err := sound.Stats(t.Context())
		if err == nil && s.Ready+s.InFlight > 0 {
			err = fmt.Errorf("%+v", s.Stats)
		}
		return err
	})
}
