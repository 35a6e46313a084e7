package redlatchtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/redlatchtest"
)

// notebook is a test that writes down what is logged to it, and runs its clean-ups when it is told to.
type notebook struct {
	testing.TB
	mu       sync.Mutex // guards lines
	lines    []string
	cleanups []func()
}

func (n *notebook) Helper() {}

func (n *notebook) Cleanup(fn func()) { n.cleanups = append(n.cleanups, fn) }

func (n *notebook) Log(args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprint(args...))
}

func (n *notebook) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := strings.Join(n.lines, "\n")
	n.lines = nil
	return all
}

func TestClientLogsToTheTestUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notebook{TB: t}
		s := redlatchtest.Start(n)
		c := s.Client()
		hold := lock(t, c.GetLock("orders"))
		s.Partition(c)
		<-hold.Context().Done()
		synctest.Wait()
		told := n.take()
		assert.Contains(t, told, "redlatch: a lock was lost")
		assert.Contains(t, told, "orders")
		assert.NotContains(t, told, "2000", "it has the fake clock's time")

		s.Heal(c)
		hold = lock(t, c.GetLock("orders"))
		s.Partition(c)
		n.cleanups[0]() // the server's; this is not the usual order
		<-hold.Context().Done()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Empty(t, n.take(), "who logs to a test that has ended panics")
		n.cleanups[1]()
	})
}

// Not even go-redis, which cannot know that it is on purpose.
func TestWhatIsBrokenOnPurposePrintsNothing(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=Killed|Partition|Restart")
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "PASS")
	assert.NotContains(t, string(out), "2000")
	assert.NotContains(t, string(out), "failed to dial")
}
