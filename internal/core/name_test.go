package core_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// names are good and bad ones, and where fuzzing begins.
var names = map[string]bool{
	"order:42": true, "a b": true, "名前": true, "{a}": true, "x{a}y": true, "x{a}": true, "a{b{c}": true,
	strings.Repeat("x", 512): true,
	"":                       false, strings.Repeat("x", 513): false,
	"a\nb": false, "a\x00": false, "\x7f": false, "\u0085": false, "\xff": false,
	"a}": false, "}a{b}": false, "a{": false, "{": false, "{}": false, "a{}b": false, "{}{a}": false, "{a}}": false, "{a}{b}": false, "x{a}{": true,
}

func TestNamesAreJudged(t *testing.T) {
	for name, good := range names {
		err := core.CheckName(name)
		if good {
			assert.NoError(t, err, "%q", name)
			continue
		}
		assert.ErrorIs(t, err, errs.ErrInvalid, "%q", name)
	}
}

func TestNameIsFoundInAKeyBelowIt(t *testing.T) {
	for name, good := range names {
		for _, key := range []string{"k", "b:c", "}", "{x}", ":"} {
			if got, ok := core.KeyedName("cache:", core.Keyed("cache:", name, key)); good {
				assert.True(t, ok, "%q %q", name, key)
				assert.Equal(t, name, got, "%q", key)
			}
		}
	}
	for _, key := range []string{"", "cache:", "cache:1", "cache:x:{a:k}", "cache:01:{a:k}", "cache:-1:{a:k}", "cache:2:{a:k}", "cache:9:{a:k}", "1:{a:k}"} {
		_, ok := core.KeyedName("cache:", key)
		assert.False(t, ok, "%q", key)
	}
}

// hashTag is what Redis hashes of a key: the text between the first { and the first } after it, or the whole key.
func hashTag(key string) string {
	open := strings.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	length := strings.IndexByte(key[open+1:], '}')
	if length <= 0 {
		return key
	}
	return key[open+1 : open+1+length]
}

// derived are keys and channels as objects make them of a name.
func derived(name string) []string {
	return []string{
		name, core.Prefixed("redisson_lock__channel", name), core.Prefixed("redisson_lock_token", name), core.Suffixed(name, "write"),
	}
}

func FuzzCheckName(f *testing.F) {
	for name := range names {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		tag := script.Tag(name)
		require.Equal(t, hashTag(name), tag)
		if err := core.CheckName(name); err != nil {
			require.ErrorIs(t, err, errs.ErrInvalid)
			return
		}
		require.True(t, name != "" && len(name) <= 512 && utf8.ValidString(name))
		seen := map[string]bool{}
		for _, key := range derived(name) {
			require.Equal(t, tag, hashTag(key), "%q falls into another slot than %q", key, name)
			require.False(t, seen[key], "%q is made twice of %q", key, name)
			seen[key] = true
		}
	})
}

func FuzzCheckOwner(f *testing.F) {
	for _, id := range []string{
		"", "billing-1", "a b:1", "mode", "x:write", ":1", "a:", "a:1", "a:01", "a:-1", "a:+1", "a:1:2", "a{b:1", "é:1", "a\t:1", "web-3.4711.9f2c1a0b77d01e42:17",
		"5e7b0d9c-1f0a-4f5e-9d5a-1c2b3a4d5e6f:18446744073709551615", "a:18446744073709551616", strings.Repeat("x", 64) + ":0", strings.Repeat("x", 65) + ":0",
	} {
		f.Add(id)
	}
	form := regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}:(0|[1-9][0-9]*)$`)
	f.Fuzz(func(t *testing.T, id string) {
		err := core.CheckOwner(id)
		_, sequence, _ := strings.Cut(id, ":")
		if _, parsed := strconv.ParseUint(sequence, 10, 64); parsed == nil && form.MatchString(id) {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, errs.ErrInvalid)
	})
}

func TestDerivedKeysShareASlot(t *testing.T) {
	rdb := redistest.Start(t, "--cluster-enabled", "yes").Client(t)
	for name, good := range names {
		if !good {
			continue
		}
		want, err := rdb.ClusterKeySlot(t.Context(), name).Result()
		require.NoError(t, err)
		for _, key := range derived(name) {
			slot, err := rdb.ClusterKeySlot(t.Context(), key).Result()
			require.NoError(t, err)
			assert.Equal(t, want, slot, "%q of %q", key, name)
		}
	}
}
