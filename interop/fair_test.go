package interop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

func TestFairLockPassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, fair, fair) })
}

func TestFairLockIsForcedFromEitherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { forced(t, p, fair) })
}

func TestFairLockLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, fair, 50) })
}

func TestTwentyMixedWaitersEnterInOrder(t *testing.T) {
	for order, isJava := range map[string]func(i int) bool{
		"in turns": func(i int) bool { return i%2 == 0 },
		"in pairs": func(i int) bool { return i/2%2 == 0 },
		"Go first": func(i int) bool { return i >= 10 },
	} {
		t.Run(order, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) { enterInOrder(t, p, p.goSide(t), 20, isJava) })
		})
	}
}

func TestGoDoesNotWaitBehindJavaWithoutTheOption(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		g, name, list := p.goSideWith(t), unused("fair"), unused("turns")
		first := hold(t, p.javaSide(), fair, name)
		waiter := p.java.send(p.java.thread(), "turn", "fair", name, list, "Java")
		p.awaitQueue(t, name, 1)
		require.ErrorIs(t, g.turn(name, list, "Go"), redlatch.ErrWrongType)
		require.NoError(t, first.release())
		require.NoError(t, (<-waiter).err)
		require.NoError(t, g.turn(name, list, "Go"), "nobody waits in Java any more")
		got, err := p.rdb().LRange(t.Context(), list, 0, -1).Result()
		require.NoError(t, err)
		assert.Equal(t, []string{"Java", "Go"}, got)
	})
}

// enterInOrder has so many wait one after the other, some of them in Java, and checks the order of their turns.
func enterInOrder(t *testing.T, p *place, g *goSide, waiters int, isJava func(i int) bool) {
	t.Helper()
	name, list := unused("fair"), unused("turns")
	first := hold(t, g, fair, name)
	var want []string
	done := make(chan error, waiters)
	for i := range waiters {
		turn := fmt.Sprintf("Go-%d", i)
		if isJava(i) {
			turn = fmt.Sprintf("Java-%d", i)
			reply := p.java.send(p.java.thread(), "turn", "fair", name, list, turn)
			go func() { done <- (<-reply).err }()
		} else {
			go func() { done <- g.turn(name, list, turn) }()
		}
		p.awaitQueue(t, name, i+1)
		want = append(want, turn)
	}

	begun := time.Now()
	require.NoError(t, first.release())
	for i := range waiters {
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(2 * limit):
			require.Failf(t, "stalled", "%d of %d had their turn", i, waiters)
		}
	}
	elapsed := time.Since(begun)
	t.Logf("%d waiters in %.0f ms", waiters, ms(elapsed))
	got, err := p.rdb().LRange(t.Context(), list, 0, -1).Result()
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Less(t, elapsed, 4*promptly)
}

// turn notes in a list that it had the lock.
func (g *goSide) turn(name, list, value string) error {
	return g.clients[0].GetFairLock(name).Do(context.Background(), func(ctx context.Context) error {
		return g.rdbs[0].RPush(ctx, list, value).Err()
	})
}
