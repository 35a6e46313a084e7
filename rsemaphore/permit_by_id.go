package rsemaphore

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// ReleaseID releases a permit by its id, whoever acquired it: this client, another one, or one in Java. [Permit.ID]
// returns the id of a permit of this library. A holder in Go learns of that at its next renewal, and one with a fixed
// lease not at all: its context ends with that lease.
//
// It returns [ErrNotHeld] if no permit with this id is held, except after a lost reply, and redlatch.ErrInvalid if the id is not 32 hexadecimal
// digits. It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see
// redlatch.WithCallTimeout). A call whose reply is lost is repeated until then. After redlatch.ErrUnknown the permit
// may have been released, or may still be. It costs one round trip.
func (s *PermitSemaphore) ReleaseID(ctx context.Context, id string) error {
	found, repeated, err := s.byID(ctx, id, func(raw string) *script.Call { return permitKind{}.Release(s.name.Key(), raw) })
	if err == nil && !found && !repeated { // else the one before may have released it
		err = errs.ErrNotHeld
	}
	return s.wrap("release id", err)
}

// ExtendID sets the lease of a permit by its id, to end d from now, which may be sooner than before. From 10 ms to 24 h.
// It does not move the deadline of a [Permit] in a Go process, which also goes on renewing its lease: use
// [Permit.Extend] there. It fails, blocks and costs as ReleaseID does. A repeated call sets the lease once more.
func (s *PermitSemaphore) ExtendID(ctx context.Context, id string, d time.Duration) error {
	if err := lease.CheckLease(d); err != nil {
		return s.wrap("extend id", err)
	}
	found, _, err := s.byID(ctx, id, func(raw string) *script.Call {
		return permitKeepScript.Call(1, outKey(s.name.Key()), raw, script.Millis(d), int64(math.MaxInt64)>>10)
	})
	if err == nil && !found {
		err = errs.ErrNotHeld
	}
	return s.wrap("extend id", err)
}

// byID runs a script that answers 0 if no permit has the id, whose raw bytes call gets. It reports whether one has, and whether an
// earlier try got no answer.
func (s *PermitSemaphore) byID(ctx context.Context, id string, call func(raw string) *script.Call) (found, repeated bool, err error) {
	if err := s.check(); err != nil {
		return false, false, err
	}
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != idSize {
		return false, false, fmt.Errorf("%w: the permit id %.100q is not of %d hexadecimal digits", errs.ErrInvalid, id, 2*idSize)
	}
	c, repeated, err := s.manager.core.Query(ctx, func() *script.Call { return call(string(raw)) })
	if err != nil {
		return false, repeated, err
	}
	n, err := c.Int()
	return n > 0, repeated, err
}
