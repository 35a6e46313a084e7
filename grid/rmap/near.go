package rmap

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/script"
)

// nearby is what a map has besides for its near cache.
type nearby[K comparable, V any] struct {
	*near.Cache[K, V]
	channel string
	keeps   bool // not WithNear(0)
}

// newNearby returns nil for a map without a near cache.
func newNearby[K comparable, V any](client core.Client, o *grid.Object, values grid.Coder[V]) *nearby[K, V] {
	opts := o.Near()
	if !opts.On || o.Err() != nil {
		return nil
	}
	topic := near.MapTopic(o.Key())
	cache := near.New[K](core.Of(client), topic, near.Options[V]{
		Entries: opts.Entries, MaxStale: opts.MaxStale, Shared: opts.Shared, Decode: values.DecodeBytes,
	})
	return &nearby[K, V]{cache, topic.Channel, opts.Entries > 0}
}

// write returns a change of the entries of encoded keys. Keys that could not be encoded are left out: such a change is not sent.
func (n *nearby[K, V]) write(keys []any) *near.Write {
	encoded := make([][]byte, 0, len(keys))
	for _, k := range keys {
		if data, ok := k.([]byte); ok {
			encoded = append(encoded, data)
		}
	}
	return n.Write(encoded...)
}

// answered ends the entries that a change is about if there was a reply to it. A change that was refused by its condition ends
// them too: the next Get returns what it has seen, or later.
func answered(w *near.Write, row *script.Row) *script.Row {
	if !row.Failed() {
		w.Answered()
	}
	return row
}

// run sends a command that changes entries; in a map with a near cache, by a script that publishes. keys are their keys among
// the arguments.
func (m *Map[K, V]) run(ctx context.Context, command *script.Script, keys []any, args ...any) *script.Row {
	if m.near == nil {
		return m.o.Change(ctx, command, args...)
	}
	w := m.near.write(keys)
	return answered(w, m.o.Change(ctx, changeScript, append([]any{m.near.channel, w.Message(), command.Name()}, args...)...))
}

// runAll is run for many elements of width arguments, the first of which is a key, in as many calls as it takes.
func (m *Map[K, V]) runAll(ctx context.Context, verb string, command *script.Script, width int, args []any) (int, error) {
	return m.o.InParts(ctx, verb, width, args, func(part []any) *script.Row {
		keys := make([]any, 0, len(part)/width)
		for i := 0; i < len(part); i += width {
			keys = append(keys, part[i])
		}
		return m.run(ctx, command, keys, part...)
	})
}

// write runs the script that sets an entry.
func (m *Map[K, V]) write(ctx context.Context, w grid.Write, key, value any, mode string, old any) *script.Row {
	if m.near == nil {
		return m.o.ChangeFenced(ctx, w.Fence, writeScript, key, value, mode, old, w.TTL, "", "")
	}
	n := m.near.write([]any{key})
	return answered(n, m.o.ChangeFenced(ctx, w.Fence, writeScript, key, value, mode, old, w.TTL, m.near.channel, n.Message()))
}

// remove runs the script that removes an entry and returns its value.
func (m *Map[K, V]) remove(ctx context.Context, key any, mode string, old any) *script.Row {
	if m.near == nil {
		return m.o.Change(ctx, removeScript, key, mode, old)
	}
	w := m.near.write([]any{key})
	return answered(w, m.o.Change(ctx, removeScript, key, mode, old, m.near.channel, w.Message()))
}

// getNear is Get of a map that keeps entries.
func (m *Map[K, V]) getNear(ctx context.Context, k K) (v V, ok bool, err error) {
	if err := m.o.Ready(ctx); err != nil {
		return v, false, m.o.Wrap("get", err)
	}
	if v, ok = m.near.Get(k); ok {
		return v, true, nil
	}
	f := m.ask(k)
	row := m.o.Read(ctx, fillScript, f.arg)
	v, ok, err = m.fill(f, row)
	if err == nil {
		err = row.Err()
	}
	return v, ok, m.o.Wrap("get", err)
}

// getAllNear is GetAll of a map that keeps entries.
func (m *Map[K, V]) getAllNear(ctx context.Context, keys []K) (map[K]V, error) {
	if err := m.o.Ready(ctx); err != nil {
		return nil, m.o.Wrap("get all", err)
	}
	found := map[K]V{}
	var missing []missed[K]
	var args []any
	for _, k := range keys {
		if v, ok := m.near.Get(k); ok {
			found[k] = v
			continue
		}
		f := m.ask(k)
		missing, args = append(missing, f), append(args, f.arg)
	}
	row := m.o.ReadAll(ctx, fillScript, args)
	for _, f := range missing {
		v, ok, err := m.fill(f, row)
		if err != nil {
			return nil, m.o.Wrap("get all", err)
		}
		if ok {
			found[f.key] = v
		}
	}
	if err := row.Err(); err != nil {
		return nil, m.o.Wrap("get all", err)
	}
	return found, nil
}

// missed is a key that Redis is asked for.
type missed[K comparable] struct {
	key    K
	arg    any
	ticket near.Ticket
}

// ask is to be called before Redis is asked for a key.
func (m *Map[K, V]) ask(k K) missed[K] {
	f := missed[K]{key: k, arg: m.k.Arg(k)}
	if data, ok := f.arg.([]byte); ok {
		f.ticket = m.near.Ask(data)
	}
	return f
}

// fill reads what Redis has replied of a key, and keeps it.
func (m *Map[K, V]) fill(f missed[K], row *script.Row) (v V, ok bool, err error) {
	text, ok := row.Maybe()
	ttl := time.Duration(row.Int()) * time.Millisecond
	if !ok || row.Failed() {
		return v, false, nil
	}
	data := []byte(text)
	if v, err = m.v.DecodeBytes(data); err != nil {
		return v, true, err
	}
	m.near.Store(f.key, v, data, ttl, f.ticket)
	return v, true, nil
}

// NearStats are the counts of a near cache. All maps of a name in a client have the same, but for Entries.
type NearStats struct {
	// Hits are the reads that found an entry in the client, and Misses those that asked Redis. GetAll counts each key.
	Hits, Misses uint64
	// Invalidations are the keys of which messages said that they have changed, by this client or another; 1 for a change of the
	// whole map.
	Invalidations uint64
	// Entries is the number of entries that this Map keeps in the client, including some that are over.
	Entries int
}

// NearStats returns the counts of the near cache, 0 if the map has none ([WithNear]).
func (m *Map[K, V]) NearStats() NearStats {
	if m.near == nil {
		return NearStats{}
	}
	return NearStats(m.near.Stats())
}
