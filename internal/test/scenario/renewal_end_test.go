package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	endLease = 600 * time.Millisecond // renewed every 200 ms
	endJolt  = 5 * time.Millisecond   // the longest delay of a direction
)

// interleaving is one acquisition of a name of its own, which may be cancelled, nests at times, and is released.
type interleaving struct {
	kind, name string
	held       time.Time // since when, by the server's clock; zero if the call was cancelled
	ended      time.Time // when the release began, or the cancelled call returned, by the server's clock
}

// keys are the keys whose TTL, or score, a renewal sets.
func (i *interleaving) keys() []string {
	switch i.kind {
	case "multi":
		return []string{i.name + "1", i.name + "2"}
	case "red":
		return []string{i.name + "1", i.name + "2", i.name + "3"}
	case "permit":
		return []string{"{" + i.name + "}:timeout"}
	case "once":
		return []string{"redlatch_once:" + fmt.Sprint(len(i.name)+2) + ":{" + i.name + "}:k"}
	case "handler":
		return []string{"redlatch_dq:{" + i.name + "}:flight"}
	case "scheduler":
		return []string{"redlatch_dq:{" + i.name + "}:ticks:flight"}
	case "double":
		return []string{"redlatch_double_inside:{" + i.name + "}", "redlatch_double_ended:{" + i.name + "}"}
	}
	return []string{i.name}
}

// renewals are the commands of these names that a monitor has seen on its keys at t or later. The first claim of a message is not
// among them: one that is on its way when its consumer goes is given back once it is answered.
func (i *interleaving) renewals(m *faulttest.Monitor, t time.Time, names ...string) []faulttest.Command {
	var all []faulttest.Command
	ofClaim := 2 // claim.lua sends a ZADD XX before the one that claims
	for _, cmd := range m.Since(t, names...) {
		if !cmd.On(i.keys()...) {
			continue
		}
		guard := strings.HasSuffix(cmd.Args[1], ":flight") && cmd.Args[2] == "xx"
		if guard && ofClaim == 2 || ofClaim == 1 {
			ofClaim--
			continue
		}
		all = append(all, cmd)
	}
	return all
}

// nests reports whether its holder may take it again.
func (i *interleaving) nests() bool {
	return !slices.Contains([]string{"election", "once", "handler", "scheduler", "double"}, i.kind)
}

// endKinds are the ways to have something that is renewed.
func endKinds() map[string]func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
	all := takeAll(0)
	delete(all, "message") // Take renews nothing
	all["double"] = func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
		d := c.GetDoubleBarrier(name, 1)
		leave := func(context.Context) error { return d.Leave(context.WithoutCancel(ctx)) } // a context that is over would leave it inside
		return holding{ctx, leave}, d.Enter(ctx)
	}
	return all
}

// run interleaves the steps at random. On a machine that stands still for a part of the lease it fails.
func (i *interleaving) run(ctx context.Context, c *redlatch.Client, now func() time.Time) error {
	take := endKinds()[i.kind]
	given, cancel := context.WithCancel(ctx)
	defer cancel()
	if rand.N(3) == 0 {
		timer := time.AfterFunc(rand.N(4*endJolt), cancel)
		defer timer.Stop()
	}
	held, err := take(given, c, i.name)
	if err != nil {
		i.ended = now()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return err
	}
	i.held = now()
	if i.nests() && rand.N(4) == 0 { // a second level, or permit
		inner, err := take(held.ctx, c, i.name)
		if err == nil {
			err = inner.release(ctx)
		}
		if err != nil && given.Err() == nil {
			i.ended = now()
			return errors.Join(err, held.release(ctx))
		}
	}
	<-time.After(rand.N(endLease * 4 / 5))
	i.ended = now()
	return held.release(given)
}

// F5
func TestNothingIsRenewedAfterItsEndOnAServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	lag := faulttest.MeasureLag(t, server.Addr())
	clock := faulttest.NewWitness(t, server.Addr(), "clock")
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 50})
	c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(endLease), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()); assert.NoError(t, rdb.Close()) })
	direct := server.Client(t)
	each := 5
	if faulttest.Soaking() {
		each = 20
	}
	renewals, disturbed, runs := 0, 0, 0
	for round := range faulttest.Rounds(t, 1, 9) {
		var all []*interleaving
		var keys []string
		for kind := range endKinds() {
			for n := range each {
				i := &interleaving{kind: kind, name: fmt.Sprint("end-", kind, "-", round, "-", n)}
				if kind == "permit" {
					require.NoError(t, c.GetPermitSemaphore(i.name).SetPermits(t.Context(), 5))
				}
				if kind == "handler" {
					_, err := redlatch.GetDelayedQueue[string](c, i.name).Offer(t.Context(), "work", 0)
					require.NoError(t, err)
				}
				all = append(all, i)
				keys = append(keys, i.keys()...)
			}
		}
		monitor := faulttest.MonitorWrites(t, server.Addr(), keys...)
		proxy.Delay(rand.N(endJolt))
		errs := make([]error, len(all))
		var running sync.WaitGroup
		for n, i := range all {
			running.Go(func() { errs[n] = i.run(t.Context(), c, clock.Now) })
		}
		running.Wait()
		proxy.Delay(0)
		<-time.After(3 * endLease) // what is renewed by mistake is seen
		for n, i := range all {
			runs++
			if errs[n] != nil {
				late := []error{redlatch.ErrUnknown, redlatch.ErrUnavailable, rlock.ErrNotHeld, rlock.ErrLost, redis.ErrPoolTimeout}
				require.True(t, isAny(errs[n], late), "%s: %v", i.kind, errs[n])
				disturbed++
				continue // what it left unknown is settled for some time; that no key is left holds all the same
			}
			over := i.ended.Add(2*endJolt + 50*time.Millisecond + lag.Late()) // what was in flight has arrived
			for _, cmd := range i.renewals(monitor, over, "PEXPIRE", "ZADD", "HINCRBY", "HSET") {
				assert.Fail(t, "renewed after its end", "%s, %v later: %v", i.kind, cmd.At.Sub(i.ended), cmd.Args)
			}
			if !i.held.IsZero() {
				renewals += len(i.renewals(monitor, i.held, "PEXPIRE", "ZADD")) - len(i.renewals(monitor, i.ended, "PEXPIRE", "ZADD"))
			}
		}
		redistest.Eventually(t, endLease+lag.Late(), "no key is left", func() error { return noneHeld(t, direct, c, all) })
	}
	assert.Positive(t, renewals)
	if lag.Worst() < endLease/10 {
		assert.LessOrEqual(t, disturbed, runs/2)
	}
	t.Logf("%d interleavings, %d disturbed, %d renewals seen, worst lag %v", runs, disturbed, renewals, lag.Worst())
}

func isAny(err error, of []error) bool {
	for _, one := range of {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// kept are keys that stay for some time, or for good: of elections, permits, queues, schedulers and barriers.
var kept = regexp.MustCompile(`redlatch_election|end-(permit|handler|scheduler|double)-`)

// noneHeld returns an error for what is still held. Tokens and the numbers of permits stay.
func noneHeld(t *testing.T, rdb *redis.Client, c *redlatch.Client, all []*interleaving) error {
	t.Helper()
	for _, i := range all {
		if i.kind == "permit" {
			if n, err := c.GetPermitSemaphore(i.name).Available(t.Context()); err != nil || n != 5 {
				return fmt.Errorf("%d permits of %s are available, %w", n, i.name, err)
			}
		}
	}
	keys, err := rdb.Keys(t.Context(), "*end-*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if strings.Contains(key, "token") || kept.MatchString(key) {
			continue
		}
		return fmt.Errorf("%s is left", key)
	}
	return nil
}
