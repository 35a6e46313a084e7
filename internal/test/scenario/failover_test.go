package scenario_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F9, F24, F29: whatever is held outlives a failover to a replica that has it, excludes others all the time, and is given on by its
// release; waiters go on waiting.
func TestFailoverLosesNothingThatTheReplicaHas(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for _, tc := range failovers() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := tc.start(t)
			lease := failoverLease
			if p.frozen { // go-redis waits for a reply first
				lease *= 2
			}
			client := func(o redlatch.Observer) *redlatch.Client {
				return p.connect(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithObserver(o))
			}
			renewed, failedOver := make(chan struct{}, 1000), make(chan string, 10)
			var woken sync.Map // the names of what the messages were of
			holder, waiter := client(redlatch.Observer{
				Renewed:    func(int, int, error) { renewed <- struct{}{} },
				FailedOver: func(node string) { failedOver <- node },
			}), client(redlatch.Observer{Woken: func(_, name string) { woken.Store(strings.Trim(name, "{}"), true) }})
			names := map[string]string{}
			all := enterAll(t, holder, waiter, guests(lease), func(g guest) string {
				names[g.name] = nameFor(g.name, p.concerned)
				return names[g.name]
			})
			redistest.AwaitChannels(t, p.client(), channels(all))
			next(t, renewed)
			next(t, renewed) // so the server has answered what was asked beside the first one

			p.change()
			p.serves()
			changed := time.Now()
			for time.Since(changed) < lease { // longer than anything could be held without a renewal
				for _, h := range all {
					require.NoError(t, h.alive(), "%s is held no longer, %v after the change", h.name, time.Since(changed))
					select {
					case err := <-h.waited:
						require.Fail(t, "two hold it", "%s: %v", h.name, err)
					default:
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			redistest.AwaitChannels(t, p.client(), channels(all))
			lag := faulttest.MeasureLag(t, "")
			woken.Clear()
			var took []time.Duration
			var asked []string // by themselves
			for _, h := range all {
				one := h.handOver(t)
				if h.polls {
					continue
				}
				took = append(took, one)
				if _, ok := woken.Load(names[h.name]); !ok {
					asked = append(asked, h.name)
				}
			}
			requireWoken(t, lag, took)
			most, changes := 2, 1 // so many may ask just before their message comes
			if lag.Worst() > 20*time.Millisecond {
				most, changes = len(took)/2, 2 // on a busy machine Sentinel may take a slow master for a dead one
			}
			assert.LessOrEqual(t, len(asked), most, "no message woke those who waited for %v", asked)
			assert.NotEmpty(t, failedOver)
			assert.LessOrEqual(t, len(failedOver), changes)
		})
	}
}
