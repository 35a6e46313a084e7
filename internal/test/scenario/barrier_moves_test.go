package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
)

const (
	barrierPlace   = 5 * time.Second         // is good without being renewed
	barrierRecheck = 1250 * time.Millisecond // the longest time until a participant asks by itself

	// barrierOutage is an outage that breaks no round, with some time to spare.
	barrierOutage = barrierPlace - barrierRecheck - time.Second
)

// barriers are the ways to pass a barrier of three participants.
var barriers = map[string]func(ctx context.Context, c *redlatch.Client, name string) error{
	"barrier": func(ctx context.Context, c *redlatch.Client, name string) error {
		return c.GetBarrier(name, 3).Await(ctx)
	},
	"double": func(ctx context.Context, c *redlatch.Client, name string) error {
		d := c.GetDoubleBarrier(name, 3)
		if err := d.Enter(ctx); err != nil {
			return err
		}
		return d.Leave(ctx)
	},
}

// waiting is a barrier at which some participants wait.
type waiting struct {
	kind, name string
	passed     chan error // the results of those who wait
	waits      int
}

// pass has clients come to the barrier, each once.
func (w *waiting) pass(t *testing.T, clients ...*redlatch.Client) {
	t.Helper()
	for _, c := range clients {
		w.waits++
		go func() { w.passed <- barriers[w.kind](t.Context(), c, w.name) }()
	}
}

// results returns the results of all that have come to an end within a time, once all who wait have.
func (w *waiting) results(t *testing.T, within time.Duration) (all []error) {
	t.Helper()
	take := func(err error) {
		w.waits--
		all = append(all, err)
	}
	over := time.After(within)
	for w.waits > 0 {
		select {
		case err := <-w.passed:
			take(err)
		case <-over:
			for len(w.passed) > 0 { // select may have preferred the end
				take(<-w.passed)
			}
			return all
		}
	}
	return all
}

// comeTogether has two clients wait at a barrier of each kind.
func comeTogether(t *testing.T, one, two *redlatch.Client, nameOf func(kind string) string) (all []*waiting) {
	t.Helper()
	for kind := range barriers {
		w := &waiting{kind: kind, name: nameOf(kind), passed: make(chan error, 9)}
		w.pass(t, one, two)
		all = append(all, w)
	}
	return all
}

// passes requires that three participants pass the barrier: those who wait and another one, or three new ones if the round was broken for
// all who waited. It may not be if the outage was short.
func (w *waiting) passes(t *testing.T, outage time.Duration, broken []error, clients ...*redlatch.Client) {
	t.Helper()
	if w.waits > 0 {
		assert.Empty(t, broken, "%s: the round is broken for some and not for others", w.kind)
	}
	for _, err := range broken {
		assert.Greater(t, outage, barrierOutage, "%s: broken", w.kind)
		if !errors.Is(err, rbarrier.ErrBroken) {
			assert.ErrorIs(t, err, redlatch.ErrUnavailable, w.kind)
		}
	}
	w.pass(t, clients[w.waits:]...)
	assert.Equal(t, []error{nil, nil, nil}, w.results(t, 15*time.Second), w.kind)
}

// F9, F24, F29: a failover breaks the round of a barrier for all who wait or for nobody, and a short one breaks none. Then a round is whole.
func TestFailoverBreaksABarrierForAllOrNobody(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for _, tc := range failovers() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := tc.start(t)
			one, two, third := p.connect(t), p.connect(t), p.connect(t)
			all := comeTogether(t, one, two, func(kind string) string { return nameFor(kind, p.concerned) })
			for _, w := range all {
				redistest.AwaitSubscribers(t, p.client(), "redlatch_"+w.kind+"_channel:{"+w.name+"}", 2)
			}
			outage := probe(t, third, nameFor("probe", p.concerned))

			p.change()
			p.serves()
			broken := map[*waiting][]error{}
			until := time.Now().Add(barrierPlace + 2*barrierRecheck)
			for _, w := range all {
				broken[w] = w.results(t, time.Until(until))
			}
			took := outage()
			t.Logf("Redis did not answer for %v", took)
			for _, w := range all {
				t.Logf("%s: %d wait, the others got %v", w.kind, w.waits, broken[w])
				if w.waits == 0 { // the places of those have ended when this is over
					time.Sleep(time.Until(until))
				}
				w.passes(t, took, broken[w], one, two, third)
			}
		})
	}
}

// probe asks Redis all the time, until the function that it returns is called. That returns for how long there was no answer at most.
func probe(t *testing.T, c *redlatch.Client, name string) (longest func() time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan time.Duration, 1)
	go func() {
		var gap time.Duration
		for last := time.Now(); ctx.Err() == nil; <-time.After(10 * time.Millisecond) {
			short, cancel := context.WithTimeout(ctx, time.Second/2)
			_, err := c.GetCountDownLatch(name).Count(short)
			cancel()
			gap = max(gap, time.Since(last))
			if err == nil {
				last = time.Now()
			}
		}
		result <- gap
	}()
	return func() time.Duration {
		stop()
		return <-result
	}
}

// F24: a slot that moves for some seconds breaks no round of a barrier, whichever of its keys have moved. Those who come meanwhile belong
// to the round.
func TestRoundOutlivesASlotOnTheMove(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	one, two, third := clusterClient(t, cluster), clusterClient(t, cluster), clusterClient(t, cluster)
	for state, moves := range map[string]func(key string) bool{
		"none moved": func(string) bool { return false },
		"all moved":  func(string) bool { return true },
		"some moved": func(key string) bool { return strings.Contains(key, "_arrived") },
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			name := "{" + strings.ReplaceAll(state, " ", "-") + "}"
			all := comeTogether(t, one, two, func(kind string) string { return name + kind })
			for _, w := range all {
				redistest.AwaitSubscribers(t, cluster.Client(t), "redlatch_"+w.kind+"_channel:"+w.name, 2)
			}
			began, refused := time.Now(), tryAgain(t, cluster)
			move := cluster.Migrate(t, name, cluster.Other(t, name))
			move.Move(t, slices.DeleteFunc(move.Left(t), func(key string) bool { return !moves(key) })...)
			for _, w := range all {
				w.pass(t, third)
			}
			for _, w := range all {
				assert.Empty(t, w.results(t, time.Until(began.Add(barrierRecheck))), w.kind) // all have asked
			}
			redistest.Eventually(t, 10*time.Second, "a call was refused", func() error {
				if tryAgain(t, cluster) == refused {
					return errors.New("not yet")
				}
				return nil
			})
			move.Finish(t)
			took := time.Since(began)
			for _, w := range all {
				results := w.results(t, 15*time.Second)
				if took < barrierOutage {
					assert.Equal(t, []error{nil, nil, nil}, results, w.kind)
				}
				w.passes(t, 0, nil, one, two, third)
			}
		})
	}
}

// tryAgain returns how often the nodes have refused a call as its keys were not in one place.
func tryAgain(t *testing.T, c *redistest.Cluster) (n int) {
	t.Helper()
	for _, node := range c.Nodes() {
		info, err := node.Client(t).InfoMap(t.Context(), "errorstats").Result()
		require.NoError(t, err)
		if count, ok := info["Errorstats"]["errorstat_TRYAGAIN"]; ok {
			var here int
			_, err = fmt.Sscanf(count, "count=%d", &here)
			require.NoError(t, err)
			n += here
		}
	}
	return n
}
