package scenario_test

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/grid/rset"
)

// mayChange is what a script may change although it is refused: nothing that anybody sees, and to avoid it would cost each call.
var mayChange = map[string]string{
	"acquire_fenced": "redisson_lock_token:{object}", // a token is left out
	"keep":           ":rwlock_timeout:",             // a level of a reader that expires with its lease
	"claim":          ":call:",                       // what was to be claimed, under a number that nobody uses again
}

// scriptCall is a call of a script as a client has sent it, and what Redis held before.
type scriptCall struct {
	name   string
	args   []any // of EVAL
	before map[string]keyDump
}

type keyDump struct {
	value string
	ttl   time.Duration
}

// scriptRecorder notes the scripts that a client sends.
type scriptRecorder struct {
	t     *testing.T
	admin *redis.Client

	mu    sync.Mutex // guards the rest
	texts map[string]string
	calls []scriptCall
}

func (r *scriptRecorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *scriptRecorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.note(cmd)
		return next(ctx, cmd)
	}
}

func (r *scriptRecorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.note(cmds...)
		return next(ctx, cmds)
	}
}

var scriptName = regexp.MustCompile(`(?m)^-- (\w+)\.lua`)

func (r *scriptRecorder) note(cmds ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			continue
		}
		args := slices.Clone(cmd.Args())
		text := fmt.Sprint(args[1])
		if cmd.Name() == "eval" {
			sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
			r.texts[hex.EncodeToString(sum[:])] = text
		} else if text = r.texts[text]; text == "" {
			continue // Redis does not know it: it comes again, as text
		}
		args[0], args[1] = "eval", text
		parts := scriptName.FindAllStringSubmatch(text, -1)
		r.calls = append(r.calls, scriptCall{parts[len(parts)-1][1], args, dumps(r.t, r.admin)})
	}
}

// dumps returns what all keys hold.
func dumps(t *testing.T, rdb *redis.Client) map[string]keyDump {
	t.Helper()
	all := map[string]keyDump{}
	for _, name := range rdb.Keys(t.Context(), "*").Val() {
		if value, err := rdb.Dump(t.Context(), name).Result(); err == nil { // else it has expired
			all[name] = keyDump{value, max(0, rdb.PTTL(t.Context(), name).Val())}
		}
	}
	return all
}

func merged(a, b map[string]keyDump) map[string]keyDump {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// barrierChanges are rounds of barriers: as others, calls whose scripts are recorded.
func barrierChanges() (changes []change) {
	for kind, newcomer := range pairs {
		for _, verb := range []string{"enter", "leave", "give up"} {
			changes = append(changes, change{name: kind + " " + verb, prepare: func(t *testing.T, c *redlatch.Client) func() error {
				t.Helper()
				one, two := newcomer(c), newcomer(c)
				both := func(call func(participant, context.Context) error) error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the other one may end with an error
					defer cancel()
					passed := make(chan error, 1)
					go func() { passed <- call(one, ctx) }()
					return errors.Join(call(two, ctx), <-passed)
				}
				if verb == "leave" {
					require.NoError(t, both(participant.Enter))
					return func() error { return both(participant.Leave) }
				}
				if verb == "enter" {
					return func() error { return both(participant.Enter) }
				}
				return func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					require.ErrorIs(t, one.Enter(ctx), context.DeadlineExceeded)
					return nil
				}
			}})
		}
	}
	return changes
}

// giveUpChanges are reservations of limiters that are given back.
func giveUpChanges() (changes []change) {
	for kind, rate := range limitRates {
		changes = append(changes, change{name: "limiter " + kind + " give up", prepare: func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			l := c.GetRateLimiter("object", rate(2, time.Hour))
			_, err := l.Allow(t.Context(), "k", 2)
			require.NoError(t, err)
			return func() error {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(50*time.Millisecond, cancel).Stop()
				require.ErrorIs(t, l.Wait(ctx, "k", 1), context.Canceled)
				_, err := l.Info(t.Context(), "k", 1) // which waits for that
				return err
			}
		}})
	}
	return changes
}

// gridChanges are calls on data. A cache is none of it: it may have forgotten, and what was refused may be kept.
func gridChanges() (changes []change) {
	calls := map[string]func(ctx context.Context, c *redlatch.Client) error{
		"bucket set with a fence": func(ctx context.Context, c *redlatch.Client) error {
			return rbucket.New[int](c, "object").Set(ctx, 1, rbucket.WithFence(7))
		},
		"bucket swap": func(ctx context.Context, c *redlatch.Client) error {
			b := rbucket.New[int](c, "object")
			swapped, err := b.CompareAndSwap(ctx, 0, 1)
			return errors.Join(b.Set(ctx, 1), did(!swapped, err))
		},
		"number add within": func(ctx context.Context, c *redlatch.Client) error {
			n, f := ratomic.NewInt64(c, "object"), ratomic.NewFloat64(c, "float")
			_, added, err := n.AddWithin(ctx, 1, 0, 5)
			_, more, ferr := f.AddWithin(ctx, 1.5, 0, 2)
			_, toomuch, merr := f.AddWithin(ctx, 1.5, 0, 2)
			_, none, nerr := ratomic.NewFloat64(c, "none").AddWithin(ctx, 1.5, 0, 1)
			return errors.Join(did(added, err), did(more, ferr), did(!toomuch, merr), did(!none, nerr))
		},
		"number store if greater": func(ctx context.Context, c *redlatch.Client) error {
			_, err := ratomic.NewInt64(c, "object").StoreIfGreater(ctx, 3)
			_, ferr := ratomic.NewFloat64(c, "float").StoreIfGreater(ctx, 3)
			return errors.Join(err, ferr)
		},
		"map": func(ctx context.Context, c *redlatch.Client) error {
			m := rmap.New[string, int](c, "object", rmap.WithNear(10))
			err := m.Set(ctx, "k", 1)
			_, aerr := m.Add(ctx, "k", 1)
			swapped, serr := m.CompareAndSwap(ctx, "k", 2, 3)
			return errors.Join(err, aerr, did(swapped, serr), m.SetAll(ctx, map[string]int{"k": 5, "l": 6}))
		},
		"map remove": func(ctx context.Context, c *redlatch.Client) error {
			m := rmap.New[string, int](c, "object", rmap.WithNear(10))
			err := m.SetAll(ctx, map[string]int{"k": 5, "l": 6})
			_, had, perr := m.Pop(ctx, "k")
			n, rerr := m.Remove(ctx, "l")
			return errors.Join(err, did(had && n == 1, errors.Join(perr, rerr)))
		},
		"set that expires": func(ctx context.Context, c *redlatch.Client) error {
			s := rset.NewExpiring[int](c, "object")
			_, err := s.Add(ctx, 1, time.Millisecond)
			<-time.After(2 * time.Millisecond) // it is over, by the clock of the server
			_, aerr := s.Add(ctx, 2, time.Hour)
			_, rerr := s.Remove(ctx, 2)
			return errors.Join(err, aerr, rerr)
		},
	}
	for name, call := range calls {
		changes = append(changes, change{name: name, prepare: func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			return func() error { return call(t.Context(), c) }
		}})
	}
	return changes
}

// F25, F28: a script that is refused, since a right was taken away just before, has changed nothing. Not so those by which a consumer or a
// scheduler says that it is there: it says so again.
func TestRefusedScriptsChangeNothing(t *testing.T) {
	refused := refuseScripts(t, slices.Concat(lockChanges(), permitChanges(), semaphoreChanges(), latchChanges(), queueChanges(), onceChanges(),
		electionChanges(), limitChanges(), giveUpChanges(), barrierChanges()))
	for _, name := range []string{"read_acquire", "ack", "cancel", "purge", "arrive", "leave", "quit", "take", "giveback", "window", "unlog"} {
		assert.Positive(t, refused[name], name)
	}
}

// They have a server of their own: one of Redis 6.2.14 that has refused all these calls frees memory twice now and then, and aborts.
func TestRefusedGridScriptsChangeNothing(t *testing.T) {
	refused := refuseScripts(t, gridChanges())
	for _, name := range []string{"change", "write", "remove"} {
		assert.Positive(t, refused[name], name)
	}
}

// refuseScripts makes changes, and then each call of a script again by a user who lacks one of the rights that it needs. It returns how often
// each script was refused.
func refuseScripts(t *testing.T, all []change) map[string]int {
	t.Helper()
	p := newPartial(t)
	user := redis.NewClient(&redis.Options{Addr: p.admin.Options().Addr, Username: "app", Password: "secret"})
	defer func() { assert.NoError(t, user.Close()) }()
	r := &scriptRecorder{t: t, admin: p.admin, texts: map[string]string{}}
	refused := map[string]int{}
	number, places := "redlatch_double", []string{"redlatch_barrier_arrived", "redlatch_double_arrived", "redlatch_double_inside", "redlatch_double_leaving"}
	for _, c := range all {
		require.NoError(t, p.admin.FlushAll(t.Context()).Err())
		rdb := redis.NewClient(&redis.Options{Addr: p.admin.Options().Addr})
		client, err := redlatch.New(rdb, redlatch.WithHooks(r), redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		require.NoError(t, c.prepare(t, client)(), c.name)
		require.NoError(t, client.Close())
		require.NoError(t, rdb.Close())
		calls := r.calls
		r.calls = nil
		for _, call := range calls {
			refused[call.name] += p.refuses(t, user, call, func(redis.Pipeliner) {})
			for name := range call.before {
				switch kind, _, _ := strings.Cut(name, ":"); {
				case kind == number: // Redis has lost it
					refused[call.name] += p.refuses(t, user, call, func(pipe redis.Pipeliner) { pipe.Del(t.Context(), name) })
				case kind == "redlatch_window": // its first take has left the window
					refused[call.name] += p.refuses(t, user, call, func(pipe redis.Pipeliner) { pipe.LSet(t.Context(), name, 0, "1 2 2") })
				case slices.Contains(places, kind): // whose owners have died
					refused[call.name] += p.refuses(t, user, call, func(pipe redis.Pipeliner) {
						pipe.ZUnionStore(t.Context(), name, &redis.ZStore{Keys: []string{name}, Weights: []float64{0.5}})
					})
				}
			}
		}
	}
	return refused
}
