// Package rbucket provides one value that processes share through Redis, as Redisson's RBucket does.
//
//	config := rbucket.New[Config](client, "config")
//	err := config.Set(ctx, Config{Workers: 4}, rbucket.WithTTL(time.Hour))
//	c, ok, err := config.Get(ctx)
//	c, err = config.Update(ctx, func(c Config, ok bool) (Config, error) { c.Workers++; return c, nil })
//
// Package grid says what holds for all objects: errors, encoding, costs, the fence.
//
// # In Redis
//
// The value is the string of the bucket's name, encoded, and can be shared with Java: codec.Text is what Redisson's
// StringCodec reads of texts and numbers, and TypedJsonJacksonCodec of structs.
package rbucket

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/script"
)

// Bucket holds one value. It is safe for concurrent use.
type Bucket[T any] struct {
	o *grid.Object
	v grid.Coder[T]
}

// New returns the bucket with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the
// error of every method.
func New[T any](client core.Client, name string, opts ...Option) *Bucket[T] {
	o := grid.New(client, "rbucket", grid.String, name, opts)
	return &Bucket[T]{o, grid.Values[T](o)}
}

// Name returns the bucket's name as it was given to New.
func (b *Bucket[T]) Name() string { return b.o.Name() }

// Key returns the Redis key of the bucket.
func (b *Bucket[T]) Key() string { return b.o.Key() }

// Get returns the value; ok is false if there is none.
func (b *Bucket[T]) Get(ctx context.Context) (v T, ok bool, err error) {
	return b.v.Value(b.o, "get", b.o.Read(ctx, get))
}

// maxReplied is how many bytes a value may have that SET itself writes. Only with GET does SET refuse a key of another kind, and its reply
// has the old value then: where that may be long, the script costs less.
const maxReplied = 4 << 10

// Set sets the value. It removes the time to live unless [WithTTL] or [KeepTTL] is given. If the encoded value has at most 4 KiB, the reply
// of Redis has the old one, which is dropped.
func (b *Bucket[T]) Set(ctx context.Context, v T, opts ...SetOption) error {
	w, value := grid.Apply(grid.Write{TTL: 0}, opts, SetOption.set), b.v.Arg(v)
	if data, _ := value.([]byte); len(data) > maxReplied || w.Fence != nil {
		_, err := b.o.OK("set", b.write(ctx, w, value, "any", ""))
		return err
	}
	args := append(make([]any, 0, 4), value, "get")
	switch w.TTL {
	case 0:
	case -1:
		args = append(args, "keepttl")
	default:
		args = append(args, "px", w.TTL)
	}
	row := b.o.Change(ctx, set, args...)
	_, _ = row.Maybe() // an error stays in the row
	return b.o.Wrap("set", row.Err())
}

// SetIfAbsent sets the value if there is none, with the options of Set, and reports whether it did.
func (b *Bucket[T]) SetIfAbsent(ctx context.Context, v T, opts ...SetOption) (ok bool, err error) {
	return b.set(ctx, "set if absent", "absent", v, opts)
}

// SetIfPresent sets the value if there is one, with the options of Set, and reports whether it did.
func (b *Bucket[T]) SetIfPresent(ctx context.Context, v T, opts ...SetOption) (ok bool, err error) {
	return b.set(ctx, "set if present", "present", v, opts)
}

func (b *Bucket[T]) set(ctx context.Context, verb, mode string, v T, opts []SetOption) (bool, error) {
	w := grid.Apply(grid.Write{TTL: 0}, opts, SetOption.set)
	return b.o.OK(verb, b.write(ctx, w, b.v.Arg(v), mode, ""))
}

func (b *Bucket[T]) write(ctx context.Context, w grid.Write, value any, mode string, old any) *script.Row {
	return b.o.ChangeFenced(ctx, w.Fence, writeScript, value, mode, old, w.TTL)
}

// Swap sets the value, and returns the old one if there was one. It keeps the time to live.
func (b *Bucket[T]) Swap(ctx context.Context, v T) (old T, had bool, err error) {
	return b.v.Value(b.o, "swap", b.o.Change(ctx, set, b.v.Arg(v), "keepttl", "get"))
}

// Pop returns the value and deletes it; had is false if there was none. After redlatch.ErrUnknown the value may be lost.
func (b *Bucket[T]) Pop(ctx context.Context) (v T, had bool, err error) {
	return b.v.Value(b.o, "pop", b.o.Change(ctx, getdel))
}

// CompareAndSwap sets the value if it is old, and reports whether it did. It compares the encoded bytes, and keeps the time
// to live.
func (b *Bucket[T]) CompareAndSwap(ctx context.Context, old, v T, opts ...SwapOption) (ok bool, err error) {
	w := grid.Apply(grid.Write{TTL: -1}, opts, SwapOption.swap)
	return b.o.OK("compare and swap", b.write(ctx, w, b.v.Arg(v), "equal", b.v.Arg(old)))
}

// CompareAndDelete deletes the value if it is old, and reports whether it did. It compares the encoded bytes.
func (b *Bucket[T]) CompareAndDelete(ctx context.Context, old T) (ok bool, err error) {
	return b.o.OK("compare and delete", b.o.Change(ctx, removeScript, b.v.Arg(old)))
}

// Update sets the value to what fn makes of it, and returns that. fn gets the value that is there, and whether there is one. If
// somebody else was faster the value is read and fn is called again, so fn must do nothing but compute; after 20 times Update
// returns redlatch.ErrConflict. The time to live is kept.
//
// The error of fn is returned as it is, and nothing is changed. Each try costs two round trips, and waits up to 50 ms before
// the next.
func (b *Bucket[T]) Update(ctx context.Context, fn func(v T, ok bool) (T, error), opts ...SwapOption) (T, error) {
	w := grid.Apply(grid.Write{TTL: -1}, opts, SwapOption.swap)
	read := func() *script.Row { return b.o.Read(ctx, readScript) }
	write := func(value any, mode string, old any) *script.Row { return b.write(ctx, w, value, mode, old) }
	return b.v.Update(ctx, b.o, read, write, fn)
}

// Delete deletes the bucket, and reports whether it was there.
func (b *Bucket[T]) Delete(ctx context.Context) (ok bool, err error) { return b.o.Delete(ctx) }

// Expire sets the time to live of the bucket, from 1 ms to 100 years, and reports whether it is there.
func (b *Bucket[T]) Expire(ctx context.Context, d time.Duration) (ok bool, err error) {
	return b.o.Expire(ctx, d)
}

// Persist removes the time to live of the bucket, and reports whether it had one.
func (b *Bucket[T]) Persist(ctx context.Context) (ok bool, err error) { return b.o.Persist(ctx) }

// TTL returns the time to live of the bucket: 0 if it is not there, negative if it has none.
func (b *Bucket[T]) TTL(ctx context.Context) (time.Duration, error) { return b.o.TTL(ctx) }

// Info is what [Bucket.Info] returns.
type Info struct {
	// Name is that of the bucket.
	Name string
	// Len is 1 if there is a value, 0 if not.
	Len int
	// TTL is the time to live: 0 if there is no value, negative if it has none.
	TTL time.Duration
	// Bytes is how much memory the server uses for the bucket, 0 if it does not say.
	Bytes int64
}

// Info returns what Redis knows of the bucket.
func (b *Bucket[T]) Info(ctx context.Context) (Info, error) {
	info, err := b.o.Info(ctx)
	return Info(info), err
}
