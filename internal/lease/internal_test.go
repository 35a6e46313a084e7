package lease

import (
	"log/slog"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/keepalive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A million of them are a supported load: one that grows into the next size class of the allocator costs all of them.
func TestLeaseAndHoldStaySmall(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Lease{}), uintptr(160))
	assert.LessOrEqual(t, unsafe.Sizeof(Hold{}), uintptr(112))
}

// What one call renews shares the hash tag on a cluster, and the lease.
func TestLeasesOfOneCallShareTheirSlot(t *testing.T) {
	m := &Manager{core: &core.Core{Cluster: true, Config: core.Config{Lease: 30 * time.Second}}}
	of := func(name string, limit time.Duration) keepalive.CallKey {
		l := &Lease{manager: m, key: name, state: holding}
		l.levels = &Hold{lease: l, limit: limit}
		key, _, ok := l.RenewalLocked(0)
		assert.True(t, ok, name)
		return key
	}
	brief := 5 * time.Second
	assert.Equal(t, of("{a}1", 0), of("{a}2", 0))
	assert.Equal(t, of("{a}1", brief), of("{a}2", brief))
	assert.NotEqual(t, of("{a}1", 0), of("{a}1", brief))
	assert.NotEqual(t, of("{a}1", 0), of("{b}1", 0))
	assert.NotEqual(t, of("a", 0), of("b", 0))
}

// alone is a listener for leases for which nobody waits.
type alone struct {
	sync.Mutex
	handOff func(l *Lease, now time.Duration) func() // nil for nobody
}

func (a *alone) Guard(*Lease) sync.Locker { return a }

func (a *alone) HandOff(l *Lease, now time.Duration) func() {
	if a.handOff == nil {
		return nil
	}
	return a.handOff(l, now)
}

func (*alone) Releasing(*Lease)     {}
func (*alone) Downgraded(*Lease)    {}
func (*alone) Shared(*Lease)        {}
func (*alone) Released(*Lease, int) {}
func (*alone) Lost(*Lease)          {}

// managerOf returns a manager of a client of its own, without a server, which the end of the test closes.
func managerOf(t *testing.T, to Listener, c core.Config) *Manager {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	c.Logger = slog.New(slog.DiscardHandler)
	e := core.New(rdb, c)
	t.Cleanup(func() {
		e.Close()
		assert.NoError(t, rdb.Close())
	})
	return NewManager(e, &Kind{Name: "bare"}, to)
}

func TestLastThirdOfALeaseIsNotHandedOff(t *testing.T) {
	given := false
	to := &alone{handOff: func(*Lease, time.Duration) func() {
		given = true
		return func() {}
	}}
	l := managerOf(t, to, core.Config{Lease: 30 * time.Second, HandoffBudget: time.Minute}).New("orders", "a")
	l.state = holding
	l.member.SetEnd(30 * time.Second)
	handed := func(now time.Duration) bool {
		given = false
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.handOffLocked(&Hold{}, now) != nil && given
	}
	assert.False(t, handed(29*time.Second))
	assert.False(t, handed(20*time.Second))
	assert.True(t, handed(20*time.Second-1))
}
