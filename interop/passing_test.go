package interop_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
)

const (
	// promptly bounds the time from a release on one side to the grant on the other. Without a message a waiter would
	// look about once a second in Go, and at the end of the lease in Java. No message wakes a RedLock's waiter in Go: it asks
	// again after a random pause of up to 200 ms.
	promptly = 500 * time.Millisecond
	// rounds is how often each wake-up is measured: a waiter that only looks now and then is not prompt every time.
	rounds = 5
)

// passes checks that what one side holds keeps out the other, and that a release wakes who waits on the other side. What
// is held and what is waited for may be different modes of one object.
func passes(t *testing.T, p *place, held, waited kind) {
	t.Helper()
	g := p.goSide(t)
	lag := faulttest.MeasureLag(t, p.addrs[0])
	for _, dir := range [][2]side{{p.javaSide(), g}, {g, p.javaSide()}} {
		holder, waiter := dir[0], dir[1]
		var times []time.Duration
		for range rounds {
			name := held.made(t, g)
			first := hold(t, holder, held, name)
			got, err := waiter.try(waited, name, 0)
			require.NoError(t, err)
			require.False(t, got, "%s holds, and %s acquired", holder, waiter)
			second := waiter.acquire(waited, name)
			waited.waits(t, p, waiter, name)

			released := time.Now()
			require.NoError(t, first.release())
			times = append(times, second.within(t, limit).Sub(released))
			require.NoError(t, second.release())
		}
		slices.Sort(times)
		t.Logf("%s held %s, %s waited for %s: median %.1f ms, at most %.1f ms", holder, held.java, waiter, waited.java,
			ms(times[rounds/2]), ms(times[rounds-1]))
		assert.Less(t, times[rounds-1], promptly+lag.Late(), "from a release in %s to the grant in %s", holder, waiter)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// forced checks that each side can release what the other one holds: who waits is woken, and the holder learns of it.
func forced(t *testing.T, p *place, k kind) {
	t.Helper()
	g, j := p.goSide(t), p.javaSide()
	for _, dir := range [][2]side{{j, g}, {g, j}} {
		holder, other := dir[0], dir[1]
		name := k.made(t, g)
		first := hold(t, holder, k, name)
		var waiter side = j
		if holder == side(g) {
			waiter = p.goSide(t) // the holder's own client would not have to be told
		}
		second := waiter.acquire(k.rival(), name)
		k.rival().waits(t, p, waiter, name)

		lag := faulttest.MeasureLag(t, p.addrs[0])
		begun := time.Now()
		done, err := other.force(k, name)
		require.NoError(t, err)
		assert.True(t, done)
		elapsed := second.within(t, limit).Sub(begun)
		t.Logf("%s forced %s of %s: a waiter there had it after %.1f ms", other, k.java, holder, ms(elapsed))
		assert.Less(t, elapsed, promptly+lag.Late())
		learns(t, first)
		assert.Error(t, first.release(), "the holder was told")
		require.NoError(t, second.release(), "the next holder is not affected")
	}
}

// learns waits until the holder knows that it holds no more: in Go by its context, in Java by asking.
func learns(t *testing.T, a *attempt) {
	t.Helper()
	if a.ctx == nil {
		held, err := a.held()
		require.NoError(t, err)
		assert.False(t, held)
		return
	}
	select {
	case <-a.ctx.Done():
	case <-time.After(lease):
		require.Fail(t, "the hold's context still lives")
	}
}

// counts has two processes of Go and two of Java, with two goroutines or threads each, add to a counter so often each, and checks that
// no addition was lost. With REDLATCH_SOAK=1 they add five times as often. It returns how many they made in a second, and the longest time
// that one took to acquire the lock.
func counts(t *testing.T, p *place, k kind, times int) (rate float64, longest time.Duration) {
	t.Helper()
	patience := 2 * limit
	if faulttest.Soaking() {
		patience *= 5
	}
	all := faulttest.Rounds(t, 8*times, 40*times)
	name, counter := k.made(t, p.goSide(t)), unused("counter")
	begun := time.Now()
	var pending []<-chan error
	for _, a := range p.adders(t) {
		pending = append(pending, a.add(k, name, counter, all/8))
	}
	for _, done := range pending {
		for range cap(done) {
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(patience):
				n, err := p.rdb().Get(t.Context(), counter).Int()
				require.Failf(t, "no end", "%d of %d additions after %v, %v", n, all, time.Since(begun), err)
			}
		}
	}
	n, err := p.rdb().Get(t.Context(), counter).Int()
	require.NoError(t, err)
	assert.Equal(t, all, n, "additions")
	rate = float64(n) / time.Since(begun).Seconds()
	waits, err := p.rdb().LRange(t.Context(), waitsOf(counter), 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, waits, 8, "waits")
	for _, text := range waits {
		ms, err := strconv.Atoi(text)
		require.NoError(t, err)
		longest = max(longest, time.Duration(ms)*time.Millisecond)
	}
	t.Logf("%s: %d additions by four processes, %.0f/s, waits of at most %v", k.java, n, rate, longest)
	return rate, longest
}
