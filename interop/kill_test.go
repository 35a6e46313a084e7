package interop_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faulttest"
)

// late is how much longer than its lease a dead holder may keep out others: until they look again.
const late = 1500 * time.Millisecond

// mortal are the kinds with a lease.
func mortal() []kind {
	leased := permit
	leased.lease = lease
	return []kind{plain, fenced, fair, write, reading, multi, leased}
}

func TestWhatAKilledJavaProcessHeldIsFreeAfterItsLease(t *testing.T) {
	everywhere(t, atOnce(func(t *testing.T, p *place) { freesJava(t, p, mortal()) }))
}

func TestTheRedLockOfAKilledJavaProcessIsFreeAfterItsLease(t *testing.T) {
	onThreeServers(t, atOnce(func(t *testing.T, p *place) { freesJava(t, p, []kind{red}) }))
}

func TestWhatAKilledGoProcessHeldIsFreeAfterItsLease(t *testing.T) {
	everywhere(t, atOnce(func(t *testing.T, p *place) { freesGo(t, p, mortal()) }))
}

func TestTheRedLockOfAKilledGoProcessIsFreeAfterItsLease(t *testing.T) {
	onThreeServers(t, atOnce(func(t *testing.T, p *place) { freesGo(t, p, []kind{red}) }))
}

func freesJava(t *testing.T, p *place, kinds []kind) {
	t.Helper()
	g := p.goSide(t)
	victim := p.another(t)
	named := map[string]kind{}
	for _, k := range kinds {
		name := k.made(t, g)
		hold(t, &javaSide{j: victim}, k, name)
		named[name] = k
	}
	permanent := semaphore.made(t, g)
	hold(t, &javaSide{j: victim}, semaphore, permanent)
	frees(t, p, g, named, func() { require.NoError(t, victim.kill()) })
	keepsOut(t, g, permanent)
}

func freesGo(t *testing.T, p *place, kinds []kind) {
	t.Helper()
	args := p.childArgs()
	named := map[string]kind{}
	for _, k := range kinds {
		name := k.made(t, p.goSide(t))
		named[name] = k
		args = append(args, k.java+"="+name)
	}
	permanent := semaphore.made(t, p.goSide(t))
	victim := faulttest.StartChild(t, "holder", append(args, semaphore.java+"="+permanent)...)
	victim.WaitFor("held")
	frees(t, p, p.javaSide(), named, victim.Kill)
	keepsOut(t, p.javaSide(), permanent)
}

// keepsOut checks that the permit of a counting semaphore, which has no lease, did not return with all that had one.
func keepsOut(t *testing.T, s side, name string) {
	t.Helper()
	got, err := s.try(semaphore, name, 0)
	require.NoError(t, err)
	assert.False(t, got, "%s has a permit of a process that was killed", s)
}

// frees has a side wait for all that the other one holds, kills that, and waits until all is granted.
func frees(t *testing.T, p *place, s side, named map[string]kind, kill func()) {
	t.Helper()
	waiting := map[string]*attempt{}
	for name, k := range named {
		got, err := s.try(k.rival(), name, 0)
		require.NoError(t, err)
		require.False(t, got, "%s is held", k.java)
		waiting[name] = s.acquire(k.rival(), name)
		k.rival().waits(t, p, s, name)
	}
	begun := time.Now()
	kill()
	for name, k := range named {
		elapsed := waiting[name].within(t, limit).Sub(begun)
		t.Logf("%s: %s had it %.1f s after the kill", k.java, s, elapsed.Seconds())
		assert.Less(t, elapsed, lease+late, k.java)
		require.NoError(t, waiting[name].release())
	}
}

// holdUntilKilled is a process that holds what its arguments name, and renews it.
func holdUntilKilled(args []string) {
	g := openChild(args)
	for _, arg := range args[2:] {
		word, name, _ := strings.Cut(arg, "=")
		a := g.acquire(kindOf(word), name)
		<-a.done
		if a.err != nil {
			panic(a.err)
		}
	}
	faulttest.Emit("held")
	_, _ = os.Stdin.Read(make([]byte, 1)) // Nobody writes.
	select {}
}
