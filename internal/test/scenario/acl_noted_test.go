package scenario_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noted are the commands that the clients of a user have written, by the address of the server. What scripts call is not among them, nor
// are the channels that they publish to: [TestDocumentedUserNeedsEachOfItsPatterns] takes those rights away.
type noted struct {
	mu  sync.Mutex // guards all
	all map[string][][]string
}

func (n *noted) add(addr string, cmd []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[addr] = append(n.all[addr], cmd)
}

// handshakes are commands that go-redis sends by itself on a new connection; it does without those that are refused.
var handshakes = []string{"hello", "auth", "client|setinfo", "client|maint_notifications"}

// keyless are commands without keys and channels.
var keyless = []string{"hello", "auth", "client", "ping", "command", "cluster", "info", "pubsub", "sentinel"}

// optionalRights are commands that a user may be allowed, as docs/operations.md says: clients do without.
func optionalRights(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	for _, found := range regexp.MustCompile("With `\\+([a-z|]+)`").FindAllSubmatch(text, -1) {
		all = append(all, string(found[1]))
	}
	require.NotEmpty(t, all)
	return all
}

// requireWithin requires that servers were sent nothing but what the rules of their user allow, and returns how many commands they were
// sent, by name.
func (n *noted) requireWithin(t *testing.T, rules []any, servers func(addr string) bool) (sent map[string]int) {
	t.Helper()
	allowed := append(optionalRights(t), handshakes...)
	patterns := map[byte][]string{}
	for _, rule := range rules {
		switch word := rule.(string); word[0] {
		case '+':
			allowed = append(allowed, word[1:])
		case '~', '&':
			patterns[word[0]] = append(patterns[word[0]], word[1:])
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	sent = map[string]int{}
	for addr, commands := range n.all {
		if !servers(addr) {
			continue
		}
		for _, cmd := range commands {
			name := strings.ToLower(cmd[0])
			full := name
			if slices.Contains([]string{"client", "cluster", "sentinel", "pubsub"}, name) {
				full += "|" + strings.ToLower(cmd[1])
			}
			sent[full]++
			assert.True(t, slices.Contains(allowed, name) || slices.Contains(allowed, full), "the user may not run %q", cmd)
			kind, names := named(t, name, cmd)
			for _, one := range names {
				assert.True(t, slices.ContainsFunc(patterns[kind], func(pattern string) bool {
					ok, err := path.Match(pattern, one)
					assert.NoError(t, err)
					return ok
				}), "the user has no right to %c%s, which is in %q", kind, one, cmd)
			}
		}
	}
	return sent
}

// named returns the keys or channels of a command, and which of both they are.
func named(t *testing.T, name string, cmd []string) (kind byte, names []string) {
	t.Helper()
	switch {
	case slices.Contains(keyless, name):
		return '~', nil
	case name == "eval", name == "evalsha":
		n, err := strconv.Atoi(cmd[2])
		require.NoError(t, err)
		return '~', cmd[3 : 3+n]
	case strings.HasSuffix(name, "subscribe"):
		return '&', cmd[1:]
	case strings.HasSuffix(name, "publish"):
		return '&', cmd[1:2]
	}
	return '~', cmd[1:2]
}
