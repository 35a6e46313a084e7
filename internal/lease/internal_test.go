package lease

import (
	"context"
	"fmt"
	"io"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

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
