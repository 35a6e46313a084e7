package rsemaphore

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
)

// resizeKind is the number of permits as package counter sees it.
func resizeKind() counter.Kind {
	return counter.Kind{
		Name:   kinds.Permits,
		Script: permitResizeScript,
		Keys: func(key string, codes []string) []any {
			if slices.ContainsFunc(codes, countsOut) {
				return []any{outKey(key)}
			}
			return nil
		},
		Extra: func(key string, codes []string) []any { // for a look at its type
			if slices.ContainsFunc(codes, countsOut) {
				return nil
			}
			return []any{outKey(key)}
		},
		Args: func(key string) []any { return []any{semaphoreChannel(key)} },
	}
}

// Changes of the number of permits, as permit_resize.lua reads them.
const (
	createPermits byte = 'c'
	setPermits    byte = 's'
	addPermits    byte = 'p'
)

// countsOut reports whether a change needs the number of held permits.
func countsOut(code string) bool { return code[0] == setPermits || code[0] == createPermits }

// resize changes the number of permits once, however often the change is sent.
func (s *PermitSemaphore) resize(ctx context.Context, how byte, n int) (bool, error) {
	if err := s.checkChange(ctx, how, n); err != nil {
		return false, err
	}
	done, err := s.manager.sizes.Do(ctx, s.name.Key(), counter.Request{Code: code(how, n)})
	return done > 0, err
}

// checkChange validates a change before any I/O.
func (s *PermitSemaphore) checkChange(ctx context.Context, how byte, n int) error {
	if err := s.check(); err != nil {
		return err
	}
	if how == addPermits {
		if n == 0 || n < -math.MaxInt32 || n > math.MaxInt32 {
			return fmt.Errorf("%w: delta %d is 0 or not between -%d and %d", errs.ErrInvalid, n, math.MaxInt32, math.MaxInt32)
		}
	} else if err := checkCount("permits", n); err != nil {
		return err
	}
	if err := s.within("permits", n); err != nil {
		return err
	}
	if ctx == nil {
		return core.ErrNilContext
	}
	return ctx.Err()
}
