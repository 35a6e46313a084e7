package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// runTries is how often a call is repeated that Redis refused for a reason that passes, over about a third of a second.
const runTries = 5

// Limit returns how long a call may take: 0, for no limit but ctx, if ctx has a deadline, else the client's call timeout.
func (e *Core) Limit(ctx context.Context) time.Duration {
	if _, ok := ctx.Deadline(); ok {
		return 0
	}
	return e.CallTimeout
}

// errCallTimeout is the cause of a context that Bound has ended.
var errCallTimeout = errors.New("call timeout")

// Bound returns ctx, which ends after the client's call timeout if it has no deadline of its own. It is for calls of
// several steps; a single script is cheaper bounded by [Core.Limit] in its [pipeline.Ask].
func (e *Core) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := e.Limit(ctx)
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, errCallTimeout)
}

// Conclude returns what a call returns to its caller after its last error: [errs.ErrUnknown] if the call may have taken
// effect, [errs.ErrUnavailable] if Redis did not answer, each after ctx's own error if that has ended the call, and what
// Redis said otherwise. The outcome considers all that was sent: a certain no to a repetition says nothing of what was sent
// before. For a call that changes nothing it is NotDone.
//
// The end of a context that [Core.Bound] has made is no error of its own.
func Conclude(ctx context.Context, outcome script.Outcome, err error) error {
	kind := errs.ErrUnavailable
	switch {
	case err == nil:
		return nil
	case outcome == script.Unknown:
		kind = errs.ErrUnknown
	case errors.Is(err, errs.ErrClosed):
		return err
	case !script.Silent(err) && !errors.Is(err, script.ErrNotSent):
		return Explain(err)
	}
	ended := ctx.Err()
	switch {
	case ended == nil || errors.Is(context.Cause(ctx), errCallTimeout):
		return fmt.Errorf("%w: %w", kind, err)
	case errors.Is(err, ended):
		return fmt.Errorf("%w: %w", ended, kind)
	}
	return fmt.Errorf("%w: %w: %w", ended, kind, err)
}

// Unanswered returns the error of a call that changed nothing and has not ended by its context: [errs.ErrUnavailable] if
// Redis did not answer, and what Redis said otherwise.
func Unanswered(err error) error {
	if err != nil && script.Silent(err) {
		return mark(errs.ErrUnavailable, err)
	}
	return Explain(err)
}

// Explain adds what redlatch knows of a Redis error, once.
func Explain(err error) error {
	switch {
	case err == nil:
		return nil
	case script.WrongType(err):
		return mark(errs.ErrWrongType, err)
	case script.Judge(err) == script.NotDone && script.Transient(err):
		return mark(errs.ErrUnavailable, err)
	}
	return err
}

// Unknown marks an error after which nobody knows what Redis did, and explains the others.
func Unknown(err error) error {
	silent := script.Judge(err) == script.Unknown || errors.Is(err, script.ErrNoAnswer)
	if silent && !errors.Is(err, errs.ErrClosed) {
		return fmt.Errorf("%w: %w", errs.ErrUnknown, err)
	}
	return Explain(err)
}

func mark(kind, err error) error {
	if errors.Is(err, kind) {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// Run sends a call as [pipeline.Batcher.Do] does, and again while Redis says that it is not able to run it just now: a
// few times, or until the call is over while the keys move to another node. A call without a deadline or a limit ends
// with the client's call timeout.
func (e *Core) Run(ctx context.Context, call func() *script.Call, ask pipeline.Ask) (*script.Call, error) {
	if ask.Limit == 0 {
		ask.Limit = e.Limit(ctx)
	}
	until := e.until(ask.Limit)
	for try := 0; ; try++ {
		c := call()
		err := e.Batch.Do(ctx, c, ask)
		passing := script.Judge(err) == script.NotDone && script.Transient(err) && !script.Refused(err) && !script.Crowded(err)
		if !passing || try >= runTries && !script.Parted(err) || e.Closed() || e.Clock.Now() >= until {
			return c, err
		}
		if Sleep(ctx, Backoff(try)) != nil {
			return c, Conclude(ctx, script.NotDone, fmt.Errorf("%w: %w", script.ErrNotSent, err))
		}
	}
}

// until returns when a limit that begins now is over on the client's clock; 0 is none.
func (e *Core) until(limit time.Duration) time.Duration {
	if limit == 0 {
		return math.MaxInt64
	}
	return e.Clock.Now() + limit
}

// Query runs a script, which may run twice, until it gets an answer, ctx is done, or the client's call timeout is over
// for a ctx without a deadline. Its error is that of [Conclude].
//
// The result says whether an earlier try got no answer, and may have run.
func (e *Core) Query(ctx context.Context, call func() *script.Call) (c *script.Call, repeated bool, err error) {
	if err := e.ready(ctx); err != nil {
		return nil, false, err
	}
	c, repeated, err = e.query(ctx, call)
	outcome := script.Judge(err)
	if repeated {
		outcome = script.Unknown
	}
	return c, repeated, Conclude(ctx, outcome, err)
}

// Read runs a query that changes nothing as Query does. One that the client's end has interrupted is ErrClosed.
func (e *Core) Read(ctx context.Context, call func() *script.Call) (*script.Call, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	c, _, err := e.query(ctx, call)
	return c, e.Interrupted(ctx, Conclude(ctx, script.NotDone, err))
}

func (e *Core) query(ctx context.Context, call func() *script.Call) (c *script.Call, repeated bool, err error) {
	limit := e.Limit(ctx)
	until := e.until(limit)
	for try := 0; ; try++ {
		ask := pipeline.Ask{}
		if limit > 0 {
			ask.Limit = max(until-e.Clock.Now(), time.Millisecond)
		}
		c, err := e.Run(ctx, call, ask)
		if !script.Silent(err) || ctx.Err() != nil || e.Closed() || e.Clock.Now() >= until {
			return c, repeated, err
		}
		repeated = repeated || script.Judge(err) == script.Unknown
		if Sleep(ctx, min(Backoff(try), until-e.Clock.Now())) != nil {
			return c, repeated, err
		}
	}
}

// Interrupted returns the error of a query as ErrClosed if the client's end has interrupted it.
func (e *Core) Interrupted(ctx context.Context, err error) error {
	unanswered := errors.Is(err, errs.ErrUnknown) || errors.Is(err, errs.ErrUnavailable) || errors.Is(err, script.ErrNotSent)
	if e.Closed() && unanswered && ctx.Err() == nil {
		return errs.ErrClosed
	}
	return err
}

// Once runs a script that must not run twice, for the client's call timeout if ctx has no deadline. Its error is that of
// [Conclude].
func (e *Core) Once(ctx context.Context, call func() *script.Call) (*script.Call, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	c, err := e.Run(ctx, call, pipeline.Ask{})
	return c, Conclude(ctx, script.Judge(err), err)
}
