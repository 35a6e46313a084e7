package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// queueCommands are those that the scripts of queues use.
var queueCommands = strings.Fields(`time get set exists publish hget hmget hset hdel hlen hexists hgetall hincrby zadd zrem zscore zmscore
	zrange zrangebyscore zrangebylex zlexcount zrevrangebyscore zcount zcard zrank pexpire pttl persist`)

// guarded is a queue of a user who may not do everything, in which there is a message of each state.
type guarded struct {
	q       *rdelayedqueue.Queue[job]
	m       *rdelayedqueue.Message[job] // which the user has
	base    string                      // of the keys
	grouped bool                        // its messages have groups
}

func newGuarded(t *testing.T, user *redlatch.Client, sound *redlatch.Client, rdb *redis.Client, name string, grouped bool) guarded {
	t.Helper()
	opts := []rdelayedqueue.QueueOption{rdelayedqueue.WithVisibility(time.Hour), rdelayedqueue.WithMaxAttempts(2)}
	q := redlatch.GetDelayedQueue[job](sound, name, append(opts, rdelayedqueue.WithCapacity(1000))...)
	add := func(id string, delay time.Duration) {
		opts := []rdelayedqueue.OfferOption{rdelayedqueue.WithID(id)}
		if grouped {
			opts = append(opts, rdelayedqueue.WithGroup("group of "+id))
		}
		offer(t, q, id, delay, opts...)
	}
	add("dead", 0)
	require.NoError(t, take(t, q).Reject(t.Context(), "x"))
	add("spent", 0) // its attempts will be used up, and its claim run out
	require.NoError(t, take(t, q).Nack(t.Context(), 0))
	take(t, q)
	add("done", 0)
	require.NoError(t, take(t, q).Ack(t.Context()))
	add("delayed", time.Hour)
	g := guarded{grouped: grouped, q: redlatch.GetDelayedQueue[job](user, name, opts...), base: "redlatch_dq:{" + name + "}:"}
	add("held", 0)
	g.m = take(t, g.q)
	add("ready", 0)
	for _, member := range rdb.ZRange(t.Context(), g.base+"flight", 0, -1).Val() {
		if strings.HasSuffix(member, "spent") {
			require.NoError(t, rdb.ZAdd(t.Context(), g.base+"flight", redis.Z{Score: 1, Member: member}).Err())
		}
	}
	require.NoError(t, rdb.HSet(t.Context(), g.base+"meta", "full", 1).Err()) // somebody waits for room
	// A client that sleeps: there is somebody to wake.
	ghost := rdb.Subscribe(t.Context(), g.base+"wake:ghost")
	t.Cleanup(func() { _ = ghost.Close() })
	_, err := ghost.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.ZAdd(t.Context(), g.base+"waiters", redis.Z{Score: 4e15, Member: "ghost"}).Err())
	return g
}

// places returns where each message is, and fails the test if one is nowhere or without a body. Of the one whose claim ran out it does
// not matter: each of its places is right.
func (g guarded) places(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	var found, bodies []string
	for _, set := range []string{"due", "flight", "dead"} {
		// Not what keeps the place of a message that was removed in flight, see lanes.lua.
		there := redis.ZRangeArgs{Key: g.base + set, Start: strconv.Itoa(-2039 * (1 << 42)), Stop: "+inf", ByScore: true}
		members, err := rdb.ZRangeArgs(t.Context(), there).Result()
		require.NoError(t, err)
		for _, member := range members {
			bodies = append(bodies, member[16:])
			place := set + " " + member[16:]
			if member[16:] == "spent" {
				place = "spent"
			}
			found = append(found, place)
		}
	}
	ids, err := rdb.HKeys(t.Context(), g.base+"bodies").Result()
	require.NoError(t, err)
	assert.ElementsMatch(t, ids, bodies, "each message has a body and one place")
	slices.Sort(found)
	return found
}

// opts returns the options of an offer.
func (g guarded) opts(opts ...rdelayedqueue.OfferOption) []rdelayedqueue.OfferOption {
	if g.grouped {
		opts = append(opts, rdelayedqueue.WithGroup("g"))
	}
	return opts
}

// guardedCalls are the calls whose scripts change something. What they leave, where they succeed, is in the control run.
var guardedCalls = map[string]func(ctx context.Context, g guarded) error{
	"Offer": func(ctx context.Context, g guarded) error { return second(g.q.Offer(ctx, job{}, 0, g.opts()...)) },
	"Offer ID": func(ctx context.Context, g guarded) error {
		return second(g.q.Offer(ctx, job{}, 0, g.opts(rdelayedqueue.WithID("new"))...))
	},
	"Offer Replace": func(ctx context.Context, g guarded) error {
		return second(g.q.Offer(ctx, job{}, 0, g.opts(rdelayedqueue.WithID("delayed"), rdelayedqueue.WithReplace())...))
	},
	"Offer Replace Held": func(ctx context.Context, g guarded) error {
		return second(g.q.Offer(ctx, job{}, 0, g.opts(rdelayedqueue.WithID("held"), rdelayedqueue.WithReplace())...))
	},
	"Cancel Held": func(ctx context.Context, g guarded) error {
		ok, err := g.q.Cancel(ctx, "held")
		if !ok && err == nil {
			return errors.New("not cancelled")
		}
		return err
	},
	"Take":       func(ctx context.Context, g guarded) error { return second(g.q.Take(ctx)) },
	"Ack":        func(ctx context.Context, g guarded) error { return g.m.Ack(ctx) },
	"Nack":       func(ctx context.Context, g guarded) error { return g.m.Nack(ctx, 0) },
	"Snooze":     func(ctx context.Context, g guarded) error { return g.m.Snooze(ctx, time.Hour) },
	"Successor":  func(ctx context.Context, g guarded) error { return g.m.Successor(ctx, job{}, time.Hour) },
	"Reject":     func(ctx context.Context, g guarded) error { return g.m.Reject(ctx, "x") },
	"Extend":     func(ctx context.Context, g guarded) error { return g.m.Extend(ctx, time.Minute) },
	"Cancel":     func(ctx context.Context, g guarded) error { return second(g.q.Cancel(ctx, "delayed")) },
	"Reschedule": func(ctx context.Context, g guarded) error { return second(g.q.Reschedule(ctx, "delayed", 0)) },
	"Redrive":    func(ctx context.Context, g guarded) error { return second(g.q.Redrive(ctx, "dead")) },
	"RedriveAll": func(ctx context.Context, g guarded) error { return second(g.q.RedriveAll(ctx)) },
	"Purge": func(ctx context.Context, g guarded) error {
		return second(g.q.Purge(ctx, rdelayedqueue.Delayed))
	},
	"Purge Held": func(ctx context.Context, g guarded) error { return second(g.q.Purge(ctx, rdelayedqueue.InFlight)) },
	"Pause":      func(ctx context.Context, g guarded) error { return g.q.Pause(ctx) },
	"PauseFor":   func(ctx context.Context, g guarded) error { return g.q.PauseFor(ctx, time.Hour) },
	"Resume":     func(ctx context.Context, g guarded) error { return g.q.Resume(ctx) },
}

// anonymous leaves out what is new with each call.
func anonymous(places []string) []string {
	out := make([]string, len(places))
	for i, p := range places {
		if out[i] = p; len(p) > 36 {
			out[i] = p[:len(p)-36]
		}
	}
	return out
}

// F25, F28
func TestRefusedCommandLosesNoMessage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	allow := func(rule string) {
		require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "app", "on", "nopass", "~*", "allchannels", "+@all", rule).Err())
	}
	allow("+time")
	app := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "x"})
	t.Cleanup(func() { assert.NoError(t, app.Close()) })
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	user, err := redlatch.New(app, redlatch.WithCloseGrace(0), quiet)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, user.Close()) })
	sound := connect(t, server.Addr())
	for name, call := range guardedCalls {
		for _, grouped := range []bool{false, true} {
			if grouped {
				name += " of groups"
			}
			control := newGuarded(t, user, sound, rdb, name, grouped)
			before := control.places(t, rdb)
			require.NoError(t, call(t.Context(), control), name)
			done := control.places(t, rdb)
			refused := 0
			for _, command := range queueCommands {
				g := newGuarded(t, user, sound, rdb, name+"-"+command, grouped)
				require.Equal(t, before, g.places(t, rdb))
				allow("-" + command)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				err := call(ctx, g)
				cancel()
				allow("+" + command)
				what := fmt.Sprintf("%s without %s: %v", name, command, err)
				now := g.places(t, rdb)
				switch {
				case err == nil:
					assert.Equal(t, anonymous(done), anonymous(now), what)
				case errors.Is(err, redlatch.ErrUnknown) || errors.Is(err, context.DeadlineExceeded):
					assert.Fail(t, "the outcome of a call that was refused is known", what)
				default:
					refused++
					assert.Equal(t, before, now, what)
				}
				if err != nil {
					assert.NoError(t, g.m.Context().Err(), what)
				}
			}
			assert.Positive(t, refused, name)
		}
	}
}
