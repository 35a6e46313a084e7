// Steps are calls on locks, made by a client whose Redis user lacks rights.

package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
)

// luaCommands returns the commands that the scripts of packages call.
func luaCommands(t *testing.T, packages ...string) (all []string) {
	t.Helper()
	called := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	for _, name := range packages {
		files, err := filepath.Glob(filepath.Join(name, "*.lua"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range called.FindAllStringSubmatch(string(text), -1) {
				all = append(all, m[1])
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// partial is a server whose user "app" may not do everything.
type partial struct {
	admin  *redis.Client
	client *redlatch.Client // of the user
	other  *redlatch.Client // of one who may do everything
}

// newPartial returns one whose clients have the options too.
func newPartial(t *testing.T, opts ...redlatch.Option) *partial {
	t.Helper()
	server := redistest.Start(t)
	p := &partial{admin: server.Client(t)}
	p.rules(t, "reset", "on", ">secret", "~*", "&*", "+@all")
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	opts = append([]redlatch.Option{quiet, redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0)}, opts...)
	client := func(user string) *redlatch.Client {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "secret"})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	p.rules(t, "on")
	p.client = client("app")
	require.NoError(t, p.admin.Do(t.Context(), "ACL", "SETUSER", "other", "on", ">secret", "~*", "&*", "+@all").Err())
	p.other = client("other")
	return p
}

func (p *partial) rules(t *testing.T, rules ...any) {
	t.Helper()
	require.NoError(t, p.setRules(t.Context(), rules...))
}

func (p *partial) setRules(ctx context.Context, rules ...any) error {
	return p.admin.Do(ctx, append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err()
}

// rightsRefused returns the rules that take away one right each, of those that the scripts of packages need.
func rightsRefused(t *testing.T, packages ...string) []string {
	t.Helper()
	all := []string{"resetchannels"}
	for _, command := range luaCommands(t, packages...) {
		all = append(all, "-"+command)
	}
	return all
}

// levels returns how many levels the hash of a lock counts, of all owners together.
func levels(t *testing.T, rdb *redis.Client, name string) (n int) {
	t.Helper()
	fields, err := rdb.HGetAll(t.Context(), name).Result()
	require.NoError(t, err)
	for field, value := range fields {
		if field != "mode" {
			levels, err := strconv.Atoi(value)
			require.NoError(t, err)
			n += levels
		}
	}
	return n
}

// step is an operation on a lock, and the levels that the lock has before it and after it.
type step struct {
	before, after int
	prepare       func(t *testing.T, l rlock.Locker) *rlock.Hold
	run           func(t *testing.T, l rlock.Locker, h *rlock.Hold) error
}

func held(t *testing.T, l rlock.Locker) *rlock.Hold {
	t.Helper()
	return locktest.Acquire(t, t.Context(), l)
}

// nested takes a second level and returns it.
func nested(t *testing.T, l rlock.Locker) *rlock.Hold {
	t.Helper()
	return locktest.Acquire(t, held(t, l).Context(), l)
}

func unlock(t *testing.T, _ rlock.Locker, h *rlock.Hold) error {
	t.Helper()
	return h.Unlock(t.Context())
}

var steps = map[string]step{
	"acquire": {0, 1, func(*testing.T, rlock.Locker) *rlock.Hold { return nil }, func(t *testing.T, l rlock.Locker, _ *rlock.Hold) error {
		t.Helper()
		_, err := l.TryLock(t.Context())
		return err
	}},
	"nest": {1, 2, held, func(t *testing.T, l rlock.Locker, h *rlock.Hold) error {
		t.Helper()
		_, err := l.Lock(h.Context())
		return err
	}},
	"unlock a level": {2, 1, nested, unlock},
	"unlock":         {1, 0, held, unlock},
	"extend": {1, 1, held, func(t *testing.T, _ rlock.Locker, h *rlock.Hold) error {
		t.Helper()
		return h.Extend(t.Context(), time.Minute)
	}},
}

// refused takes a step while something is refused.
func (p *partial) refused(t *testing.T, refusal string, get func(*redlatch.Client, string) rlock.Locker, s step) {
	t.Helper()
	require.NoError(t, p.admin.FlushAll(t.Context()).Err())
	name := t.Name()
	l := get(p.client, name)
	h := s.prepare(t, l)
	require.Equal(t, s.before, levels(t, p.admin, name))
	p.rules(t, refusal)
	err := s.run(t, l, h)
	p.rules(t, "&*", "+@all")
	p.settled(t, name, s, err)
}

// settled requires that the lock is as the error of a step says, and ends by itself.
func (p *partial) settled(t *testing.T, name string, s step, err error) {
	t.Helper()
	want := s.after
	if err != nil {
		want = s.before
		require.NotErrorIs(t, err, rlock.ErrNotHeld)
	}
	if !errors.Is(err, redlatch.ErrUnknown) {
		assert.Equal(t, want, levels(t, p.admin, name), "after %v", err)
	}
	for _, key := range p.admin.Keys(t.Context(), "*"+name+"*").Val() {
		if strings.HasPrefix(key, "redisson_lock_token:") {
			continue // the last token is kept
		}
		assert.NotEqual(t, time.Duration(-1), p.admin.PTTL(t.Context(), key).Val(), "%s expires", key)
	}
}

// participant is one of two at a barrier.
type participant interface {
	Enter(ctx context.Context) error
	Leave(ctx context.Context) error
}

var pairs = map[string]func(c *redlatch.Client) participant{
	"barrier": func(c *redlatch.Client) participant { return awaiter{c.GetBarrier("b", 2)} },
	"double":  func(c *redlatch.Client) participant { return c.GetDoubleBarrier("b", 2) },
}

// awaiter is a participant that awaits the others before its work and after it.
type awaiter struct{ *rbarrier.Barrier }

func (a awaiter) Enter(ctx context.Context) error { return a.Await(ctx) }

func (a awaiter) Leave(ctx context.Context) error { return a.Await(ctx) }

// values returns what all keys hold, which are strings.
func (p *partial) values(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range p.admin.Keys(t.Context(), "*").Val() {
		value, err := p.admin.Get(t.Context(), key).Result()
		require.NoError(t, err)
		all[key] = value
	}
	return all
}

// noTick waits until no tick is queued, and requires that none runs.
func (p *partial) noTick(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, tickLimit, "no tick is there", func() error {
		keys, err := p.admin.Keys(t.Context(), "*:bodies").Result()
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("%q", keys)
		}
		return err
	})
	jobs, err := p.admin.Keys(t.Context(), "*:job:job").Result()
	require.NoError(t, err)
	for _, job := range jobs {
		assert.NotContains(t, p.admin.HGetAll(t.Context(), job).Val(), "run")
	}
}

// written runs a scheduler until it has written its jobs.
func (p *partial) written(t *testing.T, s *rscheduler.Scheduler) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	redistest.Eventually(t, tickLimit, "the ticks are queued", func() error {
		if len(p.admin.Keys(t.Context(), "*:bodies").Val()) == 0 {
			return errors.New("none is")
		}
		return nil
	})
	stop()
	require.NoError(t, <-stopped)
}

// refuses has a user without one of the rights that a script needs make the call, for each of them, and requires that it changes nothing if
// it is refused. spoil changes what Redis held before.
func (p *partial) refuses(t *testing.T, user *redis.Client, call scriptCall, spoil func(redis.Pipeliner)) (refused int) {
	t.Helper()
	rights := map[string]bool{"resetchannels": true}
	for _, m := range regexp.MustCompile(`redis\.p?call\('(\w+)'`).FindAllStringSubmatch(fmt.Sprint(call.args[1]), -1) {
		if known, err := p.admin.Do(t.Context(), "COMMAND", "INFO", m[1]).Slice(); err == nil && known[0] != nil { // not by each version
			rights["-"+m[1]] = true
		}
	}
	hidden := mayChange[call.name]
	if asks, err := p.admin.Eval(t.Context(), "return redis.acl_check_cmd and 1 or 0", nil).Int(); call.name == "apply" && asks == 0 {
		require.NoError(t, err)
		hidden = "redlatch_ops:" // Redis 6 cannot be asked for a right first: the number of a batch that is not sent again
	}
	for right := range rights {
		_, err := p.admin.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			pipe.FlushAll(t.Context())
			for name, key := range call.before {
				pipe.Restore(t.Context(), name, key.ttl, key.value)
			}
			spoil(pipe)
			pipe.Do(t.Context(), "ACL", "SETUSER", "app", "&*", "+@all", right)
			return nil
		})
		require.NoError(t, err)
		before := dumps(t, p.admin)
		if err := user.Do(t.Context(), call.args...).Err(); err == nil || errors.Is(err, redis.Nil) {
			continue
		}
		refused++
		after := dumps(t, p.admin)
		for name := range maps.Keys(merged(before, after)) {
			counts := strings.HasSuffix(name, ":series") // of a queue, which may count what is refused then
			if !counts && (hidden == "" || !strings.Contains(name, hidden)) {
				assert.Equal(t, before[name].value, after[name].value, "%s %s changes %s", call.name, right, name)
			}
		}
	}
	return refused
}
