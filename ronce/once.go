package ronce

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/once"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	// MaxKey is the longest key, in bytes.
	MaxKey = core.MaxKey
	// MaxValue is the longest encoded value, in bytes.
	MaxValue = once.MaxValue
)

// manager is a client's state for its objects.
type manager struct{ claims *once.Claims }

func newManager(c *core.Core) *manager { return &manager{once.New(c, kind())} }

// Once runs a function once for each key, and keeps its value of type T for all. It has no state: any number of goroutines may use
// one, and those of the same name in all clients share their keys. It is safe for concurrent use.
type Once[T any] struct {
	core   *core.Core
	claims *once.Claims
	name   string // with the client's prefix
	opts   options
	err    error // of the name or the options
}

// New returns the object with this name, as redlatch.GetOnce does. client is a *redlatch.Client. It does no I/O and
// keeps nothing alive; bad input is the error of every method.
func New[T any](client core.Client, name string, opts ...Option) *Once[T] {
	c := core.Of(client)
	o := &Once[T]{core: c, claims: core.Manager(c, newManager).claims, name: c.Prefix + name}
	o.opts, o.err = collect(opts)
	o.err = cmp.Or(core.CheckUserName(name, o.name), o.err)
	return o
}

// Name returns the object's name as it was given to the client.
func (o *Once[T]) Name() string { return o.core.UserName(o.name) }

// Do returns the value of a key: the one that is kept, or that of fn, which is kept then. While another caller runs its fn for the key,
// in any process, Do waits for its value. If Do returns a value, shared is false only if its own fn made it. The key is 1 to 512 bytes
// long.
//
// It blocks until there is a value, ctx is done, the client closes (redlatch.ErrClosed), or an error occurs that will not pass, such
// as a missing permission; on the first attempt also a refused connection. It retries other connection errors, and what Redis cannot
// do at the moment, for one lease in a row.
//
// If fn fails, Do returns its error as it is; the key is free again, and one of those who wait runs its own fn, unless the failure is
// kept ([WithErrors]). If fn panics, or ends its goroutine, the key is free again, and the panic goes on. The context of fn descends from
// ctx. It also ends when the claim is lost, with the cause [ErrLost], and when the client closes, with the cause redlatch.ErrClosed.
// Under it, Do of the same key is redlatch.ErrInvalid. The claim is renewed while fn runs; if the process dies it ends with the lease of
// the client, 30 s by default.
//
// After an error the value is the zero value. Of a caller whose fn returned no error:
//
//   - [ErrLost]: the claim was lost, and the value is not kept. If fn failed as well, both errors are joined.
//   - redlatch.ErrUnknown: Redis did not answer for 3 s, the call timeout, the rest of the lease, or until a deadline of ctx that is
//     still ahead; cancelling ctx does not end that wait. Or its answer was lost, and the claim was gone when Do asked again. The value
//     may be kept, or may be later.
//   - redlatch.ErrInvalid: it cannot be encoded, or has more than 1 MiB then. The key is free again.
//   - redlatch.ErrUnwritable, or another error of Redis: the value is not kept, and the key is free again.
//
// A kept value that cannot be decoded is [codec.ErrDecode], until Forget or the end of its time. redlatch.ErrWrongType says that
// another program uses the Redis key.
//
// A kept value costs one round trip, a run two, and a renewal each third of the lease. A call that waits costs one. All that wait in one
// client cost one or two more together when the run ends, and about one a second until then.
func (o *Once[T]) Do(ctx context.Context, key string, fn func(context.Context) (T, error)) (value T, shared bool, err error) {
	name := o.key(key)
	if fn == nil {
		return value, false, o.wrap("do", fmt.Errorf("%w: fn is nil", errs.ErrInvalid))
	}
	if ctx != nil && name.HoldOf(ctx) != nil {
		return value, false, o.wrap("do", fmt.Errorf("%w: fn calls Do with its own key, and would wait for itself", errs.ErrInvalid))
	}
	claim, err := name.Acquire(ctx, &locker.Options{}, locker.Forever)
	var kept *once.Result
	switch {
	case errors.As(err, &kept):
		value, err = o.decode(*kept)
		return value, true, o.wrap("do", err)
	case err != nil:
		return value, false, o.wrap("do", err)
	}
	value, err = o.run(ctx, name.Key(), claim, fn)
	return value, false, err
}

// run calls fn, and ends the claim.
func (o *Once[T]) run(ctx context.Context, key string, claim *lease.Hold, fn func(context.Context) (T, error)) (value T, err error) {
	returned := false
	defer func() {
		if !returned {
			o.claims.LogUnreleased(claim, o.claims.Ended(claim, claim.Unlock(ctx)))
		}
	}()
	made, failure := fn(claim.Context())
	returned = true

	r, err := o.result(made, failure, claim)
	if r == nil {
		released := o.claims.Ended(claim, claim.Unlock(ctx))
		if errors.Is(released, ErrLost) {
			return value, errors.Join(err, o.wrap("do", released))
		}
		o.claims.LogUnreleased(claim, released)
		return value, err
	}
	owner := claim.Owner()
	kept := o.claims.Ended(claim, claim.UnlockBy(ctx, func() *script.Call { return keep(key, owner, *r) }))
	switch {
	case failure == nil && kept == nil:
		return made, nil
	case failure == nil || errors.Is(kept, ErrLost):
		return value, errors.Join(failure, o.wrap("do", kept))
	}
	o.claims.LogUnreleased(claim, kept)
	return value, failure
}

// result returns what is to be kept of a run, nil for nothing, and its error.
func (o *Once[T]) result(value T, failure error, claim *lease.Hold) (*result, error) {
	switch {
	case failure != nil && o.opts.errors != nil && claim.Context().Err() == nil:
		return &result{once.Failed(failure), *o.opts.errors}, failure
	case failure != nil:
		return nil, failure
	}
	data, err := codec.Marshal(o.opts.codec, value)
	if err == nil {
		err = once.CheckSize(data)
	}
	if err != nil {
		return nil, o.wrap("do", fmt.Errorf("%w: %w", errs.ErrInvalid, err))
	}
	return &result{once.Result{Kind: once.Value, Data: string(data)}, o.opts.ttl}, nil
}

func (o *Once[T]) decode(r once.Result) (value T, err error) {
	if r.Kind == once.Failure {
		return value, &Error{Text: r.Data}
	}
	if err := codec.Unmarshal(o.opts.codec, []byte(r.Data), &value); err != nil {
		var none T
		return none, err
	}
	return value, nil
}

// Peek returns the value that is kept for a key, and reports whether a result is kept. It does not wait for a run. A failure that is
// kept is returned as its [*Error], and ok is true; so it is for a value that cannot be decoded, with [codec.ErrDecode].
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (see redlatch.WithCallTimeout), and then
// returns redlatch.ErrUnavailable. It costs one round trip, which concurrent calls share.
func (o *Once[T]) Peek(ctx context.Context, key string) (value T, ok bool, err error) {
	name := o.key(key)
	if err := name.Check(); err != nil {
		return value, false, o.wrap("peek", err)
	}
	call, err := o.core.Read(ctx, func() *script.Call { return peek(name.Key()) })
	if err != nil {
		return value, false, o.wrap("peek", err)
	}
	r, ok, err := peeked(call)
	if err == nil && ok {
		value, err = o.decode(r)
	}
	return value, ok, o.wrap("peek", err)
}

// Forget deletes what is kept for a key: the next caller of Do runs. It does not stop a run that has begun, whose caller gets its
// value; but that is not kept, and those who wait for it run in turn. It returns nil if there was nothing to forget.
//
// It waits for Redis until ctx is done, at most about 3 s. After redlatch.ErrUnknown the key may be forgotten: the call is not repeated,
// since that could delete the value of a later run. It costs one round trip.
func (o *Once[T]) Forget(ctx context.Context, key string) error {
	name := o.key(key)
	err := name.Check()
	if err == nil {
		_, err = o.core.Once(ctx, func() *script.Call { return forget(name.Key()) })
	}
	return o.wrap("forget", err)
}

// key returns the claim of a key. Its methods return what is wrong with the object or the key.
func (o *Once[T]) key(key string) *locker.Name {
	err := o.err
	if err == nil {
		err = core.CheckKey(key)
	}
	name := o.claims.Key(names.KeyOf(o.name, key), err)
	return &name
}

func (o *Once[T]) wrap(verb string, err error) error { return errs.Wrap("ronce", verb, o.Name(), err) }
