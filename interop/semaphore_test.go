package interop_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
)

func TestSemaphorePassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, semaphore, semaphore) })
}

func TestSemaphoreOfOneLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, semaphore, 150) })
}

func TestSeveralPermitsPassBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		name := unused("semaphore")
		g := p.goSide(t)
		inGo := g.clients[0].GetSemaphore(name)
		assert.Equal(t, "true", p.java.must(t, "set", "semaphore", name, "5"))
		made, err := inGo.TrySetPermits(t.Context(), 7)
		require.NoError(t, err)
		assert.False(t, made, "Java made it")
		agree := func(want int) {
			t.Helper()
			n, err := inGo.Available(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, n)
			assert.Equal(t, strconv.Itoa(want), p.java.must(t, "available", "semaphore", name))
		}

		require.NoError(t, inGo.Acquire(t.Context(), 4))
		agree(1)
		waiting := p.java.send(p.java.thread(), "acquiren", "semaphore", name, "3")
		semaphore.waits(t, p, p.javaSide(), name)
		lag, released := faulttest.MeasureLag(t, p.addrs[0]), time.Now()
		require.NoError(t, inGo.Release(t.Context(), 2))
		select {
		case r := <-waiting:
			require.NoError(t, r.err)
			assert.Less(t, time.Since(released), promptly+lag.Late())
		case <-time.After(limit):
			require.Fail(t, "three permits, and Java waits for three")
		}
		agree(0)

		granted := make(chan error, 1)
		go func() { granted <- inGo.Acquire(context.WithoutCancel(t.Context()), 3) }() // ends with the client
		semaphore.waits(t, p, g, name)
		released = time.Now()
		p.java.must(t, "releasen", "semaphore", name, "3")
		select {
		case err := <-granted:
			require.NoError(t, err)
			assert.Less(t, time.Since(released), promptly+lag.Late())
		case <-time.After(limit):
			require.Fail(t, "three permits, and Go waits for three")
		}
		agree(0)
		require.NoError(t, inGo.Release(t.Context(), 5))
		agree(5)
	})
}
