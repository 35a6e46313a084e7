package rlock_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	contendedShare = 10        // one name in so many is waited for
	bytesPerName   = 20        // less than any entry that stayed would take
	bytesInAll     = 512 << 10 // connections, pools, and tables that were once larger
)

// once takes locks whose names are never used again, some of them one after another with two clients.
type once struct {
	holder, waiter *redlatch.Client
	holds          sync.Map // the name of a lock that is waited for -> its *rlock.Hold
	waited         atomic.Int64
}

func newOnce(t *testing.T, r *rig) *once {
	t.Helper()
	o := &once{holder: r.direct(t, redlatch.WithWatchdogTimeout(lease)), waiter: r.client(t, redlatch.WithWatchdogTimeout(lease))}
	r.proxy.OnCommand(func(cmd []string) {
		if !faulttest.Named("SUBSCRIBE")(cmd) {
			return
		}
		for _, channel := range cmd[1:] { // the waiter has found the lock taken
			name := strings.TrimSuffix(strings.TrimPrefix(channel, "redisson_lock__channel:{"), "}")
			if hold, ok := o.holds.LoadAndDelete(name); ok {
				o.waited.Add(1)
				assert.NoError(t, hold.(*rlock.Hold).Unlock(t.Context()))
			}
		}
	})
	return o
}

func (o *once) use(t *testing.T, from, n int) {
	t.Helper()
	share(t, 32, n, func(_, run int) error {
		name := "once-" + strconv.Itoa(from+run)
		if run%contendedShare == 0 {
			hold, err := o.holder.GetLock(name).Lock(t.Context())
			if err != nil {
				return err
			}
			o.holds.Store(name, hold)
		}
		return o.waiter.GetLock(name).Do(t.Context(), nothing)
	})
}

// F19
func TestNamesUsedOnceLeaveNoMemory(t *testing.T) {
	redistest.Long(t)
	r := newRig(t)
	o := newOnce(t, r)
	const warm = 2000
	o.use(t, 0, warm) // connections, pools, and tables as large as they get
	n := faulttest.Rounds(t, 20_000, 200_000)
	before := heap()
	o.use(t, warm, n)
	require.EqualValues(t, (warm+n)/contendedShare, o.waited.Load(), "names that were waited for")
	most := int64(bytesInAll + n*bytesPerName)
	least := most
	redistest.Eventually(t, patience, "the heap is as before", func() error {
		least = min(least, heap()-before)
		if least >= most {
			return fmt.Errorf("%d names left %d bytes", n, least)
		}
		return nil
	})
	t.Logf("%d names left %d bytes", n, least)
	locktest.Free(t, o.holder.GetLock("afterwards")) // the clients are alive
	locktest.Free(t, o.waiter.GetLock("afterwards"))
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
