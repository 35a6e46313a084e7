package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/rlock"
)

// side is Go or Java. Both do the same with all kinds of object.
type side interface {
	String() string
	// acquire begins to acquire and does not wait.
	acquire(k kind, name string) *attempt
	// try reports whether it could acquire within the wait; what it acquired is released again.
	try(k kind, name string, wait time.Duration) (bool, error)
	// force releases what anybody holds.
	force(k kind, name string) (bool, error)
	adder
}

// adder is a process of Go or Java.
type adder interface {
	// add has two threads or goroutines add to a counter so often, each under the lock, by reading and writing. Each adds the longest
	// time that it took to acquire the lock, in ms, to the list of waits of the counter.
	add(k kind, name, counter string, times int) <-chan error
}

// attempt is a call that acquires, and what it was granted.
type attempt struct {
	done    chan struct{} // closed when the call has returned
	at      time.Time     // when it returned
	err     error
	value   string               // a fencing token, or the id of a permit; set once done
	release func() error         // set once done
	held    func() (bool, error) // whether Java's thread holds; nil in Go
	ctx     context.Context      // of the hold in Go; nil in Java
}

// within waits for the grant and returns when it came.
func (a *attempt) within(t *testing.T, d time.Duration) time.Time {
	t.Helper()
	select {
	case <-a.done:
		require.NoError(t, a.err)
	case <-time.After(d):
		require.Failf(t, "not acquired", "within %v", d)
	}
	return a.at
}

// soon waits for the grant, and checks that it came promptly, but for what the machine was late.
func (a *attempt) soon(t *testing.T, lag *faulttest.Lag) {
	t.Helper()
	begun := time.Now()
	assert.Less(t, a.within(t, limit).Sub(begun), promptly+lag.Late())
}

// hold acquires at once.
func hold(t *testing.T, s side, k kind, name string) *attempt {
	t.Helper()
	a := s.acquire(k, name)
	a.within(t, limit)
	return a
}

// goSide is this library: one client, or one for each of the servers of a RedLock.
type goSide struct {
	rdbs    []redis.UniversalClient
	clients []*redlatch.Client
}

// likeJava are the settings that have to be those of Java.
func likeJava() []redlatch.Option { return likeJavaAt(fairWait) }

func likeJavaAt(wait time.Duration) []redlatch.Option {
	return []redlatch.Option{redlatch.WithRedissonFairQueue(), redlatch.WithFairWaitTimeout(wait)}
}

func openGo(cluster bool, addrs []string, opts ...redlatch.Option) (*goSide, error) {
	g := &goSide{rdbs: connect(cluster, addrs)}
	opts = append(opts, redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0))
	if shardedMode == "OFF" {
		opts = append(opts, redlatch.WithShardedWakeups(redlatch.ShardedNever))
	}
	for _, rdb := range g.rdbs {
		client, err := redlatch.New(rdb, opts...)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.clients = append(g.clients, client)
	}
	return g, nil
}

func (g *goSide) close() error {
	var errs []error
	for _, client := range g.clients {
		errs = append(errs, client.Close())
	}
	for _, rdb := range g.rdbs {
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

func (g *goSide) String() string { return "Go" }

func (g *goSide) acquire(k kind, name string) *attempt {
	a := &attempt{done: make(chan struct{})}
	go func() { // ends with the grant, or when the client closes
		defer close(a.done)
		var h grant
		h, a.err = k.acquire(context.Background(), g, name)
		a.at = time.Now()
		if a.err != nil {
			return
		}
		a.ctx, a.value = h.ctx, h.value
		a.release = func() error { return h.release(context.Background()) }
	}()
	return a
}

func (g *goSide) try(k kind, name string, wait time.Duration) (bool, error) {
	h, err := k.try(context.Background(), g, name, wait)
	if errors.Is(err, rlock.ErrNotAcquired) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, h.release(context.Background())
}

func (g *goSide) force(k kind, name string) (bool, error) {
	return k.force(context.Background(), g, name)
}

func (g *goSide) add(k kind, name, counter string, times int) <-chan error {
	done := make(chan error, 2)
	for range cap(done) {
		go func() { done <- g.addUp(k, name, counter, times) }()
	}
	return done
}

func (g *goSide) addUp(k kind, name, counter string, times int) error {
	ctx, longest := context.Background(), time.Duration(0)
	for range times {
		asked := time.Now()
		h, err := k.acquire(ctx, g, name)
		if err != nil {
			return err
		}
		longest = max(longest, time.Since(asked))
		n, err := g.rdbs[0].Get(ctx, counter).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		err = errors.Join(g.rdbs[0].Set(ctx, counter, n+1, 0).Err(), h.release(ctx))
		if err != nil {
			return err
		}
	}
	return g.rdbs[0].RPush(ctx, waitsOf(counter), longest.Milliseconds()).Err()
}

func waitsOf(counter string) string { return counter + "-waits" }

// goProcess is this library in a process of its own.
type goProcess struct {
	t *testing.T
	p *place
}

func (g *goProcess) add(k kind, name, counter string, times int) <-chan error {
	child := faulttest.StartChild(g.t, "adder", append(g.p.childArgs(), k.java, name, counter, strconv.Itoa(times))...)
	done := make(chan error, 1)
	go func() { // ends with the child
		said := "it has ended"
		for said = range child.Lines() {
		}
		if said == "done" {
			done <- nil
			return
		}
		done <- errors.New("the Go process: " + said)
	}()
	return done
}

// childArgs are those with which a child opens the place.
func (p *place) childArgs() []string {
	return []string{strconv.FormatBool(p.cluster), strings.Join(p.addrs, ",")}
}

func openChild(args []string, opts ...redlatch.Option) *goSide {
	cluster, err := strconv.ParseBool(args[0])
	if err != nil {
		panic(err)
	}
	g, err := openGo(cluster, strings.Split(args[1], ","), opts...)
	if err != nil {
		panic(err)
	}
	return g
}

// addInChild is the child of goProcess.
func addInChild(args []string) {
	g := openChild(args, likeJava()...)
	times, err := strconv.Atoi(args[5])
	if err != nil {
		panic(err)
	}
	done := g.add(kindOf(args[2]), args[3], args[4], times)
	if err := errors.Join(<-done, <-done, g.close()); err != nil {
		faulttest.Emit("%v", err)
		return
	}
	faulttest.Emit("done")
}

// javaSide is Redisson, with a thread of its own for each attempt.
type javaSide struct{ j *java }

func (s *javaSide) String() string { return "Java" }

func (s *javaSide) acquire(k kind, name string) *attempt {
	a := &attempt{done: make(chan struct{})}
	thread := s.j.thread()
	granted := s.j.send(thread, k.command("lock", name, k.javaLease())...)
	go func() { // ends with the reply, or with the process
		defer close(a.done)
		r := <-granted
		a.value, a.err, a.at = r.value, r.err, time.Now()
		a.release = func() error {
			_, err := s.j.ask(thread, k.command("unlock", name)...)
			return err
		}
		a.held = func() (bool, error) {
			value, err := s.j.ask(thread, k.command("held", name)...)
			return value == "true", err
		}
	}()
	return a
}

func (s *javaSide) try(k kind, name string, wait time.Duration) (bool, error) {
	thread := s.j.thread()
	value, err := s.j.ask(thread, k.command("try", name, millis(wait), k.javaLease())...)
	if err != nil || value != "true" {
		return false, err
	}
	_, err = s.j.ask(thread, k.command("unlock", name)...)
	return true, err
}

func (s *javaSide) force(k kind, name string) (bool, error) {
	value, err := s.j.ask(s.j.thread(), k.command("force", name)...)
	return value == "true", err
}

func (s *javaSide) add(k kind, name, counter string, times int) <-chan error {
	done := make(chan error, 2)
	for range cap(done) {
		replies := s.j.send(s.j.thread(), k.command("add", name, counter, fmt.Sprint(times))...)
		go func() { done <- (<-replies).err }()
	}
	return done
}
