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
func (c *Core) Limit(ctx context.Context) time.Duration {
	if _, ok := ctx.Deadline(); ok {
		return 0
	}
	return c.CallTimeout
}

// Bound returns ctx, which ends after the client's call timeout if it has no deadline of its own, with the cause
// [script.ErrNoAnswer]. It is for calls of several steps; a single script is cheaper bounded by [Core.Limit] in its
// [pipeline.SendOptions]. A nil ctx stays one.
func (c *Core) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		return nil, func() {}
	}
	limit := c.Limit(ctx)
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, script.ErrNoAnswer)
}

// Conclude returns what a call returns to its caller after its last error: [errs.ErrUnknown] if the call may have taken
// effect, [errs.ErrUnavailable] if Redis did not answer, each after ctx's own error if that has ended the call, and what
// Redis said otherwise. The outcome considers all that was sent: a certain no to a repetition says nothing of what was sent
// before. For a call that changes nothing it is NotDone.
//
// The end of a context that [Core.Bound] has made is no error of its own.
func Conclude(ctx context.Context, outcome script.Outcome, err error) error {
	if err == nil {
		return nil
	}
	if outcome == script.NotDone && script.Unwritable(err) {
		err = mark(errs.ErrUnwritable, err)
	}
	kind, ended := errs.ErrUnavailable, endOf(ctx)
	switch {
	case outcome == script.Unknown:
		kind = errs.ErrUnknown
	case errors.Is(err, errs.ErrClosed), errors.Is(err, errs.ErrNotListening):
		return err
	case !script.Silent(err) && !errors.Is(err, script.ErrNotSent) && (ended == nil || !script.Passing(err)):
		return Explain(err)
	}
	switch {
	case ended == nil || errors.Is(context.Cause(ctx), script.ErrNoAnswer): // of Bound
		return mark(kind, err)
	case errors.Is(err, ended):
		return fmt.Errorf("%w: %w", ended, kind)
	}
	return fmt.Errorf("%w: %w", ended, mark(kind, err))
}

// endOf returns ctx.Err(); past the deadline it waits up to 1 s for it. A connection may notice the deadline before ctx, on a
// busy machine long before.
func endOf(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return ctx.Err()
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
	case script.Unwritable(err) && script.Judge(err) == script.NotDone:
		return mark(errs.ErrUnwritable, err)
	case script.Passing(err):
		return mark(errs.ErrUnavailable, err)
	case script.Lacking(err):
		return mark(errLacking, err)
	}
	return err
}

var errLacking = errors.New("the server lacks a command, or the user a right; redlatch.Check, and redlatch doctor --grid, name those that objects need")

// Judged returns the error of an attempt as its caller gets it: marked if nobody knows what Redis did, and explained otherwise.
func Judged(err error) error {
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

// hasty is the key of what [Hasty] adds to a context.
type hasty struct{}

// Hasty returns ctx for calls that do not wait until a slot has moved: after some tries the error is that of [script.Parted].
func Hasty(ctx context.Context) context.Context { return context.WithValue(ctx, hasty{}, true) }

// Run sends a call as [pipeline.Batcher.Do] does, and again while Redis says that it is not able to run it just now: a
// few times, or until the call is over while the keys move to another node. A call without a deadline or a limit ends
// with the client's call timeout.
func (c *Core) Run(ctx context.Context, call func() *script.Call, ask pipeline.SendOptions) (*script.Call, error) {
	if ask.Limit == 0 {
		ask.Limit = c.Limit(ctx)
	}
	until := c.until(ask.Limit)
	for try := 0; ; try++ {
		sent := call()
		err := c.Batch.Do(ctx, sent, ask)
		passing := script.Passing(err) && !script.Refused(err) && !script.Crowded(err)
		if !passing || try >= runTries && (!script.Parted(err) || ctx.Value(hasty{}) != nil) || c.Closed() {
			return sent, err
		}
		again := c.PauseUntil(ctx, try, until)
		switch {
		case ctx.Err() != nil:
			return sent, Conclude(ctx, script.NotDone, mark(script.ErrNotSent, err))
		case !again:
			return sent, err
		case ask.Limit > 0:
			ask.Limit = max(until-c.Clock.Now(), time.Millisecond)
		}
	}
}

// until returns when a limit that begins now is over on the client's clock; 0 is none.
func (c *Core) until(limit time.Duration) time.Duration {
	if limit == 0 {
		return math.MaxInt64
	}
	return c.Clock.Now() + limit
}

// Query runs a script, which may run twice, until it gets an answer, ctx is done, or the client's call timeout is over
// for a ctx without a deadline. Its error is that of [Conclude].
//
// The result says whether an earlier try got no answer, and may have run.
func (c *Core) Query(ctx context.Context, call func() *script.Call) (sent *script.Call, repeated bool, err error) {
	if err := c.Ready(ctx); err != nil {
		return nil, false, err
	}
	sent, repeated, err = c.query(ctx, call)
	outcome := script.Judge(err)
	if repeated {
		outcome = script.Unknown
	}
	return sent, repeated, Conclude(ctx, outcome, err)
}

// Read runs a query that changes nothing as Query does. One that the client's end has interrupted is ErrClosed.
func (c *Core) Read(ctx context.Context, call func() *script.Call) (*script.Call, error) {
	if err := c.Ready(ctx); err != nil {
		return nil, err
	}
	sent, _, err := c.query(ctx, call)
	return sent, c.Interrupted(ctx, Conclude(ctx, script.NotDone, err))
}

func (c *Core) query(ctx context.Context, call func() *script.Call) (sent *script.Call, repeated bool, err error) {
	limit := c.Limit(ctx)
	until := c.until(limit)
	for try := 0; ; try++ {
		ask := pipeline.SendOptions{}
		if limit > 0 {
			ask.Limit = max(until-c.Clock.Now(), time.Millisecond)
		}
		sent, err := c.Run(ctx, call, ask)
		if !script.Silent(err) || ctx.Err() != nil || c.Closed() || c.Clock.Now() >= until {
			return sent, repeated, err
		}
		repeated = repeated || script.Judge(err) == script.Unknown
		if Sleep(ctx, min(Backoff(try), until-c.Clock.Now())) != nil {
			return sent, repeated, err
		}
	}
}

// Interrupted returns the error of a query as ErrClosed if the client's end has interrupted it.
func (c *Core) Interrupted(ctx context.Context, err error) error {
	unanswered := errors.Is(err, errs.ErrUnknown) || errors.Is(err, errs.ErrUnavailable) || errors.Is(err, script.ErrNotSent)
	if c.Closed() && unanswered && ctx.Err() == nil {
		return errs.ErrClosed
	}
	return err
}

// Once runs a script that must not run twice, for the client's call timeout if ctx has no deadline. Its error is that of
// [Conclude].
func (c *Core) Once(ctx context.Context, call func() *script.Call) (*script.Call, error) {
	return c.OnceOrLate(ctx, call, nil)
}

// OnceOrLate is Once, and late, if it is not nil, is notified of a call that finished after it was given up.
func (c *Core) OnceOrLate(ctx context.Context, call func() *script.Call, late pipeline.Listener) (*script.Call, error) {
	if err := c.Ready(ctx); err != nil {
		return nil, err
	}
	sent, err := c.Run(ctx, call, pipeline.SendOptions{Late: late})
	return sent, Conclude(ctx, script.Judge(err), err)
}

// Step runs a part of a call that only looks, and returns its error as the call's caller gets it. It ends with ctx and with the client;
// what fn does then nobody but Close waits for.
func Step[T any](ctx context.Context, c *Core, fn func(ctx context.Context) (T, error)) (T, error) {
	if err := c.Ready(ctx); err != nil {
		var none T
		return none, err
	}
	ctx, cancel := c.Bound(ctx)
	defer cancel()
	value, err := heed(ctx, c, func() (T, error) { return fn(ctx) })
	return value, Conclude(ctx, script.NotDone, err)
}

// heed returns what fn does, [script.ErrNoAnswer] if ctx ends first, and [errs.ErrClosed] if the client does. go-redis heeds no cancellation
// while it waits for a reply, and may look up a cluster's nodes for longer than ctx; its own timeouts end that.
func heed[T any](ctx context.Context, c *Core, fn func() (T, error)) (value T, err error) {
	if !c.Admit() {
		return value, errs.ErrClosed
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() { // Close waits for it, for a while
		defer c.End()
		value, err := fn()
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		if a.err != nil && c.Closed() {
			return value, errs.ErrClosed
		}
		return a.value, a.err
	case <-ctx.Done():
		return value, script.ErrNoAnswer
	case <-c.closing:
		return value, errs.ErrClosed
	}
}
