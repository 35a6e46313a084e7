package rid_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rid"
)

// drawer draws ids until it is killed, and says each. Args: the address, "timed" or "plain".
func drawer(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}))
	opts := []rid.Option{rid.WithBlock(30)}
	if args[1] == "timed" {
		opts = append(opts, rid.WithTimePrefix(32))
	}
	for err == nil {
		ids := make([]string, 50) // a line that is written at once, and so is whole
		for i := range ids {
			var id int64
			if id, err = c.GetIDGenerator("order", opts...).Next(context.Background()); err != nil {
				break
			}
			ids[i] = fmt.Sprint(id)
		}
		faulttest.Emit("%s", strings.Join(ids, " "))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// F8
func TestProcessesThatDieAndStartAgainReuseNoId(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"plain", "timed"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			seen := map[int64]bool{}
			for range faulttest.Rounds(t, 2, 40) {
				children := make([]*faulttest.Child, 8)
				for i := range children {
					children[i] = faulttest.StartChild(t, "drawer", server.Addr(), form)
				}
				for _, child := range children {
					last := int64(0)
					n := 0
					for line := range child.Lines() {
						for text := range strings.FieldsSeq(line) {
							var id int64
							_, err := fmt.Sscan(text, &id)
							require.NoError(t, err)
							require.Greater(t, id, last)
							require.False(t, seen[id], "%d came twice", id)
							last, seen[id] = id, true
						}
						if n++; n == 10 {
							child.Kill()
						}
					}
					assert.GreaterOrEqual(t, n, 10)
				}
			}
		})
	}
}
