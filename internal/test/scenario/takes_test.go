// Takes acquire an object of each kind, and notice its end.

package scenario_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

// toldLease is a lease, or the visibility of a message.
const toldLease = 2 * time.Second

// holding is something that one client has alone until its lease ends.
type holding struct {
	ctx     context.Context
	release func(ctx context.Context) error
}

// take are the ways to have something alone: all kinds of lock, a permit, a message. The lease of locks and permits is fixed if it is
// not 0.
func take(lease time.Duration) map[string]func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
	all := map[string]func(ctx context.Context, c *redlatch.Client, name string) (holding, error){
		"permit": func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
			var opts []rsemaphore.PermitOption
			if lease != 0 {
				opts = append(opts, rsemaphore.WithFixedLease(lease))
			}
			p, err := c.GetPermitSemaphore(name).Acquire(ctx, opts...)
			return holding{p.Context(), p.Release}, err
		},
		"message": func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
			m, err := redlatch.GetDelayedQueue[string](c, name, rdelayedqueue.WithVisibility(toldLease)).Take(ctx)
			if err != nil {
				return holding{}, err
			}
			return holding{m.Context(), m.Ack}, nil
		},
	}
	var opts []rlock.Option
	if lease != 0 {
		opts = append(opts, rlock.WithFixedLease(lease))
	}
	locks := maps.Clone(lockKinds)
	locks["multi"] = func(c *redlatch.Client, name string) rlock.Locker {
		return c.GetMultiLock(c.GetLock(name+"1"), c.GetFairLock(name+"2"))
	}
	locks["red"] = func(c *redlatch.Client, name string) rlock.Locker {
		return c.GetRedLock(c.GetLock(name+"1"), c.GetLock(name+"2"), c.GetLock(name+"3"))
	}
	for kind, get := range locks {
		all[kind] = func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
			h, err := get(c, name).Lock(ctx, opts...)
			return holding{h.Context(), h.Unlock}, err
		}
	}
	return all
}

// takeAll are those of take, and the ways to lead, and to have a function run that nobody else runs meanwhile.
func takeAll(lease time.Duration) map[string]func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
	all := take(lease)
	all["election"] = func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
		l, err := c.GetElection(name).Campaign(ctx)
		return holding{l.Context(), l.Resign}, err
	}
	for kind, run := range runs {
		all[kind] = func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
			return working(ctx, func(ctx context.Context, work func(context.Context)) error {
				return run(ctx, c, name, max(lease, toldLease), work)
			})
		}
	}
	return all
}

// runs run a function once, which has something alone meanwhile. They return when it has ended.
var runs = map[string]func(ctx context.Context, c *redlatch.Client, name string, lease time.Duration, work func(context.Context)) error{
	"once": func(ctx context.Context, c *redlatch.Client, name string, _ time.Duration, work func(context.Context)) error {
		done := errors.New("done") // it keeps nothing
		_, _, err := onceOf(c, name).Do(ctx, "k", func(ctx context.Context) (string, error) {
			work(ctx)
			return "", done
		})
		if errors.Is(err, done) {
			err = nil
		}
		return err
	},
	"handler": func(ctx context.Context, c *redlatch.Client, name string, lease time.Duration, work func(context.Context)) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		q := redlatch.GetDelayedQueue[string](c, name, rdelayedqueue.WithVisibility(lease))
		return q.Consume(ctx, func(ctx context.Context, _ *rdelayedqueue.Message[string]) error {
			defer stop()
			work(ctx)
			return nil
		}, rdelayedqueue.WithConcurrency(1), rdelayedqueue.WithPrefetch(0))
	},
	"scheduler": func(ctx context.Context, c *redlatch.Client, name string, lease time.Duration, work func(context.Context)) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s := c.GetScheduler(name, rscheduler.WithConcurrency(1), rscheduler.WithLease(lease))
		err := s.Register("job", rscheduler.At(time.Now().UTC().Truncate(24*time.Hour)), func(ctx context.Context, _ rscheduler.Run) error {
			defer stop()
			work(ctx)
			return nil
		}, rscheduler.WithCatchUp(48*time.Hour))
		if err == nil {
			err = s.Run(ctx)
		}
		return err
	},
}

// working has run call a function, and returns once that goes on. It ends with the release, or when it is lost.
func working(ctx context.Context, run func(ctx context.Context, work func(context.Context)) error) (holding, error) {
	began, finish, done := make(chan context.Context, 1), make(chan struct{}), make(chan error, 1)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, stop)()
	go func() {
		done <- run(life, func(ctx context.Context) {
			began <- ctx
			select {
			case <-finish:
			case <-ctx.Done():
			}
		})
		stop()
	}()
	select {
	case held := <-began:
		return holding{held, func(context.Context) error {
			cause := ended(held)
			close(finish)
			return errors.Join(<-done, cause)
		}}, nil
	case err := <-done:
		return holding{}, errors.Join(err, ctx.Err())
	}
}

// rivalOf is the kind of who has to wait for a holder.
func rivalOf(kind string) string {
	if kind == "reader" {
		return "writer"
	}
	return kind
}

// furnish makes what has to be there before it can be taken.
func furnish(t *testing.T, c *redlatch.Client, name func(kind string) string) {
	t.Helper()
	require.NoError(t, c.GetPermitSemaphore(name("permit")).SetPermits(t.Context(), 1))
	for _, kind := range []string{"message", "handler"} {
		_, err := redlatch.GetDelayedQueue[string](c, name(kind)).Offer(t.Context(), "work", 0)
		require.NoError(t, err)
	}
}

// toldClient is a client of short leases.
func toldClient(addr string, opts ...redlatch.Option) (*redlatch.Client, *redis.Client, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 50})
	opts = append([]redlatch.Option{redlatch.WithWatchdogTimeout(toldLease), redlatch.WithCloseGrace(0)}, opts...)
	c, err := redlatch.New(rdb, opts...)
	return c, rdb, err
}

func startToldClient(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	c, rdb, err := toldClient(addr, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Close() // what is lost cannot be released
		assert.NoError(t, rdb.Close())
	})
	return c
}

// sleeper is a process that has one of each kind, and says what became of them when it is told to go on. It ends with another
// line. Args: the server's address, the number of the round.
func sleeper(args []string) {
	ctx := context.Background()
	c, _, err := toldClient(args[0])
	exitOn(err)
	held := map[string]holding{}
	for kind, take := range takeAll(0) {
		held[kind], err = take(ctx, c, kind+args[1])
		exitOn(err)
	}
	faulttest.Emit("holds")
	told := bufio.NewReader(os.Stdin)
	_, err = told.ReadString('\n')
	exitOn(err)
	for kind, h := range held {
		ended := h.ctx.Err() != nil
		faulttest.Emit("%s: told %t, released %t", kind, ended, h.release(ctx) == nil)
	}
	_, err = told.ReadString('\n')
	exitOn(err)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}
