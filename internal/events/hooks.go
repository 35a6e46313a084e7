package events

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/pipeline"
)

// Hooks are told of what happens. Each may be nil. Package redlatch documents them.
type Hooks struct {
	Renewed     func(renewed, lost int, err error)
	Woken       func(kind, name string)
	Reconnected func()
	FailedOver  func(node string)

	AcquireStart func(ctx context.Context, e AcquireStart) context.Context
	AcquireEnd   func(ctx context.Context, e AcquireEnd)
	HoldEnd      func(ctx context.Context, e HoldEnd)
	OfferStart   func(ctx context.Context, e OfferStart) context.Context
	OfferEnd     func(ctx context.Context, e OfferEnd)
	HandleStart  func(ctx context.Context, e HandleStart) context.Context
	HandleEnd    func(ctx context.Context, e HandleEnd)
	DeadLetter   func(ctx context.Context, e DeadLetter)
	ScriptStart  func(ctx context.Context, e ScriptStart) context.Context
	ScriptEnd    func(ctx context.Context, e ScriptEnd)
}

// AcquireStart is a call that begins to acquire.
type AcquireStart struct{ Kind, Name string }

// AcquireEnd is a call that has acquired, or has not.
type AcquireEnd struct {
	Kind, Name, Owner string
	Waited            time.Duration
	Asked             int
	Err               error
}

// HoldEnd is a hold that was released, or lost.
type HoldEnd struct {
	Kind, Name, Owner string
	Held              time.Duration
	Err               error
}

// OfferStart is a call that begins to offer messages.
type OfferStart struct {
	Kind, Name string
	Messages   int
	Headers    map[string]string
}

// OfferEnd is a call that has offered messages, or has not.
type OfferEnd struct {
	Kind, Name string
	Messages   int
	IDs        []string
	Took       time.Duration
	Err        error
}

// HandleStart is a handler that begins.
type HandleStart struct {
	Kind, Name, ID string
	Task           string
	Attempt        int
	Late           time.Duration
	Headers        map[string]string
}

// HandleEnd is a handler that has returned.
type HandleEnd struct {
	Kind, Name, ID string
	Task           string
	Attempt        int
	Took           time.Duration
	Err            error
	Snoozed        bool
}

// DeadLetter is a message that has become one.
type DeadLetter struct {
	Kind, Name, ID string
	Task           string
	Attempt        int
	Cause          string
}

// ScriptStart is a script that is about to be sent.
type ScriptStart struct{ Name, Node string }

// ScriptEnd is a script that was answered, or was not.
type ScriptEnd struct {
	Name, Node string
	Took       time.Duration
	Err        error
}

// Acquisition is a call that acquires, as it is observed.
type Acquisition struct {
	events     *Events
	kind, name string
	began      time.Duration
}

// ObservesAcquire reports whether somebody observes calls that acquire.
func (e *Events) ObservesAcquire() bool {
	return e.Hooks.AcquireStart != nil || e.Hooks.AcquireEnd != nil
}

// BeginAcquire says that a call begins to acquire, and returns its context.
func (e *Events) BeginAcquire(ctx context.Context, kind, name string) (context.Context, Acquisition) {
	a := Acquisition{events: e, kind: kind, name: name, began: e.Clock.Now()}
	if f := e.Hooks.AcquireStart; f != nil {
		ctx = descendant(ctx, f(ctx, AcquireStart{Kind: kind, Name: name}))
	}
	return ctx, a
}

// End says what came of the call, and how often it asked Redis.
func (a Acquisition) End(ctx context.Context, owner string, asked int, err error) {
	if f := a.events.Hooks.AcquireEnd; f != nil {
		f(ctx, AcquireEnd{Kind: a.kind, Name: a.name, Owner: owner, Waited: a.events.Clock.Now() - a.began, Asked: asked, Err: err})
	}
}

// descendant returns the context of an observer; the one before if that returned none.
func descendant(before, ctx context.Context) context.Context {
	if ctx == nil {
		return before
	}
	return ctx
}

// BeginOffer says that a call begins to offer messages, and returns its context and the messages' headers.
func (e *Events) BeginOffer(ctx context.Context, kind, name string, messages int) (context.Context, map[string]string) {
	headers := map[string]string{}
	if f := e.Hooks.OfferStart; f != nil {
		ctx = descendant(ctx, f(ctx, OfferStart{Kind: kind, Name: name, Messages: messages, Headers: headers}))
	}
	return ctx, headers
}

// BeginHandle says that a handler begins, and returns its context.
func (e *Events) BeginHandle(ctx context.Context, h HandleStart) context.Context {
	if f := e.Hooks.HandleStart; f != nil {
		return descendant(ctx, f(ctx, h))
	}
	return ctx
}

// Scripts returns the observer of scripts; nil for none.
func (h *Hooks) Scripts() *pipeline.Observer {
	start, end := h.ScriptStart, h.ScriptEnd
	if start == nil && end == nil {
		return nil
	}
	return &pipeline.Observer{
		Start: func(ctx context.Context, script, node string) context.Context {
			if start == nil {
				return ctx
			}
			return descendant(ctx, start(ctx, ScriptStart{Name: script, Node: node}))
		},
		End: func(ctx context.Context, script, node string, took time.Duration, err error) {
			if end != nil {
				if err == redis.Nil { //nolint:errorlint // a reply as any other; a wrapped one is a Sentinel's
					err = nil
				}
				end(ctx, ScriptEnd{Name: script, Node: node, Took: took, Err: err})
			}
		},
	}
}

// HoldEnded says that a hold has ended: with the error by which it was lost, or nil if it was released.
func (e *Events) HoldEnded(kind, name, owner string, held time.Duration, err error) {
	if f := e.Hooks.HoldEnd; f != nil {
		f(context.Background(), HoldEnd{kind, name, owner, held, err}) //nolint:forbidigo // nobody's
	}
}

// Woken reports a message that woke waiters.
func (e *Events) Woken(kind, name string) {
	if f := e.Hooks.Woken; f != nil {
		f(kind, name)
	}
}

// And returns hooks of which each calls those of both. An end has the context of both starts.
func (h Hooks) And(other Hooks) Hooks {
	return Hooks{
		Renewed: join3(h.Renewed, other.Renewed), Woken: join2(h.Woken, other.Woken),
		Reconnected: join0(h.Reconnected, other.Reconnected), FailedOver: join1(h.FailedOver, other.FailedOver),
		AcquireStart: inTurn(h.AcquireStart, other.AcquireStart), AcquireEnd: join2(h.AcquireEnd, other.AcquireEnd),
		HoldEnd:    join2(h.HoldEnd, other.HoldEnd),
		OfferStart: inTurn(h.OfferStart, other.OfferStart), OfferEnd: join2(h.OfferEnd, other.OfferEnd),
		HandleStart: inTurn(h.HandleStart, other.HandleStart), HandleEnd: join2(h.HandleEnd, other.HandleEnd),
		DeadLetter:  join2(h.DeadLetter, other.DeadLetter),
		ScriptStart: inTurn(h.ScriptStart, other.ScriptStart), ScriptEnd: join2(h.ScriptEnd, other.ScriptEnd),
	}
}

func inTurn[E any](f, g func(context.Context, E) context.Context) func(context.Context, E) context.Context {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(ctx context.Context, e E) context.Context {
		ctx = descendant(ctx, f(ctx, e))
		return descendant(ctx, g(ctx, e))
	}
}

// join0 to join3 return a function of as many arguments that calls two functions, of which either may be nil.
func join0(f, g func()) func() {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func() { f(); g() }
}

func join1[A any](f, g func(A)) func(A) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(a A) { f(a); g(a) }
}

func join2[A, B any](f, g func(A, B)) func(A, B) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(a A, b B) { f(a, b); g(a, b) }
}

func join3[A, B, C any](f, g func(A, B, C)) func(A, B, C) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(a A, b B, c C) { f(a, b, c); g(a, b, c) }
}
