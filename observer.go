package redlatch

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/events"
)

// WithObserver calls the functions of o for metrics and traces. With several observers each is told, in the order of the
// options. Defaults to none.
func WithObserver(o Observer) Option {
	return setting(func(c *core.Config) { c.Hooks = c.Hooks.And(o.hooks()) })
}

// WithHooks has go-redis call hooks for what the client sends: on a single server, where it does not call those of the caller's
// *redis.Client, everything but subscriptions; on a cluster what goes to one node, as calls that wait for confirmations (see
// [WithReplicas]), since go-redis calls the hooks of a *redis.ClusterClient for the rest. A hook of a dial is not called. A nil
// hook is [ErrInvalid]. Defaults to none.
func WithHooks(hooks ...redis.Hook) Option {
	return setting(func(c *core.Config) { c.RedisHooks = append(c.RedisHooks, hooks...) })
}

// Observer has functions that a client calls when something happens; each may be nil, and costs nothing then. A call holds
// up the goroutine on which it happened, so the functions must return at once, and must not panic. The kind is lock,
// fair_lock, rw_lock, multi_lock, semaphore, permits (of a semaphore of leased permits), latch, barrier, queue, executor, scheduler, election, once or
// limiter; the name is that of the object, without the client's prefix.
//
// Of two functions that end in Start and End, Start returns a context, derived from its own or the same. The work and End
// get it. Of several observers each is given the context of the one
// before, and End has that of the last.
type Observer struct {
	// Renewed reports one renewal batch of holds, leased permits or messages: how many were renewed and how many were
	// lost. After an error both are 0.
	Renewed func(renewed, lost int, err error)
	// Woken reports a message that woke waiters: a lock or permits were released, a latch was opened or set, or a
	// message of a queue is due.
	Woken func(kind, name string)
	// Reconnected reports that a lost subscription connection was replaced. Every waiter that it serves asks Redis again;
	// a cluster has one connection for each master.
	Reconnected func()
	// FailedOver reports that the server at an address has taken its master's place, or has restarted: it may lack what
	// was granted last. Every hold of the client is verified at once: HoldEnd reports those that are gone, and Renewed how many
	// are confirmed, those with a fixed lease left out. A client learns of it at its next renewal, if its Redis user may
	// run INFO. The address is that of the go-redis client, of a cluster that of the master.
	FailedOver func(node string)

	// AcquireStart reports a call that begins to acquire a lock, a leased permit, permits of a semaphore, or tokens of a
	// rate limiter, and AcquireEnd its end, also without success. A nested level is not reported, nor is a lock that is granted
	// after its call gave up; HoldEnd may report that lock. A multi-lock is reported as such, and those of its locks too for
	// which it waits.
	AcquireStart func(ctx context.Context, e AcquireStartEvent) context.Context
	AcquireEnd   func(ctx context.Context, e AcquireEndEvent)
	// HoldEnd reports that the last level of a hold was unlocked, that a leased permit was released, also if Redis did not
	// answer, which ScriptEnd tells, or that either ended although nobody released it. Of a multi-lock or RedLock each part is
	// reported. Messages of a queue and permits of a counting semaphore, which belong to nobody, are not. Its context is empty.
	HoldEnd func(ctx context.Context, e HoldEndEvent)
	// OfferStart reports a call that begins to offer messages to a queue, and OfferEnd its end. What OfferStart puts into the
	// headers, up to 4 KiB, travels with each of the messages, such as the context of a trace.
	OfferStart func(ctx context.Context, e OfferStartEvent) context.Context
	OfferEnd   func(ctx context.Context, e OfferEndEvent)
	// HandleStart reports a handler that begins to work on a message, and HandleEnd its end. The handler and the message have
	// the context that HandleStart returns. A scheduler looks at a tick in a handler of its own, which also ends without a run.
	HandleStart func(ctx context.Context, e HandleStartEvent) context.Context
	HandleEnd   func(ctx context.Context, e HandleEndEvent)
	// DeadLetter reports a message that became a dead letter, to the client that found it so. Its context is empty.
	DeadLetter func(ctx context.Context, e DeadLetterEvent)
	// ScriptStart reports a script that is sent to Redis, or a command of a topic or of the grid, and ScriptEnd that it was answered, or was not. The context of a
	// script that shares a round trip with others is not that of its call.
	ScriptStart func(ctx context.Context, e ScriptStartEvent) context.Context
	ScriptEnd   func(ctx context.Context, e ScriptEndEvent)
}

// AcquireStartEvent is a call that begins to acquire.
type AcquireStartEvent struct{ Kind, Name string }

// AcquireEndEvent is a call that has acquired, or has not.
type AcquireEndEvent struct {
	// Owner is the owner id of the hold; "" without one, and for tokens and permits of a counting semaphore.
	Kind, Name, Owner string
	// Waited is how long the call took, and Asked how often it asked Redis.
	Waited time.Duration
	Asked  int
	// Err is the error of the call, among them [ErrUnavailable] and that of the context; nil if it has acquired. It is
	// rlock.ErrNotAcquired if somebody else has it, or the tokens are not there.
	Err error
}

// HoldEndEvent is a hold, or a leased permit, that was released or lost.
type HoldEndEvent struct {
	Kind, Name, Owner string
	// Held is how long it was held. Of a lock that was passed on from one goroutine to another within the client it counts from
	// when the first of them acquired it.
	Held time.Duration
	// Err is nil if it was released, and otherwise why it was lost.
	Err error
}

// OfferStartEvent is a call that begins to offer messages.
type OfferStartEvent struct {
	// Kind and Name are those of the queue, the executor or the scheduler, and Messages is the number of them.
	Kind, Name string
	Messages   int
	// Headers are for OfferStart to fill.
	Headers map[string]string
}

// OfferEndEvent is a call that has offered messages, or has not.
type OfferEndEvent struct {
	Kind, Name string
	Messages   int
	// IDs are those of the messages, also after an error.
	IDs  []string
	Took time.Duration
	Err  error
}

// HandleStartEvent is a handler that begins to work on a message.
type HandleStartEvent struct {
	// Kind and Name are those of the queue, the executor or the scheduler, and ID is that of the message.
	Kind, Name, ID string
	// Task is the name of an executor's task; "" of a message that is none.
	Task    string
	Attempt int
	// Late is for about how long the message has been due. The first attempt at a tick of a scheduler counts from when
	// that was due at first, even if it has waited or was passed on.
	Late time.Duration
	// Headers are those that the offer has added; nil for none.
	Headers map[string]string
}

// HandleEndEvent is a handler that has returned.
type HandleEndEvent struct {
	Kind, Name, ID string
	Task           string
	Attempt        int
	Took           time.Duration
	// Err is the handler's error, also of one that panicked, took too long or ended its goroutine.
	Err error
	// Snoozed says that the handler has put its message off, see rdelayedqueue.Snooze. Err is nil then, unless something went wrong beside.
	Snoozed bool
}

// DeadLetterEvent is a message that became a dead letter.
type DeadLetterEvent struct {
	// Kind and Name are those of the queue, the executor or the scheduler, and ID is that of the message.
	Kind, Name, ID string
	// Task is the name of an executor's task; "" of a message that is none.
	Task    string
	Attempt int
	// Cause is the text of the last error, which may contain data of the message.
	Cause string
}

// ScriptStartEvent is a script that is sent.
type ScriptStartEvent struct {
	// Name is that of the package and the script, such as rlock.acquire, or of the command, such as publish.
	Name string
	// Node is the address of the server; "" if a cluster's layout is not known yet.
	Node string
}

// ScriptEndEvent is a script that was answered, or was not.
type ScriptEndEvent struct {
	Name, Node string
	Took       time.Duration
	Err        error
}

// hooks returns the observer as the inside of the library calls it.
func (o Observer) hooks() events.Hooks {
	return events.Hooks{
		Renewed: o.Renewed, Woken: o.Woken, Reconnected: o.Reconnected, FailedOver: o.FailedOver,
		AcquireStart: start(o.AcquireStart, func(e events.AcquireStart) AcquireStartEvent { return AcquireStartEvent(e) }),
		AcquireEnd:   end(o.AcquireEnd, func(e events.AcquireEnd) AcquireEndEvent { return AcquireEndEvent(e) }),
		HoldEnd:      end(o.HoldEnd, func(e events.HoldEnd) HoldEndEvent { return HoldEndEvent(e) }),
		OfferStart:   start(o.OfferStart, func(e events.OfferStart) OfferStartEvent { return OfferStartEvent(e) }),
		OfferEnd:     end(o.OfferEnd, func(e events.OfferEnd) OfferEndEvent { return OfferEndEvent(e) }),
		HandleStart:  start(o.HandleStart, func(e events.HandleStart) HandleStartEvent { return HandleStartEvent(e) }),
		HandleEnd:    end(o.HandleEnd, func(e events.HandleEnd) HandleEndEvent { return HandleEndEvent(e) }),
		DeadLetter:   end(o.DeadLetter, func(e events.DeadLetter) DeadLetterEvent { return DeadLetterEvent(e) }),
		ScriptStart:  start(o.ScriptStart, func(e events.ScriptStart) ScriptStartEvent { return ScriptStartEvent(e) }),
		ScriptEnd:    end(o.ScriptEnd, func(e events.ScriptEnd) ScriptEndEvent { return ScriptEndEvent(e) }),
	}
}

func start[E, C any](f func(context.Context, E) context.Context, event func(C) E) func(context.Context, C) context.Context {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e C) context.Context { return f(ctx, event(e)) }
}

func end[E, C any](f func(context.Context, E), event func(C) E) func(context.Context, C) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e C) { f(ctx, event(e)) }
}
