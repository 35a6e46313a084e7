package interop_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestLeasedPermitPassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, permit, permit) })
}

func TestLeasedPermitOfOneLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, permit, 100) })
}

func TestJavaReleasesAPermitOfGoByItsID(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		g, lag := p.goSide(t), faulttest.MeasureLag(t, p.addrs[0])
		name := permit.made(t, g)
		first := hold(t, g, permit, name)
		second := p.goSide(t).acquire(permit, name)
		permit.waits(t, p, g, name)
		p.java.must(t, "releaseid", "permit", name, first.value)
		second.soon(t, lag)
		learns(t, first)
		require.ErrorIs(t, first.release(), rsemaphore.ErrNotHeld)
		require.NoError(t, second.release())
		assert.Equal(t, "1", p.java.must(t, "available", "permit", name))
	})
}

func TestPermitOfJavaReturnsAfterItsLease(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		g, j := p.goSide(t), p.javaSide()
		short := permit
		short.lease = lease / 3
		name := permit.made(t, g)
		first := hold(t, j, short, name)
		second := g.acquire(permit, name)
		elapsed := second.within(t, lease).Sub(first.at)
		t.Logf("a lease of %v: Go had the permit after %.0f ms", short.lease, ms(elapsed))
		assert.Error(t, first.release(), "the lease has ended")
		require.NoError(t, second.release())
	})
}

func TestGoReleasesAPermitOfJavaByItsID(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		g, j, lag := p.goSide(t), p.javaSide(), faulttest.MeasureLag(t, p.addrs[0])
		name := permit.made(t, g)
		first := hold(t, j, permit, name)
		semaphore := g.clients[0].GetPermitSemaphore(name)
		require.NoError(t, semaphore.ExtendID(t.Context(), first.value, lease))
		second := p.javaSide().acquire(permit, name)
		permit.waits(t, p, j, name)
		require.NoError(t, semaphore.ReleaseID(t.Context(), first.value))
		second.soon(t, lag)
		require.ErrorIs(t, semaphore.ReleaseID(t.Context(), first.value), rsemaphore.ErrNotHeld)
		require.Error(t, first.release(), "it is gone")
		require.NoError(t, second.release())
	})
}
