package interop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
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
			everywhere(t, func(t *testing.T, p *place) { enterInOrder(t, p, p.goSide(t), fair, 20, isJava) })
		})
	}
}

// equal are timeouts of Go and Java that are the same on both sides, and unequal ones that are not.
var (
	equal   = [][2]time.Duration{{time.Minute, time.Minute}, {5 * time.Second, 5 * time.Second}}
	unequal = [][2]time.Duration{{time.Minute, 5 * time.Second}, {5 * time.Second, time.Minute}}
)

// atTimeouts runs the test everywhere, with each pair of timeouts in Go and Java.
func atTimeouts(t *testing.T, pairs [][2]time.Duration, test func(t *testing.T, p *place, g *goSide, k kind)) {
	t.Helper()
	for _, pair := range pairs {
		t.Run(fmt.Sprintf("Go %v, Java %v", pair[0], pair[1]), func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) { test(t, p, p.goSideWith(t, likeJavaAt(pair[0])...), fairAt(pair[1])) })
		})
	}
}

// Java, Java, Go, Java, five times: the last one must not sleep while the lock is free.
//
// F11
func TestTwentyMixedWaitersEnterInOrderAtOtherTimeouts(t *testing.T) {
	atTimeouts(t, slices.Concat(equal, unequal), func(t *testing.T, p *place, g *goSide, k kind) {
		enterInOrder(t, p, g, k, 20, func(i int) bool { return i%4 != 2 })
	})
}

// F11
func TestFairLockStarvesNeitherSideAtOtherTimeouts(t *testing.T) {
	atTimeouts(t, slices.Concat(equal, unequal), func(t *testing.T, p *place, g *goSide, k kind) {
		each := faulttest.Rounds(t, 200, 12_000) / 4 // the long run takes about ten seconds
		name, sides := unused("fair"), []side{g, p.javaSide()}
		first := hold(t, g, k, name) // until all compete
		var counters []string
		var pending []<-chan error
		done := make(chan error, 4)
		for _, s := range sides {
			counters = append(counters, unused("counter"))
			pending = append(pending, s.add(k, name, counters[len(pending)], each))
		}
		for _, ch := range pending {
			for range cap(ch) {
				go func() { done <- <-ch }() // ends with the thread or the goroutine
			}
		}
		p.awaitQueue(t, name, cap(done))
		require.NoError(t, first.release())
		had := make([]int, len(sides))
		for i := range cap(done) {
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(2 * limit):
				require.Failf(t, "no end", "%d of %d are done", i, cap(done))
			}
			for j := range had {
				if i > 0 { // until the first one was done all competed
					break
				}
				n, err := p.rdb().Get(t.Context(), counters[j]).Int()
				require.NoError(t, err)
				had[j] = n
			}
		}
		t.Logf("%d sections in Go beside %d in Java", had[0], had[1])
		for j, n := range had {
			assert.GreaterOrEqual(t, n, (had[0]+had[1])/8, "%s has less than a quarter of its even share", sides[j])
		}
	})
}

// Nobody renews a place in Redisson's layout. Who has lost its place goes to the end; in Java it may sleep for a lease first, as among
// Java alone.
//
// F11
func TestWaitersWhosePlacesEndedEnterWithinALease(t *testing.T) {
	const wait = 200 * time.Millisecond
	everywhere(t, atOnce(func(t *testing.T, p *place) {
		g, k := p.goSideWith(t, likeJavaAt(wait)...), fairAt(wait)
		name := unused("fair")
		lag := faulttest.MeasureLag(t, p.addrs[0])
		first := hold(t, g, k, name)
		var waiting []*attempt
		for i, s := range []side{p.javaSide(), p.javaSide(), g, p.javaSide()} {
			waiting = append(waiting, s.acquire(k, name))
			p.awaitQueue(t, name, i+1)
		}
		head, err := p.rdb().LIndex(t.Context(), "redisson_lock_queue:{"+name+"}", 0).Result()
		require.NoError(t, err)
		redistest.Eventually(t, limit, "the first one loses its place", func() error {
			now, err := p.rdb().LIndex(t.Context(), "redisson_lock_queue:{"+name+"}", 0).Result()
			if err == nil && now == head {
				err = errors.New("it is still there")
			}
			return err
		})
		released := time.Now()
		require.NoError(t, first.release())
		left := make(chan error, len(waiting))
		for _, a := range waiting {
			go func() { // ends with the grant
				<-a.done
				if a.err == nil {
					a.err = a.release()
				}
				left <- a.err
			}()
		}
		for range waiting {
			select {
			case err := <-left:
				require.NoError(t, err)
			case <-time.After(limit):
				require.Fail(t, "stalled")
			}
		}
		elapsed := time.Since(released)
		t.Logf("all had it after %.1f s", elapsed.Seconds())
		assert.Less(t, elapsed, lease+late+lag.Late())
	}))
}

func TestGoDoesNotWaitBehindJavaWithoutTheOption(t *testing.T) {
	for _, wait := range []time.Duration{fairWait, time.Minute, 5 * time.Second} {
		t.Run("Java "+wait.String(), func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) { refuses(t, p, wait) })
		})
	}
}

// refuses has Go wait in its own layout, then Java behind it with its timeout, and checks that nobody else in Go waits behind Java.
func refuses(t *testing.T, p *place, wait time.Duration) {
	t.Helper()
	g, k, name, list := p.goSideWith(t), fairAt(wait), unused("fair"), unused("turns")
	first := hold(t, p.javaSide(), fair, name)
	inGo := make(chan error, 1)
	go func() { inGo <- g.turn(name, list, "Go before Java") }() // ends with the client
	p.awaitQueue(t, name, 1)
	inJava := p.java.send(p.java.thread(), "turn", k.java, name, list, "Java")
	p.awaitQueue(t, name, 2)
	require.ErrorIs(t, g.turn(name, list, "Go"), redlatch.ErrWrongType)
	require.NoError(t, first.release())
	require.NoError(t, <-inGo)
	require.NoError(t, (<-inJava).err)
	require.NoError(t, g.turn(name, list, "Go"), "nobody waits in Java any more")
	got, err := p.rdb().LRange(t.Context(), list, 0, -1).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"Go before Java", "Java", "Go"}, got)
}

// enterInOrder has so many wait one after the other, some of them in Java, and checks the order of their turns.
func enterInOrder(t *testing.T, p *place, g *goSide, k kind, waiters int, isJava func(i int) bool) {
	t.Helper()
	name, list := unused("fair"), unused("turns")
	first := hold(t, g, fair, name)
	var want []string
	done := make(chan error, waiters)
	for i := range waiters {
		turn := fmt.Sprintf("Go-%d", i)
		if isJava(i) {
			turn = fmt.Sprintf("Java-%d", i)
			reply := p.java.send(p.java.thread(), "turn", k.java, name, list, turn)
			go func() { done <- (<-reply).err }()
		} else {
			go func() { done <- g.turn(name, list, turn) }()
		}
		p.awaitQueue(t, name, i+1)
		want = append(want, turn)
	}

	lag, begun := faulttest.MeasureLag(t, p.addrs[0]), time.Now()
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
	assert.Less(t, elapsed, 4*promptly+lag.Late())
}

// turn notes in a list that it had the lock.
func (g *goSide) turn(name, list, value string) error {
	return g.clients[0].GetFairLock(name).Do(context.Background(), func(ctx context.Context) error {
		return g.rdbs[0].RPush(ctx, list, value).Err()
	})
}
