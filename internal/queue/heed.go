package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// rejection is an error of a handler that gives up.
type rejection struct{ error }

func (r rejection) Unwrap() error { return r.error }

// Rejection returns an error with which a handler makes its message a dead letter.
func Rejection(err error) error {
	if err == nil {
		err = errors.New("rejected")
	}
	return rejection{err}
}

// postponement is an error of a handler that puts its message off.
type postponement struct{ delay time.Duration }

func (p postponement) Error() string { return fmt.Sprintf("snoozed for %v", p.delay) }

// Postponement returns an error with which a handler puts its message off; [errs.ErrInvalid] for a delay out of range.
func Postponement(d time.Duration) error {
	if err := errs.Between("delay of a snooze", d, 0, MaxDelay); err != nil {
		return err
	}
	return postponement{d}
}

// Heed does what the error of a handler says of its message, and returns what is left to be said of the attempt.
func (m *Message) Heed(ctx context.Context, err error) error {
	var r rejection
	var p postponement
	switch {
	case err == nil || m.Finished():
	case errors.As(err, &r):
		m.Failure = err
		return m.Reject(ctx, Reason(fmt.Sprint(err)))
	case errors.As(err, &p) && errors.Is(context.Cause(ctx), errs.ErrTimeout):
		return errs.ErrTimeout // the attempt has failed
	case errors.As(err, &p):
		return m.Snooze(ctx, p.delay)
	case errors.Is(context.Cause(ctx), ErrStopped):
		return m.Snooze(ctx, 0) // a deployment is no attempt
	}
	return err
}

// Reason returns a text as it is kept with a dead letter.
func Reason(text string) string {
	if text == "" {
		return "rejected"
	}
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
