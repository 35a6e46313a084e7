package interop_test

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
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
	named := map[string]kind{}
	for _, k := range kinds {
		named[k.made(t, p.goSide(t))] = k
	}
	permanent := semaphore.made(t, p.goSide(t))
	all := maps.Clone(named)
	all[permanent] = semaphore
	victim := startChild(t, p, "holder", all)
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
	byLease := slices.SortedFunc(maps.Keys(named), func(a, b string) int { return cmp.Compare(named[b].lease, named[a].lease) })
	for _, name := range byLease { // nobody renews a lease of Java's, so it comes first
		k := named[name]
		got, err := s.try(k.rival(), name, 0)
		require.NoError(t, err)
		require.False(t, got, "%s is held", k.java)
		waiting[name] = s.acquire(k.rival(), name)
		k.rival().waits(t, p, s, name)
	}
	lag := faulttest.MeasureLag(t, p.addrs[0])
	begun := time.Now()
	kill()
	for name, k := range named {
		elapsed := waiting[name].within(t, limit).Sub(begun)
		t.Logf("%s: %s had it %.1f s after the kill", k.java, s, elapsed.Seconds())
		assert.Less(t, elapsed, lease+late+lag.Late(), k.java)
		require.NoError(t, waiting[name].release())
	}
}

// deadPlace is the timeout of fair locks on both sides: a waiter's place ends that long after the lease that it found.
const deadPlace = 6 * time.Second

// F4, F11
func TestAKilledWaiterHoldsUpNobodyOfTheOtherSide(t *testing.T) {
	everywhere(t, atOnce(func(t *testing.T, p *place) {
		g, j := p.goSideWith(t, likeJavaAt(deadPlace)...), p.javaSide()
		t.Run("Java", func(t *testing.T) {
			victim := &javaSide{j: p.another(t)}
			goesOn(t, p, j, g, victim, func(named map[string]kind) (kill func()) {
				for name, k := range named {
					victim.acquire(k, name)
				}
				return func() { require.NoError(t, victim.j.kill()) }
			})
		})
		t.Run("Go", func(t *testing.T) {
			goesOn(t, p, g, j, g, func(named map[string]kind) (kill func()) {
				return startChild(t, p, "waiter", named).Kill
			})
		})
	}))
}

// goesOn has a victim wait for what a side holds, and the other side behind it, and checks when that one has it after the kill.
func goesOn(t *testing.T, p *place, holder, behind, victim side, wait func(map[string]kind) (kill func())) {
	t.Helper()
	named, held, waiting := map[string]kind{}, map[string]*attempt{}, map[string]*attempt{}
	var names []string
	for _, k := range []kind{plain, write, semaphore, permit, fairAt(deadPlace)} { // a place in a fair queue must not end before the kill
		name := k.made(t, p.goSide(t))
		names = append(names, name)
		named[name], held[name] = k, hold(t, holder, k, name)
	}
	kill := wait(named)
	for _, name := range names {
		k := named[name]
		k.waits(t, p, victim, name)
		waiting[name] = behind.acquire(k, name)
		awaitTwo(t, p, k, name)
		k.waits(t, p, behind, name)
	}
	lag := faulttest.MeasureLag(t, p.addrs[0])
	kill()
	for _, name := range slices.Backward(names) {
		k, due, most := named[name], time.Now(), promptly
		if k.java == fairAt(deadPlace).java {
			due, most = headEnds(t, p, name), late
			assert.WithinRange(t, due, time.Now(), time.Now().Add(deadPlace+lease))
		}
		require.NoError(t, held[name].release())
		elapsed := waiting[name].within(t, limit).Sub(due)
		t.Logf("%s: %s had it %.1f ms after it was due", k.java, behind, ms(elapsed))
		assert.Positive(t, elapsed, k.java)
		assert.Less(t, elapsed, most+lag.Late(), k.java)
		require.NoError(t, waiting[name].release())
	}
}

// awaitTwo waits until two processes wait.
func awaitTwo(t *testing.T, p *place, k kind, name string) {
	t.Helper()
	prefix, listens := map[string]string{
		plain.java: "redisson_lock__channel", write.java: "redisson_rwlock", semaphore.java: "redisson_sc", permit.java: "redisson_sc",
	}[k.java]
	if !listens {
		p.awaitQueue(t, name, 2)
		return
	}
	p.awaitSubscribers(t, 2, prefix+":{"+name+"}")
}

// headEnds is when the first waiter of a fair lock loses its place.
func headEnds(t *testing.T, p *place, name string) time.Time {
	t.Helper()
	head, err := p.rdb().LIndex(t.Context(), "redisson_lock_queue:{"+name+"}", 0).Result()
	require.NoError(t, err)
	end, err := p.rdb().ZScore(t.Context(), "redisson_lock_timeout:{"+name+"}", head).Result()
	require.NoError(t, err)
	return time.UnixMilli(int64(end))
}

// startChild starts a process of Go with so many objects.
func startChild(t *testing.T, p *place, child string, named map[string]kind) *faulttest.Child {
	t.Helper()
	args := p.childArgs()
	for name, k := range named {
		args = append(args, k.java+"="+name)
	}
	return faulttest.StartChild(t, child, args...)
}

// waitUntilKilled is a process that waits for what its arguments name.
func waitUntilKilled(args []string) {
	g := openChild(args, likeJavaAt(deadPlace)...)
	for _, arg := range args[2:] {
		word, name, _ := strings.Cut(arg, "=")
		g.acquire(kindOf(word), name)
	}
	select {}
}

// holdUntilKilled is a process that holds what its arguments name, and renews it.
func holdUntilKilled(args []string) {
	g := openChild(args, likeJava()...)
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
