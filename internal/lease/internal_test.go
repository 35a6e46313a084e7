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
	assert.LessOrEqual(t, unsafe.Sizeof(cohort{}), uintptr(896))
}

// Whatever users put into their hash tags: what one call may renew shares the tag and the lease.
func TestLeasesOfOneCallShareTheirSlot(t *testing.T) {
	s := &Space{Registry: &Registry{core: &core.Core{Cluster: true, Config: core.Config{Lease: 30 * time.Second}}}}
	slot := func(name string, length time.Duration, parted bool) string {
		return s.slot(&Lease{key: name, renewAt: length, parted: parted})
	}
	usual, brief := s.core.Lease, 5*time.Second
	assert.Equal(t, slot("{a}1", usual, false), slot("{a}2", usual, false))
	assert.Equal(t, slot("{a}1", brief, false), slot("{a}2", brief, false))
	different := map[string]bool{}
	for _, slot := range []string{
		slot("{a}1", usual, false), slot("{a}1", brief, false), slot("{a}1", usual, true), slot("{a}2", usual, true),
		slot("{5000}", usual, false), slot("{5000|a}", usual, false), slot("{a|5000}", usual, false), slot("{alone|{a}1}", usual, false),
	} {
		assert.False(t, different[slot], slot)
		different[slot] = true
	}
}
