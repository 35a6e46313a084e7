// Package grid is what the data objects of the grid share: checks before I/O, codecs, reads that are repeated, changes that
// are sent once, batches, iteration, the fence. An object is doc comments and about one line a method on it.
package grid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	maxKey   = 64 << 10 // bytes of a map's key
	maxValue = 16 << 20 // bytes of a value, unless an option says otherwise
	mostMax  = 512 << 20
	maxNear  = 1 << 24 // entries in the client
)

// Kinds of objects, as TYPE has them.
const (
	String = "string"
	Hash   = "hash"
	Set    = "set"
	ZSet   = "zset"
)

// Options are the settings of an object.
type Options struct {
	codec, keys codec.Codec
	maxValue    int
	near        Near
}

// Near is how an object keeps entries in the client.
type Near struct {
	On       bool
	Entries  int // at the most; 0: changes are published, and nothing is kept
	MaxStale time.Duration
	Shared   bool // all callers get the same value
}

// Option is a setting of an object. A package has a type of its own, made of this one.
type Option struct{ set func(*Options) }

// WithCodec sets the encoding of values.
func WithCodec(c codec.Codec) Option { return Option{func(o *Options) { o.codec = c }} }

// WithKeyCodec sets the encoding of a map's keys.
func WithKeyCodec(c codec.Codec) Option { return Option{func(o *Options) { o.keys = c }} }

// WithMaxValue sets how many bytes an encoded value may have.
func WithMaxValue(bytes int) Option { return Option{func(o *Options) { o.maxValue = bytes }} }

// WithNear keeps up to so many entries in the client.
func WithNear(entries int) Option {
	return Option{func(o *Options) { o.near.On, o.near.Entries = true, entries }}
}

// WithMaxStale sets for how long an entry in the client is returned.
func WithMaxStale(d time.Duration) Option { return Option{func(o *Options) { o.near.MaxStale = d }} }

// WithSharedValues has all callers get the same value of an entry in the client.
func WithSharedValues() Option { return Option{func(o *Options) { o.near.Shared = true }} }

func (o *Options) validate() error {
	switch {
	case core.IsNil(o.codec), core.IsNil(o.keys):
		return fmt.Errorf("%w: the codec is nil", errs.ErrInvalid)
	case o.maxValue < 1 || o.maxValue > mostMax:
		return fmt.Errorf("%w: the limit of a value %d is not between 1 and %d bytes", errs.ErrInvalid, o.maxValue, mostMax)
	case o.near.Entries < 0 || o.near.Entries > maxNear:
		return fmt.Errorf("%w: %d near entries are not between 0 and %d", errs.ErrInvalid, o.near.Entries, maxNear)
	}
	return errs.Between("max stale", o.near.MaxStale, time.Millisecond, 24*time.Hour)
}

// Object is an object at one key. It has no state and is safe for concurrent use.
type Object struct {
	core  *core.Core
	title string // of its package
	kind  string
	name  string // with the client's prefix: the Redis key
	key   any    // the same, boxed once
	opts  Options
	err   error // of every method
}

// New returns an object of a package, kind and name. It does no I/O.
func New[O ~struct{ set func(*Options) }](client core.Client, title, kind, name string, opts []O) *Object {
	c := core.Of(client)
	o := &Object{core: c, title: title, kind: kind, name: c.Prefix + name, opts: Options{codec.Text{}, codec.Text{}, maxValue, Near{MaxStale: 30 * time.Second}}}
	o.key, o.err = o.name, core.CheckUserName(name, o.name)
	for _, opt := range opts {
		set := Option(opt).set
		if set == nil {
			o.err = errs.ErrNilOption
			return o
		}
		set(&o.opts)
	}
	if o.err == nil {
		o.err = o.opts.validate()
	}
	return o
}

// Name returns the name as it was given to New.
func (o *Object) Name() string { return o.core.UserName(o.name) }

// Key returns the Redis key.
func (o *Object) Key() string { return o.name }

// Near returns how the object keeps entries in the client.
func (o *Object) Near() Near { return o.opts.near }

// Err returns what is wrong with the name or the options.
func (o *Object) Err() error { return o.err }

// Ready returns what is wrong with a call before any I/O.
func (o *Object) Ready(ctx context.Context) error {
	if o.err != nil {
		return o.err
	}
	return o.core.Ready(ctx)
}

// Wrap says what was being done; a nil error stays nil.
func (o *Object) Wrap(verb string, err error) error { return errs.Wrap(o.title, verb, o.Name(), err) }

// Read sends a command or a script that changes nothing, with the object's key before the arguments, until there is an answer,
// ctx is done, or the call timeout is over for a ctx without a deadline. An argument that is an error is that of the reply,
// and nothing is sent.
func (o *Object) Read(ctx context.Context, s *script.Script, args ...any) *script.Row {
	return o.send(ctx, o.core.Read, s, nil, args)
}

// Change sends a command or a script once, as Read does otherwise.
func (o *Object) Change(ctx context.Context, s *script.Script, args ...any) *script.Row {
	return o.send(ctx, o.core.Once, s, nil, args)
}

// sender is the core's Read or Once.
type sender func(ctx context.Context, call func() *script.Call) (*script.Call, error)

func (o *Object) send(ctx context.Context, send sender, s *script.Script, second []any, args []any) *script.Row {
	if err := o.check(args); err != nil {
		return script.NoRow(err)
	}
	all := append(append(append(make([]any, 0, 1+len(second)+len(args)), o.key), second...), args...)
	call, err := send(ctx, func() *script.Call { return s.Call(1+len(second), all...) })
	switch {
	case err == nil, err == redis.Nil: //nolint:errorlint // a reply that is nil; a wrapped one is a Sentinel's
		return call.Row()
	case redis.HasErrorPrefix(err, "FENCED"):
		err = fmt.Errorf("%w: %w", errs.ErrFenced, err)
	case script.NoNumber(err):
		err = fmt.Errorf("%w: %w", codec.ErrDecode, err)
	case script.NoCommand(err):
		err = o.unsupported(err)
	}
	return script.NoRow(err)
}

// unsupported returns the error for a server that does not know a command, and what has it.
func (o *Object) unsupported(err error) error {
	var reply redis.Error
	if o.kind != Hash || !errors.As(err, &reply) {
		return fmt.Errorf("%w: %w", errs.ErrUnsupported, err)
	}
	return fmt.Errorf("%w: times to live of entries need Redis 7.4 or Valkey 9: %w", errs.ErrUnsupported, reply)
}

// check returns what is wrong with the object, or the first argument that is an error.
func (o *Object) check(args []any) error {
	if o.err != nil {
		return o.err
	}
	for _, arg := range args {
		if err, bad := arg.(error); bad {
			return err
		}
	}
	return nil
}

// Int reads a reply that is a number.
func (o *Object) Int(verb string, row *script.Row) (int, error) {
	n := row.Int()
	return int(n), o.Wrap(verb, row.Err())
}

// OK reads a reply that is not 0 if something was done, or is there.
func (o *Object) OK(verb string, row *script.Row) (bool, error) {
	n := row.Int()
	return n > 0, o.Wrap(verb, row.Err())
}

// Delete deletes the object, and reports whether it was there.
func (o *Object) Delete(ctx context.Context) (bool, error) {
	return o.OK("delete", o.SendDelete(ctx))
}

// SendDelete returns the reply to Delete. If the object was there, the script publishes a message: a channel and a payload.
func (o *Object) SendDelete(ctx context.Context, message ...any) *script.Row {
	return o.Change(ctx, deleteScript, append([]any{o.kind}, message...)...)
}

// Expire sets the time to live of the object, and reports whether it is there.
func (o *Object) Expire(ctx context.Context, d time.Duration) (bool, error) {
	return o.OK("expire", o.SendExpire(ctx, d))
}

// SendExpire returns the reply to Expire. If the object ends earlier by it than without it, the script publishes a message, as
// that of SendDelete does, and the reply is 2 then.
func (o *Object) SendExpire(ctx context.Context, d time.Duration, message ...any) *script.Row {
	return o.Change(ctx, expireScript, append([]any{o.kind, TTL(d)}, message...)...)
}

// Persist removes the time to live of the object, and reports whether it had one.
func (o *Object) Persist(ctx context.Context) (bool, error) {
	return o.OK("persist", o.Change(ctx, expireScript, o.kind, 0))
}

// TTL returns the time to live of the object: 0 if it is not there, negative if it has none.
func (o *Object) TTL(ctx context.Context) (time.Duration, error) {
	row := o.Read(ctx, pttl)
	d := Left(row.Int())
	return d, o.Wrap("ttl", row.Err())
}

// Left returns what is left of a time, as PTTL and its like have it: 0 for what is not there, negative for ever.
func Left(ms int64) time.Duration {
	switch ms {
	case -2:
		return 0
	case -1:
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// Info is what Redis knows of an object.
type Info struct {
	Name  string
	Len   int
	TTL   time.Duration
	Bytes int64
}

// Info looks at the object.
func (o *Object) Info(ctx context.Context) (Info, error) {
	row := o.Read(ctx, infoScript, o.kind)
	info := Info{Name: o.Name(), Len: int(row.Int()), TTL: Left(row.Int()), Bytes: row.Int()}
	if err := row.Err(); err != nil {
		return Info{}, o.Wrap("info", err)
	}
	return info, nil
}

// longestTTL is what every version of Redis can keep.
const longestTTL = 100 * 365 * 24 * time.Hour

// TTL returns a time to live as an argument: in milliseconds, rounded up. It is an error below 1 ms and above 100 years.
func TTL(d time.Duration) any {
	if d < time.Millisecond || d > longestTTL {
		return fmt.Errorf("%w: the TTL %v is not between 1ms and 100 years", errs.ErrInvalid, d)
	}
	return script.Millis(d)
}

// Count returns how many elements a call is for as an argument. It is an error below 1 and above most.
func Count(n, most int) any {
	if n < 1 || n > most {
		return fmt.Errorf("%w: %d elements are not between 1 and %d", errs.ErrInvalid, n, most)
	}
	return n
}

// Together returns the key of another object, for a script or a command over the keys of two. It is an error unless both
// are of one client and in one slot.
func (o *Object) Together(other *Object) any {
	switch {
	case other == nil:
		return fmt.Errorf("%w: the other object is nil", errs.ErrInvalid)
	case other.err != nil:
		return other.err
	case other.core != o.core:
		return fmt.Errorf("%w: %q is of another client", errs.ErrInvalid, other.Name())
	case script.Tag(o.name) != script.Tag(other.name):
		return fmt.Errorf("%w: %q and %q have no common hash tag", errs.ErrInvalid, o.Name(), other.Name())
	}
	return other.key
}

// Fence is a fencing token that a change carries; nil for none.
type Fence *int64

// ChangeFenced is Change of a script that begins with guard, and takes as its last arguments a token and for how long that is
// kept.
func (o *Object) ChangeFenced(ctx context.Context, fence Fence, s *script.Script, args ...any) *script.Row {
	if fence == nil {
		return o.Change(ctx, s, append(args, "", 0)...)
	}
	if *fence < 1 {
		return o.Change(ctx, s, fmt.Errorf("%w: the token %d is below 1: a hold of a plain lock has none, use a fenced lock (Client.GetFencedLock)",
			errs.ErrInvalid, *fence))
	}
	key := core.Prefixed("redlatch_fence", o.name)
	return o.send(ctx, o.core.Once, s, []any{key}, append(args, *fence, script.Millis(o.core.TokenTTL)))
}

// Write is what the options of a call that writes come to.
type Write struct {
	TTL   any // ms, of what is written; 0 for none, -1 for the one that it has
	Fence Fence
}

// Apply has options change what a call writes. One that is nil becomes its error.
func Apply[O any](w Write, opts []O, apply func(O, *Write)) Write {
	if err := option.Apply(opts, &w, apply); err != nil {
		w.TTL = err
	}
	return w
}
