package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock"
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

func newPartial(t *testing.T) *partial {
	t.Helper()
	server := redistest.Start(t)
	p := &partial{admin: server.Client(t)}
	p.rules(t, "reset", "on", ">secret", "~*", "&*", "+@all")
	client := func(user string) *redlatch.Client {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "secret"})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
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
	require.NoError(t, p.admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err())
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

// F25, F28
func TestRefusedCommandsLeaveLocksDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	refusals := []string{"resetchannels"}
	for _, command := range luaCommands(t, "rlock", "rfairlock", "rrwlock") {
		refusals = append(refusals, "-"+command)
	}
	for kind, get := range lockKinds {
		for verb, s := range steps {
			for _, refusal := range refusals {
				t.Run(kind+" "+verb+" "+refusal, func(t *testing.T) { p.refused(t, refusal, get, s) })
			}
		}
	}
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

// F25, F28
func TestRefusedCommandsLeaveNoTraceOfAWait(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	for kind := range lockKinds {
		for _, command := range luaCommands(t, "rlock", "rfairlock", "rrwlock") {
			t.Run(fmt.Sprint(kind, " -", command), func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				held := held(t, lockKinds[kind](p.other, t.Name()))
				p.rules(t, "-"+command)
				_, err := rival(kind, p.client, t.Name()).Lock(t.Context(), rlock.WithWait(30*time.Millisecond))
				p.rules(t, "+@all")
				p.settled(t, t.Name(), step{before: 1}, err)
				locktest.Unlock(t, held)
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveATakeOverDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	for kind, get := range lockKinds {
		if kind == "reader" {
			continue // a reader takes nothing over
		}
		for _, command := range luaCommands(t, "rlock", "rfairlock", "rrwlock") {
			t.Run(kind+" -"+command, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				l := get(p.client, t.Name())
				earlier := held(t, l)
				p.rules(t, "-"+command)
				hold, err := l.TryLock(t.Context(), rlock.WithTakeOver(earlier.Owner()))
				p.rules(t, "+@all")
				p.settled(t, t.Name(), step{before: 1, after: 1}, err)
				holder := earlier
				if err == nil {
					holder = hold
				}
				if !errors.Is(err, redlatch.ErrUnknown) {
					fields := strings.Join(p.admin.HKeys(t.Context(), t.Name()).Val(), " ")
					assert.Contains(t, fields+" ", holder.Owner(), "after %v", err)
				}
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveADowngradeDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	for _, command := range luaCommands(t, "rrwlock") {
		writer := func(t *testing.T) (rlock.Locker, *rlock.Hold) {
			t.Helper()
			require.NoError(t, p.admin.FlushAll(t.Context()).Err())
			l := p.client.GetReadWriteLock(t.Name())
			return l.RLocker(), held(t, l)
		}
		t.Run("take -"+command, func(t *testing.T) {
			l, h := writer(t)
			p.rules(t, "-"+command)
			_, err := l.Lock(h.Context())
			p.rules(t, "+@all")
			p.settled(t, t.Name(), step{before: 1, after: 2}, err)
		})
		t.Run("unlock the writer -"+command, func(t *testing.T) {
			l, h := writer(t)
			locktest.Acquire(t, h.Context(), l)
			p.rules(t, "-"+command)
			err := h.Unlock(t.Context())
			p.rules(t, "+@all")
			p.settled(t, t.Name(), step{before: 2, after: 1}, err)
			mode := map[bool]string{true: "read", false: "write"}[err == nil]
			assert.Equal(t, mode, p.admin.HGet(t.Context(), t.Name(), "mode").Val(), "after %v", err)
		})
	}
}

// F28
func TestRefusedCommandsLeaveForceUnlockDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	refusals := []string{"resetchannels"}
	for _, command := range luaCommands(t, "rlock", "rfairlock", "rrwlock") {
		refusals = append(refusals, "-"+command)
	}
	for kind, get := range lockKinds {
		for _, refusal := range refusals {
			t.Run(kind+" "+refusal, func(t *testing.T) {
				p.refused(t, refusal, get, step{1, 0, held, func(t *testing.T, _ rlock.Locker, _ *rlock.Hold) error {
					t.Helper()
					force := map[string]func() (bool, error){
						"plain": func() (bool, error) { return p.client.GetLock(t.Name()).ForceUnlock(t.Context()) },
						"fair":  func() (bool, error) { return p.client.GetFairLock(t.Name()).ForceUnlock(t.Context()) },
						"rw":    func() (bool, error) { return p.client.GetReadWriteLock(t.Name()).ForceUnlock(t.Context()) },
					}[map[string]string{"plain": "plain", "fenced": "plain", "fair": "fair", "writer": "rw", "reader": "rw"}[kind]]
					forced, err := force()
					assert.Equal(t, err == nil, forced)
					return err
				}})
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveARunKeptOrNotKept(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	refusals := []string{"resetchannels"}
	for _, command := range luaCommands(t, "ronce") {
		refusals = append(refusals, "-"+command)
	}
	for _, refusal := range refusals {
		for _, when := range []string{"claim", "keep"} {
			t.Run(when+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				if when == "claim" {
					p.rules(t, refusal)
				}
				ran := false
				_, shared, err := redlatch.GetOnce[string](p.client, "o").Do(t.Context(), "k", func(context.Context) (string, error) {
					ran = true
					if when == "keep" {
						p.rules(t, refusal)
					}
					return "made", nil
				})
				p.rules(t, "&*", "+@all")
				assert.False(t, shared)
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
				value, ok, peekErr := redlatch.GetOnce[string](p.other, "o").Peek(t.Context(), "k")
				require.NoError(t, peekErr)
				assert.Equal(t, err == nil, ok, "after %v", err)
				if err == nil {
					assert.True(t, ran)
					assert.Equal(t, "made", value)
					return
				}
				redistest.Eventually(t, 10*time.Second, "the key is free", func() error {
					if keys := p.admin.Keys(t.Context(), "*").Val(); len(keys) > 0 {
						return fmt.Errorf("%v", keys)
					}
					return nil
				})
			})
		}
	}
}
