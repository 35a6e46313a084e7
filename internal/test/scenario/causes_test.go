package scenario_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rsemaphore"
)

// oneCalls are a call that does not wait, of each kind of object that is not a lock of several ones.
func oneCalls() map[string]func(ctx context.Context, c *redlatch.Client, name string) error {
	all := map[string]func(ctx context.Context, c *redlatch.Client, name string) error{
		"permit": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := c.GetPermitSemaphore(name).TryAcquire(ctx)
			return err
		},
		"semaphore": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := c.GetSemaphore(name).TryAcquire(ctx, 1)
			return err
		},
		"latch": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := c.GetCountDownLatch(name).TrySetCount(ctx, 1)
			return err
		},
		"limiter": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := c.GetRateLimiter(name, rratelimiter.Per(9, time.Hour)).Allow(ctx, "key", 1)
			return err
		},
		"ids": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := c.GetIDGenerator(name).Next(ctx)
			return err
		},
		"topic": func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := redlatch.GetTopic[string](c, name).Publish(ctx, "value")
			return err
		},
	}
	for kind, get := range lockKinds {
		all[kind] = func(ctx context.Context, c *redlatch.Client, name string) error {
			_, err := get(c, name).TryLock(ctx)
			return err
		}
	}
	return all
}

// causeClasses are what a caller of any object may tell apart.
var causeClasses = map[string]func(err error) bool{
	"ErrInvalid": isError(redlatch.ErrInvalid), "ErrClosed": isError(redlatch.ErrClosed), "ErrUnknown": isError(redlatch.ErrUnknown),
	"ErrUnavailable": isError(redlatch.ErrUnavailable), "ErrUnwritable": isError(redlatch.ErrUnwritable), "ErrWrongType": isError(redlatch.ErrWrongType),
	"ErrNotAcquired": isError(rlock.ErrNotAcquired), "ErrNotHeld": isError(rlock.ErrNotHeld), "ErrLost": isError(rlock.ErrLost),
	"Canceled": isError(context.Canceled), "DeadlineExceeded": isError(context.DeadlineExceeded),
	"OOM":    func(err error) bool { return redis.HasErrorPrefix(err, "OOM") },
	"NOPERM": func(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") },
}

func isError(class error) func(error) bool {
	return func(err error) bool { return errors.Is(err, class) }
}

// objectCall is a call of a peer on an object.
type objectCall func(ctx context.Context, name string) error

// objectCause has a call of an object named n end with an error of one class.
type objectCause struct {
	cause, want string // more than one class after spaces
	err         func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, call objectCall) error
}

func refusal(reply, want string) objectCause {
	return objectCause{reply, want, func(t *testing.T, b *locktest.Bubble, _ *locktest.Peer, call objectCall) error {
		t.Helper()
		b.Mini.SetError(reply)
		defer b.Mini.SetError("")
		return call(t.Context(), "n")
	}}
}

// refusedWrite is a refusal of what writes, and of nothing else: go-redis cannot connect to a server that answers its greeting so.
func refusedWrite(reply string, further ...string) objectCause {
	want := strings.Join(append([]string{"ErrUnavailable", "ErrUnwritable"}, further...), " ")
	return objectCause{reply, want, func(t *testing.T, b *locktest.Bubble, _ *locktest.Peer, call objectCall) error {
		t.Helper()
		b.Mini.Server().SetPreHook(func(conn *server.Peer, cmd string, _ ...string) bool {
			writes := strings.HasPrefix(cmd, "EVAL") || cmd == "PUBLISH"
			if writes {
				conn.WriteError(reply + " script: 5eb40f5c, on @user_script:7.")
			}
			return writes
		})
		defer b.Mini.Server().SetPreHook(nil)
		err := call(t.Context(), "n")
		require.NotContains(t, err.Error(), "script")
		require.True(t, redis.HasErrorPrefix(err, strings.Fields(reply)[0]), "Redis's own error: %v", err)
		return err
	}}
}

var objectCauses = []objectCause{
	{"the name is empty", "ErrInvalid", func(t *testing.T, _ *locktest.Bubble, _ *locktest.Peer, call objectCall) error {
		return call(t.Context(), "")
	}},
	{"cancelled before", "Canceled", func(t *testing.T, _ *locktest.Bubble, _ *locktest.Peer, call objectCall) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return call(ctx, "n")
	}},
	{"the client is closed", "ErrClosed", func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, call objectCall) error {
		require.NoError(t, p.Close())
		return call(t.Context(), "n")
	}},
	{"another kind has the name", "ErrWrongType", func(t *testing.T, b *locktest.Bubble, _ *locktest.Peer, call objectCall) error {
		for _, key := range append(b.Keys(t), "n") {
			require.NoError(t, b.Redis.Del(t.Context(), key).Err())
			require.NoError(t, b.Redis.RPush(t.Context(), key, "x").Err())
		}
		return call(t.Context(), "n")
	}},
	{"there is no Redis", "ErrUnavailable", func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, call objectCall) error {
		p.Down(true)
		defer p.Down(false)
		return call(t.Context(), "n")
	}},
	{"no answer until the deadline", "DeadlineExceeded", func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, call objectCall) error {
		p.Blackhole(true)
		defer p.Blackhole(false)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return call(ctx, "n")
	}},
	{"all answers were lost", "ErrUnknown", func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, call objectCall) error {
		p.LoseReplies(1000)
		defer p.LoseReplies(0)
		return call(t.Context(), "n")
	}},
	refusedWrite("OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
	refusedWrite("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
	refusedWrite("READONLY You can't write against a read only replica."),
	refusedWrite("NOREPLICAS Not enough good replicas to write."),
	refusal("NOPERM this user has no permissions", "NOPERM"),
	refusal("LOADING Redis is loading the dataset in memory", "ErrUnavailable"),
}

// F23
func TestEachCauseIsOfOneClassForEachObject(t *testing.T) {
	for _, m := range objectCauses {
		for kind, call := range oneCalls() {
			if m.want == "ErrWrongType" && kind == "topic" {
				continue // it has no key
			}
			t.Run(m.cause+"/"+kind, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					before := b.Peer(t, redlatch.WithCloseGrace(0))
					switch kind {
					case "permit":
						require.NoError(t, before.GetPermitSemaphore("n").SetPermits(t.Context(), 5))
					case "semaphore":
						require.NoError(t, before.GetSemaphore("n").AddPermits(t.Context(), 5))
					}
					require.NoError(t, call(t.Context(), before.Client, "n"))
					require.NoError(t, before.Close())
					p := b.Peer(t, redlatch.WithCallTimeout(time.Second), redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose())
					err := m.err(t, b, p, func(ctx context.Context, name string) error { return call(ctx, p.Client, name) })
					var found []string
					for name, is := range causeClasses {
						if is(err) {
							found = append(found, name)
						}
					}
					slices.Sort(found)
					want := strings.Fields(m.want)
					switch {
					case m.want == "DeadlineExceeded":
						also := "ErrUnavailable"
						if kind == "latch" || kind == "limiter" || kind == "topic" {
							also = "ErrUnknown" // they take nothing back
						}
						want = append(want, also)
					case m.want == "ErrUnknown" && (kind == "semaphore" || kind == "ids"): // what was granted comes back, or is skipped
						want = []string{"ErrUnavailable"}
					}
					assert.Equal(t, want, found, "%v", err)
				})
			})
		}
	}
}

// F27: a wait goes on while a failover may be under way, and its end tells what Redis said last.
func TestWaitsOnAReplicaEndAsUnwritable(t *testing.T) {
	const wait = 100 * time.Millisecond
	waits := map[string]func(ctx context.Context, c *redlatch.Client) error{
		"permit": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetPermitSemaphore("n").Acquire(ctx)
			return err
		},
		"semaphore": func(ctx context.Context, c *redlatch.Client) error { return c.GetSemaphore("n").Acquire(ctx, 1) },
		"queue": func(ctx context.Context, c *redlatch.Client) error {
			_, err := redlatch.GetDelayedQueue[string](c, "n").Take(ctx)
			return err
		},
		"lock with a limit": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetLock("n").Lock(context.WithoutCancel(ctx), rlock.WithWait(wait))
			return err
		},
		"semaphore with a limit": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetSemaphore("n").TryAcquire(context.WithoutCancel(ctx), 1, rsemaphore.WithWait(wait))
			return err
		},
	}
	for kind, get := range movingKinds() {
		waits[kind] = func(ctx context.Context, c *redlatch.Client) error {
			_, err := get(c, "{n}").Lock(ctx)
			return err
		}
	}
	for kind, call := range waits {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, redlatch.WithCloseGrace(0))
				_, err := p.GetLock("n").IsLocked(t.Context()) // the server runs
				require.NoError(t, err)
				cause := refusedWrite("READONLY You can't write against a read only replica.")
				err = cause.err(t, b, nil, func(ctx context.Context, _ string) error {
					ctx, cancel := context.WithTimeout(ctx, wait)
					defer cancel()
					return call(ctx, p.Client)
				})
				require.ErrorIs(t, err, redlatch.ErrUnwritable)
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
			})
		})
	}
}
