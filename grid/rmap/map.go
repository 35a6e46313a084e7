// Package rmap provides maps that processes share through Redis, as Redisson's RMap and RMapCacheNative do.
//
//	orders := rmap.New[string, Order](client, "open orders")
//	err := orders.Set(ctx, "a1", Order{City: "Kyoto"})
//	o, ok, err := orders.Get(ctx, "a1")
//	for e, err := range orders.All(ctx) { ... e.Key, e.Value ... }
//
// Package grid says what holds for all objects: errors, encoding, costs, the fence.
//
// # Time to live of an entry
//
// An entry may have a time to live of its own ([WithTTL], [Map.ExpireEntry]), on servers that have it: Redis 7.4 and later,
// Valkey 9 and later. Others return redlatch.ErrUnsupported. Set, SetAll and SetIfPresent remove it, as HSET does; Swap,
// CompareAndSwap, Update and Add keep it. Len may count entries that are over until the server has removed them.
//
// # Near cache
//
// A map made with [WithNear] keeps entries that were read in the client: reading one again takes a fraction of a microsecond
// and no round trip. [WithNear] says for how long a reader may see an old value. Every program that changes the map needs
// the option, so that its changes are published.
//
//	products := rmap.New[string, Product](client, "products", rmap.WithNear(10_000), rmap.WithMaxStale(5*time.Second))
//
// # In Redis
//
// A map is the hash of its name, encoded keys to encoded values, and can be shared with Java: a
// CompositeCodec of StringCodec and TypedJsonJacksonCodec, with the classes of keys and values, reads what codec.Text writes
// of text keys and structs.
package rmap

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/script"
)

// Map maps keys to values. Keys are equal if their encoded bytes are. It is safe for concurrent use.
type Map[K comparable, V any] struct {
	o    *grid.Object
	k    grid.Coder[K]
	v    grid.Coder[V]
	near *nearby[K, V] // nil without WithNear
}

// Entry is a key and its value.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// New returns the map with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error
// of every method.
func New[K comparable, V any](client core.Client, name string, opts ...Option) *Map[K, V] {
	o := grid.New(client, "rmap", grid.Hash, name, opts)
	keys, values := grid.Keys[K](o), grid.Values[V](o)
	return &Map[K, V]{o, keys, values, newNearby[K](client, o, values)}
}

// Name returns the map's name as it was given to New.
func (m *Map[K, V]) Name() string { return m.o.Name() }

// Key returns the Redis key of the map.
func (m *Map[K, V]) Key() string { return m.o.Key() }

// Get returns the value of a key; ok is false if there is none.
func (m *Map[K, V]) Get(ctx context.Context, k K) (v V, ok bool, err error) {
	if m.near != nil && m.near.keeps {
		return m.getNear(ctx, k)
	}
	return m.v.Value(m.o, "get", m.o.Read(ctx, hget, m.k.Arg(k)))
}

// GetAll returns the values of those keys that are there. It costs a round trip for each 1,000 keys.
func (m *Map[K, V]) GetAll(ctx context.Context, keys []K) (map[K]V, error) {
	if m.near != nil && m.near.keeps {
		return m.getAllNear(ctx, keys)
	}
	row := m.o.ReadAll(ctx, hmget, m.k.Args(keys))
	found := map[K]V{}
	for _, k := range keys {
		text, ok := row.Maybe()
		if !ok {
			continue
		}
		v, err := m.v.Decode(text)
		if err != nil {
			return nil, m.o.Wrap("get all", err)
		}
		found[k] = v
	}
	if err := row.Err(); err != nil {
		return nil, m.o.Wrap("get all", err)
	}
	return found, nil
}

// Has reports whether there is an entry of a key.
func (m *Map[K, V]) Has(ctx context.Context, k K) (ok bool, err error) {
	return m.o.OK("has", m.o.Read(ctx, hexists, m.k.Arg(k)))
}

// Len returns the number of entries.
func (m *Map[K, V]) Len(ctx context.Context) (n int, err error) {
	return m.o.Int("len", m.o.Read(ctx, hlen))
}

// All iterates over the entries, in no order.
func (m *Map[K, V]) All(ctx context.Context) iter.Seq2[Entry[K, V], error] {
	return grid.Scan(ctx, m.o, "hscan", func(row *script.Row) (e Entry[K, V], err error) {
		if e.Key, err = m.k.Next(row); err == nil {
			e.Value, err = m.v.Next(row)
		}
		return e, err
	})
}

// Set sets the value of a key. It removes the time to live of the entry unless [WithTTL] is given.
func (m *Map[K, V]) Set(ctx context.Context, k K, v V, opts ...SetOption) error {
	if len(opts) == 0 && m.near == nil {
		_, err := m.o.Int("set", m.o.Change(ctx, hset, m.k.Arg(k), m.v.Arg(v)))
		return err
	}
	_, err := m.set(ctx, "set", "any", k, v, opts)
	return err
}

// SetAll sets the values of keys. It costs a round trip for each 1,000 of them, or 1 MiB, and is atomic within one only. It
// removes the times to live of the entries.
func (m *Map[K, V]) SetAll(ctx context.Context, values map[K]V) error {
	args := make([]any, 0, 2*len(values))
	for k, v := range values {
		args = append(args, m.k.Arg(k), m.v.Arg(v))
	}
	_, err := m.runAll(ctx, "set all", hset, 2, args)
	return err
}

// SetIfAbsent sets the value of a key that has none, with the options of Set, and reports whether it did.
func (m *Map[K, V]) SetIfAbsent(ctx context.Context, k K, v V, opts ...SetOption) (ok bool, err error) {
	if len(opts) == 0 && m.near == nil {
		return m.o.OK("set if absent", m.o.Change(ctx, hsetnx, m.k.Arg(k), m.v.Arg(v)))
	}
	return m.set(ctx, "set if absent", "absent", k, v, opts)
}

// SetIfPresent sets the value of a key that has one, with the options of Set, and reports whether it did.
func (m *Map[K, V]) SetIfPresent(ctx context.Context, k K, v V, opts ...SetOption) (ok bool, err error) {
	return m.set(ctx, "set if present", "present", k, v, opts)
}

func (m *Map[K, V]) set(ctx context.Context, verb, mode string, k K, v V, opts []SetOption) (bool, error) {
	w := grid.Apply(grid.Write{TTL: 0}, opts, SetOption.set)
	return m.o.OK(verb, m.write(ctx, w, m.k.Arg(k), m.v.Arg(v), mode, ""))
}

// Swap sets the value of a key, and returns the old one if there was one. It keeps the time to live of the entry.
func (m *Map[K, V]) Swap(ctx context.Context, k K, v V) (old V, had bool, err error) {
	row := m.write(ctx, grid.Write{TTL: -1}, m.k.Arg(k), m.v.Arg(v), "swap", "")
	row.Int()
	return m.v.Value(m.o, "swap", row)
}

// Pop returns the value of a key and removes the entry; had is false if there was none. After redlatch.ErrUnknown the value
// may be lost.
func (m *Map[K, V]) Pop(ctx context.Context, k K) (v V, had bool, err error) {
	return m.v.Value(m.o, "pop", m.remove(ctx, m.k.Arg(k), "any", ""))
}

// CompareAndSwap sets the value of a key if it is old, and reports whether it did. It compares the encoded bytes, and keeps
// the time to live of the entry.
func (m *Map[K, V]) CompareAndSwap(ctx context.Context, k K, old, v V, opts ...SwapOption) (ok bool, err error) {
	w := grid.Apply(grid.Write{TTL: -1}, opts, SwapOption.swap)
	return m.o.OK("compare and swap", m.write(ctx, w, m.k.Arg(k), m.v.Arg(v), "equal", m.v.Arg(old)))
}

// CompareAndDelete removes the entry of a key if its value is old, and reports whether it did. It compares the encoded bytes.
func (m *Map[K, V]) CompareAndDelete(ctx context.Context, k K, old V) (ok bool, err error) {
	row := m.remove(ctx, m.k.Arg(k), "equal", m.v.Arg(old))
	if ok = row.More(); ok {
		row.Text()
	}
	return ok, m.o.Wrap("compare and delete", row.Err())
}

// Update sets the value of a key to what fn makes of it, and returns that. fn gets the value that is there, and whether there is
// one. If somebody else was faster the value is read and fn is called again, so fn must do nothing but compute; after 20
// times Update returns redlatch.ErrConflict. The time to live of the entry is kept.
//
// The error of fn is returned as it is, and nothing is changed. Each try costs two round trips, and waits up to 50 ms before
// the next.
func (m *Map[K, V]) Update(ctx context.Context, k K, fn func(v V, ok bool) (V, error), opts ...SwapOption) (V, error) {
	w, key := grid.Apply(grid.Write{TTL: -1}, opts, SwapOption.swap), m.k.Arg(k)
	read := func() *script.Row { return m.o.Read(ctx, readScript, key) }
	write := func(value any, mode string, old any) *script.Row { return m.write(ctx, w, key, value, mode, old) }
	return m.v.Update(ctx, m.o, read, write, fn)
}

// Add adds delta to the value of a key, 0 if there is none, and returns the sum. It keeps the time to live of the entry. It is
// redlatch.ErrInvalid unless V is a number, and the codec writes it in decimal. If the sum of whole numbers has more than 64 bits nothing
// changes, and the error is that of Redis. Another sum that V cannot hold, such as 256 for a uint8 or one above the greatest float64, is
// stored: the error is codec.ErrDecode, then and of each read until the entry is set or removed.
func (m *Map[K, V]) Add(ctx context.Context, k K, delta V) (V, error) {
	command, operand := m.increment(delta)
	key := m.k.Arg(k)
	sum, _, err := m.v.Value(m.o, "add", m.run(ctx, command, []any{key}, key, operand))
	return sum, err
}

// increment returns the command that adds a number, and the number as an argument.
func (m *Map[K, V]) increment(delta V) (command *script.Script, operand any) {
	operand = m.v.Arg(delta)
	text, _ := operand.([]byte)
	r, same := reflect.ValueOf(&delta).Elem(), false
	command = hincrby
	switch {
	case r.CanInt():
		same = string(text) == strconv.FormatInt(r.Int(), 10)
	case r.CanUint():
		same = string(text) == strconv.FormatUint(r.Uint(), 10)
	case r.CanFloat():
		f, err := strconv.ParseFloat(string(text), r.Type().Bits())
		command, same = hincrbyfloat, err == nil && f == r.Float()
	default:
		return command, fmt.Errorf("%w: a %T is no number", errs.ErrInvalid, delta)
	}
	if _, bad := operand.(error); !bad && !same {
		operand = fmt.Errorf("%w: the codec does not write a %T in decimal", errs.ErrInvalid, delta)
	}
	return command, operand
}

// Remove removes the entries of keys, and returns how many were there. It costs a round trip for each 1,000 keys, and is atomic
// within one only; after an error n counts those of the calls before.
func (m *Map[K, V]) Remove(ctx context.Context, keys ...K) (n int, err error) {
	return m.runAll(ctx, "remove", hdel, 1, m.k.Args(keys))
}

// ExpireEntry sets the time to live of the entry of a key, from 1 ms to 100 years, and reports whether it is there.
func (m *Map[K, V]) ExpireEntry(ctx context.Context, k K, d time.Duration) (ok bool, err error) {
	key := m.k.Arg(k)
	return m.o.OK("expire entry", m.run(ctx, hpexpire, []any{key}, grid.TTL(d), "fields", 1, key))
}

// EntryTTL returns the time to live of the entry of a key, negative if it has none; ok is false if there is no entry.
func (m *Map[K, V]) EntryTTL(ctx context.Context, k K) (d time.Duration, ok bool, err error) {
	row := m.o.Read(ctx, hpttl, "fields", 1, m.k.Arg(k))
	left := row.Int()
	if err := row.Err(); err != nil {
		return 0, false, m.o.Wrap("entry ttl", err)
	}
	return grid.Left(left), left != -2, nil
}

// Delete deletes the map, and reports whether it was there.
func (m *Map[K, V]) Delete(ctx context.Context) (ok bool, err error) {
	if m.near == nil {
		return m.o.Delete(ctx)
	}
	w := m.near.Clear()
	return m.o.OK("delete", answered(w, m.o.SendDelete(ctx, m.near.channel, w.Message())))
}

// Expire sets the time to live of the map, from 1 ms to 100 years, and reports whether it is there.
func (m *Map[K, V]) Expire(ctx context.Context, d time.Duration) (ok bool, err error) {
	if m.near == nil {
		return m.o.Expire(ctx, d)
	}
	w := m.near.Clear()
	row := m.o.SendExpire(ctx, d, m.near.channel, w.Message())
	n := row.Int()
	if n == 2 { // what is near may be there for longer than the map
		w.Answered()
	}
	return n > 0, m.o.Wrap("expire", row.Err())
}

// Persist removes the time to live of the map, and reports whether it had one.
func (m *Map[K, V]) Persist(ctx context.Context) (ok bool, err error) { return m.o.Persist(ctx) }

// TTL returns the time to live of the map: 0 if it is not there, negative if it has none.
func (m *Map[K, V]) TTL(ctx context.Context) (time.Duration, error) { return m.o.TTL(ctx) }

// Info is what [Map.Info] returns.
type Info struct {
	// Name is that of the map.
	Name string
	// Len is the number of entries.
	Len int
	// TTL is the time to live: 0 if it is not there, negative if it has none.
	TTL time.Duration
	// Bytes is how much memory the server uses for the map, 0 if it does not say.
	Bytes int64
}

// Info returns what Redis knows of the map.
func (m *Map[K, V]) Info(ctx context.Context) (Info, error) {
	info, err := m.o.Info(ctx)
	return Info(info), err
}
