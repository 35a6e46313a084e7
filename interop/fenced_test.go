package interop_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFencedLockPassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, fenced, fenced) })
}

func TestFencedLockIsForcedFromEitherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { forced(t, p, fenced) })
}

func TestFencedLockLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, fenced, 100) })
}

func TestTokensRiseFromSideToSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		sides := []side{p.javaSide(), p.goSide(t)}
		name, last := unused("fenced"), int64(0)
		for i := range 10 {
			a := hold(t, sides[i%2], fenced, name)
			token, err := strconv.ParseInt(a.value, 10, 64)
			require.NoError(t, err)
			assert.Greater(t, token, last, "hold %d, of %s", i, sides[i%2])
			last = token
			require.NoError(t, a.release())
		}
	})
}

func TestTokenOfGoIsKeptForJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		name := unused("fenced")
		first := hold(t, p.goSide(t), fenced, name)
		require.NoError(t, first.release())
		ttl, err := p.rdb().PTTL(t.Context(), "redisson_lock_token:{"+name+"}").Result()
		require.NoError(t, err)
		assert.Negative(t, ttl, "it does not expire")
	})
}
