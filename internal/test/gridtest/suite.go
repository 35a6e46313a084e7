package gridtest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// Call is a call of a method with good arguments.
type Call struct {
	Verb    string // as errors have it
	Changes bool
	Do      func(ctx context.Context) error
}

// Suite tests all methods of a kind of object: kind is what TYPE says of it, and calls returns them for an object of a name.
func Suite(t *testing.T, title, kind string, calls func(c *redlatch.Client, name string) []Call) {
	t.Helper()
	t.Run("BadNamesAreErrInvalidBeforeIO", func(t *testing.T) {
		InMemory(t, func(t *testing.T, p *Place) {
			for what, name := range locktest.BadNames() {
				for _, call := range calls(p.Client, name) {
					require.ErrorIs(t, call.Do(t.Context()), redlatch.ErrInvalid, "%s: %s", call.Verb, what)
				}
			}
			require.Zero(t, p.Calls())
		})
	})
	t.Run("NoContextIsErrInvalid", func(t *testing.T) {
		InMemory(t, func(t *testing.T, p *Place) {
			for _, call := range calls(p.Client, "x") {
				err := call.Do(nil)
				require.EqualError(t, err, title+": "+call.Verb+` "x": invalid argument: the context is nil`)
			}
			require.Zero(t, p.Calls())
		})
	})
	t.Run("ClosedClientIsErrClosed", func(t *testing.T) {
		InMemory(t, func(t *testing.T, p *Place) {
			require.NoError(t, p.Client.Close())
			for _, call := range calls(p.Client, "x") {
				require.EqualError(t, call.Do(t.Context()), title+": "+call.Verb+` "x": client closed`)
			}
		})
	})
	t.Run("LostReplies", func(t *testing.T) { Everywhere(t, func(t *testing.T, p *Place) { lostReplies(t, p, calls) }) })
	t.Run("KeysOfOtherKindsStay", func(t *testing.T) { Everywhere(t, func(t *testing.T, p *Place) { otherKinds(t, p, kind, calls) }) })
	t.Run("ObserversSeeEachCall", func(t *testing.T) { observed(t, calls) })
}

// lostReplies has reads be repeated and changes be sent once.
func lostReplies(t *testing.T, p *Place, calls func(c *redlatch.Client, name string) []Call) {
	for range 2 { // Redis knows the scripts after the first time
		for _, call := range calls(p.Client, "x") {
			require.NoError(t, call.Do(t.Context()), call.Verb)
		}
	}
	for _, call := range calls(p.Client, "x") {
		sent := p.Calls()
		p.Lose()
		err := call.Do(t.Context())
		switch {
		case call.Changes:
			require.ErrorIs(t, err, redlatch.ErrUnknown, call.Verb)
			require.Equal(t, 1, p.Calls()-sent, call.Verb)
		default:
			require.NoError(t, err, call.Verb)
			require.GreaterOrEqual(t, p.Calls()-sent, 2, call.Verb)
		}
	}
}

// otherKinds has all methods meet keys of other kinds.
func otherKinds(t *testing.T, p *Place, kind string, calls func(c *redlatch.Client, name string) []Call) {
	ctx := t.Context()
	make := map[string]func(key string) redis.Cmder{
		"string": func(key string) redis.Cmder { return p.Redis.Set(ctx, key, "1", 0) },
		"hash":   func(key string) redis.Cmder { return p.Redis.HSet(ctx, key, "a", "1") },
		"list":   func(key string) redis.Cmder { return p.Redis.RPush(ctx, key, "1") },
		"set":    func(key string) redis.Cmder { return p.Redis.SAdd(ctx, key, "1") },
		"stream": func(key string) redis.Cmder {
			return p.Redis.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "1"}})
		},
		"zset": func(key string) redis.Cmder { return p.Redis.ZAdd(ctx, key, redis.Z{Score: 1, Member: "1"}) },
	}
	for other, create := range make {
		if other == kind {
			continue
		}
		require.NoError(t, create(other).Err())
		for _, call := range calls(p.Client, other) {
			err := call.Do(ctx)
			if call.Verb == "ttl" { // it looks at any key
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, redlatch.ErrWrongType, "%s of a %s", call.Verb, other)
			require.Equal(t, other, p.Redis.Type(ctx, other).Val(), call.Verb)
			require.Equal(t, time.Duration(-1), p.Redis.PTTL(ctx, other).Val(), call.Verb)
		}
		require.Equal(t, []string{other}, p.Redis.Keys(ctx, "*").Val(), "no fence and no other key was written")
		again := redis.Cmder(p.Redis.Del(ctx, other))
		require.NoError(t, again.Err())
	}
}

func observed(t *testing.T, calls func(c *redlatch.Client, name string) []Call) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var names []string
		p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
			names = append(names, e.Name)
			assert.NoError(t, e.Err, e.Name)
		}}))
		for _, call := range calls(p.Client, "x") {
			before := len(names)
			require.NoError(t, call.Do(t.Context()), call.Verb)
			require.Greater(t, len(names), before, call.Verb)
		}
	})
}
