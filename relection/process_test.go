package relection_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

const processLease = 2 * time.Second

// candidate is for a child process: it leads until it is killed, or loses its leadership, and says its terms. Args: the server's address.
func candidate(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}), redlatch.WithWatchdogTimeout(processLease))
	if err == nil {
		err = c.GetElection("leader").Run(context.Background(), func(ctx context.Context, term int64) error {
			faulttest.Emit("%d", term)
			<-ctx.Done()
			return nil
		})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// F1, F11: each leader is killed with SIGKILL. The next one leads within its lease and 200 ms, with a higher term.
func TestKilledLeadersAreReplacedInTime(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	type led struct {
		child *faulttest.Child
		term  int64
	}
	terms := make(chan led)
	run := func() {
		child := faulttest.StartChild(t, "candidate", server.Addr())
		go func() { // until the child has ended
			for line := range child.Lines() {
				var term int64
				_, _ = fmt.Sscan(line, &term) // a bad line is term 0, which nobody has
				select {
				case terms <- led{child, term}:
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
	for range 3 {
		run()
	}
	next := func(after int64) led {
		limit := time.After(20 * time.Second)
		for {
			select {
			case l := <-terms:
				require.NotEqual(t, after, l.term)
				if l.term > after { // else a line of a leader before it, which was read late
					return l
				}
			case <-limit:
				require.Fail(t, "nobody leads with a higher term")
			}
		}
	}
	lag := faulttest.MeasureLag(t, server.Addr())
	leader := next(0)
	var longest time.Duration
	for range faulttest.Rounds(t, 3, 100) {
		leader.child.Kill()
		killed := time.Now()
		run()
		successor := next(leader.term)
		took := time.Since(killed)
		longest = max(longest, took)
		assert.Less(t, took, processLease+200*time.Millisecond+lag.Late())
		leader = successor
	}
	t.Logf("the next one led after at most %v", longest)
}
