package scenario_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F2, F9, F21: a failover that forgets the last calls gives no id twice, a rate at most once more, and topics go on.
func TestFailoverThatForgetsGivesNoIdTwice(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	group := locktest.StartGroup(t)
	all, check := sharedUses(t, []*redlatch.Client{group.Client(t), group.Client(t)}, 1, func(kind string) string { return kind })
	useAll := func() {
		locktest.Each(t, all, func(ctx context.Context, u use) {
			for range 30 {
				locktest.Persist(ctx, t, func() error {
					err := u.once(ctx)
					if errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown) {
						return err
					}
					assert.NoError(t, err, u.kind)
					return nil
				})
			}
		})
	}
	useAll()
	redistest.AwaitSync(t, group.Master, group.Replica)
	group.StopReplication(t)
	useAll()
	group.Master.Kill()
	useAll()
	check(0)
	group.Sentinel.AwaitMaster(group.Master.Addr())
}
