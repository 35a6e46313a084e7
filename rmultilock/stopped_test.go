package rmultilock_test

import (
	"context"
	"strconv"
	"strings"
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

// sleeper holds a lock until it is lost, and tells its deadline before and after that. Args: the kind, the addresses.
func sleeper(args []string) {
	var all []rlock.Locker
	var first *redlatch.Client
	for _, addr := range args[1:] {
		c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: addr}))
		if err != nil {
			panic(err)
		}
		all = append(all, c.GetLock("a"))
		if first == nil {
			first = c
		}
	}
	hold, err := both(first, all...)[args[0]].Lock(context.Background(), rlock.WithFixedLease(300*time.Millisecond))
	if err != nil {
		panic(err)
	}
	faulttest.Emit("%d", hold.ExpiresAt().UnixNano())
	<-hold.Context().Done()
	faulttest.Emit("%d", hold.ExpiresAt().UnixNano())
}

// F1
func TestDeadlineOfAStoppedHolderStaysWhereItWas(t *testing.T) {
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			args := []string{kind}
			for range 3 {
				args = append(args, redistest.Start(t).Addr())
			}
			child := faulttest.StartChild(t, "sleeper", args...)
			next := func() time.Time {
				ns, err := strconv.ParseInt(strings.TrimSpace(child.Next()), 10, 64)
				require.NoError(t, err)
				return time.Unix(0, ns)
			}
			before := next()
			child.Stop()
			<-time.After(time.Until(before) + 200*time.Millisecond) // others may have had the lock for long
			child.Cont()
			assert.WithinDuration(t, before, next(), 50*time.Millisecond)
		})
	}
}
