package locktest

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// input is what locks refuse.
//
//nolint:gochecknoglobals // a constant table
var input = []claim{
	{name: "BadNamesAreErrInvalid", test: badNames},
	{name: "GoodNamesWork", test: goodNames},
	{name: "BadOptionsAreErrInvalid", test: badOptions},
	{name: "NoContextIsErrInvalid", test: noContext},
	{name: "OtherDataIsErrWrongType", test: otherData},
}

// BadNames are names that no lock may have.
func BadNames() map[string]string {
	return map[string]string{
		"empty":             "",
		"513 bytes":         strings.Repeat("x", 513),
		"line feed":         "a\nb",
		"NUL":               "\x00",
		"DEL":               "a\x7f",
		"C1 control":        "a\u0085b",
		"not UTF-8":         "a\xff",
		"closing brace":     "a}b",
		"brace before tag":  "a}{b}",
		"brace after tag":   "{a}b}",
		"open brace":        "half{open",
		"open brace at end": "a{",
		"empty tag":         "{}a",
		"empty tag inside":  "a{}b{c}",
	}
}

// GoodNames are names at the edge of what is allowed.
func GoodNames() map[string]string {
	return map[string]string{
		"512 bytes":         strings.Repeat("x", 512),
		"tag":               "{shop}:orders",
		"tag in the middle": "a{shop}b",
		"nothing but a tag": "{shop}",
		"brace in the tag":  "{a{b}c",
		"blank":             "my lock",
		"not ASCII":         "käse-锁",
	}
}

// BadOptions are options that no acquiring call takes.
func BadOptions() map[string]rlock.Option {
	return map[string]rlock.Option{
		"nil":                        nil,
		"lease 0":                    rlock.WithFixedLease(0),
		"lease negative":             rlock.WithFixedLease(-time.Second),
		"lease 9ms":                  rlock.WithFixedLease(9 * time.Millisecond),
		"lease 25h":                  rlock.WithFixedLease(25 * time.Hour),
		"renewed lease 9ms":          rlock.WithRenewedLease(9 * time.Millisecond),
		"renewed lease 25h":          rlock.WithRenewedLease(25 * time.Hour),
		"wait negative":              rlock.WithWait(-1),
		"wait beyond ten years":      rlock.WithWait(3651 * 24 * time.Hour),
		"max hold 0":                 rlock.WithMaxHold(0),
		"max hold negative":          rlock.WithMaxHold(-time.Second),
		"max hold beyond ten years":  rlock.WithMaxHold(3651 * 24 * time.Hour),
		"owner empty":                rlock.WithTakeOver(""),
		"owner without a number":     rlock.WithTakeOver("web-3.4711.9f2c1a0b77d01e42"),
		"owner without a client":     rlock.WithTakeOver(":17"),
		"owner with an empty number": rlock.WithTakeOver("web-3:"),
		"owner with a signed number": rlock.WithTakeOver("web-3:-1"),
		"owner with leading zeros":   rlock.WithTakeOver("web-3:017"),
		"owner with a suffix":        rlock.WithTakeOver("web-3:17:write"),
		"owner with a blank":         rlock.WithTakeOver("web 3:17"),
		"owner with a brace":         rlock.WithTakeOver("{web-3}:17"),
		"owner not ASCII":            rlock.WithTakeOver("wäb:17"),
		"owner of a long client":     rlock.WithTakeOver(strings.Repeat("x", 65) + ":17"),
		"owner mode":                 rlock.WithTakeOver("mode"),
	}
}

// Acquiring calls the three verbs of a lock one after another, and yields the error of each.
func Acquiring(ctx context.Context, l rlock.Locker, opts ...rlock.Option) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if _, err := l.Lock(ctx, opts...); !yield("Lock", err) {
			return
		}
		if _, err := l.TryLock(ctx, opts...); !yield("TryLock", err) {
			return
		}
		yield("Do", l.Do(ctx, func(context.Context) error { return assert.AnError }, opts...))
	}
}

func badNames(t *testing.T, r *rig) {
	c := r.Client(t)
	for what, name := range BadNames() {
		for verb, err := range Acquiring(t.Context(), r.env.New(c, name)) {
			require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: %s", verb, what)
			r.givenBack(t, name, name)
		}
	}
}

// givenBack waits until a call that failed has given back what it had of a lock made of several, in which the bad keys
// are to blame: the call does not wait for that for long.
func (r *rig) givenBack(t *testing.T, name string, bad ...string) {
	t.Helper()
	if r.env.Some || r.env.Rest {
		redistest.Eventually(t, limit, "the rest is free", func() error { return r.gone(t, name, bad...) })
	}
}

func goodNames(t *testing.T, r *rig) {
	c, other := r.Client(t), r.Client(t)
	for what, name := range GoodNames() {
		h, err := r.env.New(c, name).Lock(t.Context(), rlock.WithWait(limit))
		require.NoError(t, err, what)
		Refused(t, r.rivalOf(other, name))
		Unlock(t, h)
	}
}

func badOptions(t *testing.T, r *rig) {
	l := r.lock(t)
	h := Acquire(t, t.Context(), l)
	for what, opt := range BadOptions() {
		for _, ctx := range []context.Context{t.Context(), h.Context()} {
			for verb, err := range Acquiring(ctx, l, opt) {
				require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: %s", verb, what)
			}
		}
	}
	for _, d := range []time.Duration{0, -time.Second, 9 * time.Millisecond, 25 * time.Hour} {
		require.ErrorIs(t, h.Extend(t.Context(), d), redlatch.ErrInvalid, "extend by %v", d)
	}
	Live(t, h.Context())
	Unlock(t, h)
}

func noContext(t *testing.T, r *rig) {
	var none context.Context
	l := r.lock(t)
	for verb, err := range Acquiring(none, l) {
		require.ErrorIs(t, err, redlatch.ErrInvalid, verb)
	}
	h := Acquire(t, t.Context(), l)
	require.ErrorIs(t, h.Extend(none, time.Minute), redlatch.ErrInvalid)
	require.ErrorIs(t, h.Unlock(none), redlatch.ErrInvalid)
	Live(t, h.Context())
	Unlock(t, h) // the call before was none
}

func otherData(t *testing.T, r *rig) {
	l := r.lock(t)
	var together [][]string // keys that hold other data at a time
	for _, key := range r.env.Keys(r.name) {
		together = append(together, []string{key})
	}
	if r.env.Some {
		together = [][]string{r.env.Keys(r.name)}
	}
	for _, keys := range together {
		for _, ttl := range []time.Duration{0, time.Minute} {
			for _, key := range keys {
				require.NoError(t, r.Redis.Set(t.Context(), key, "data", ttl).Err())
			}
			for verb, err := range Acquiring(t.Context(), l) {
				require.ErrorIs(t, err, redlatch.ErrWrongType, "%s: TTL %v", verb, ttl)
				require.Equal(t, 1, strings.Count(err.Error(), redlatch.ErrWrongType.Error()), "%s says it twice: %v", verb, err)
				r.givenBack(t, r.name, keys...)
			}
			for _, key := range keys {
				data, err := r.Redis.Get(t.Context(), key).Result()
				require.NoError(t, err)
				require.Equal(t, "data", data)
				require.NoError(t, r.Redis.Del(t.Context(), key).Err())
			}
		}
	}
}
