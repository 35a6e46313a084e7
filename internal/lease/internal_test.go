package lease

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keepalive"
	"github.com/redlatch/redlatch/internal/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatRedisDidNotAnswerIsUnknown(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{io.EOF, true},
		{script.ErrNoAnswer, true},
		{fmt.Errorf("%w: %w", script.ErrNotSent, script.ErrNoAnswer), true}, // its queue stood still: no other class has it
		{fmt.Errorf("%w: %w", script.ErrNotSent, context.Canceled), false},
		{fmt.Errorf("%w: %w", script.ErrNotSent, errs.ErrClosed), false},
		{nil, false},
	} {
		err := unknown(c.err)
		assert.ErrorIs(t, err, c.err)
		if c.want {
			assert.ErrorIs(t, err, errs.ErrUnknown, "%v", c.err)
		} else {
			assert.NotErrorIs(t, err, errs.ErrUnknown, "%v", c.err)
		}
	}
}

// A million of them are a supported load: one that grows into the next size class of the allocator costs all of them.
func TestLeaseAndHoldStaySmall(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Lease{}), uintptr(160))
	assert.LessOrEqual(t, unsafe.Sizeof(Hold{}), uintptr(112))
}

// What one call renews shares the hash tag on a cluster, and the lease.
func TestLeasesOfOneCallShareTheirSlot(t *testing.T) {
	s := &Manager{Namespace: &Namespace{core: &core.Core{Cluster: true, Config: core.Config{Lease: 30 * time.Second}}}}
	of := func(name string, limit time.Duration) keepalive.Kindred {
		l := &Lease{manager: s, key: name, state: holding}
		l.levels = &Hold{lease: l, limit: limit}
		terms, ok := l.TermsLocked(0)
		assert.True(t, ok, name)
		return terms.Kindred
	}
	brief := 5 * time.Second
	assert.Equal(t, of("{a}1", 0), of("{a}2", 0))
	assert.Equal(t, of("{a}1", brief), of("{a}2", brief))
	assert.NotEqual(t, of("{a}1", 0), of("{a}1", brief))
	assert.NotEqual(t, of("{a}1", 0), of("{b}1", 0))
	assert.NotEqual(t, of("a", 0), of("b", 0))
}
