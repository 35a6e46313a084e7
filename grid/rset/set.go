// Package rset provides sets that processes share through Redis, as Redisson's RSet and RSetCache do.
//
//	buyers := rset.New[string](client, "buyers")
//	n, err := buyers.Add(ctx, "ann", "bob")
//
//	seen := rset.NewExpiring[string](client, "seen")
//	fresh, err := seen.Add(ctx, messageID, 24*time.Hour) // false: seen within the last 24 hours
//
// Package grid says what holds for all objects: errors, encoding, costs. Members are equal if their encoded bytes are.
//
// # In Redis
//
// A [Set] is the set of its name, an [Expiring] set the sorted set of its name, whose scores are the members' expiries in
// milliseconds since the epoch. Java reads both if it uses the same codec; it takes the time of its own clock.
package rset

import (
	"context"
	"iter"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/grid"
)

// maxAtOnce is how many members a call may pop or pick: of a million, Valkey 9 takes up to 50 µs for each.
const maxAtOnce = 100

// Set is a set. It is safe for concurrent use.
type Set[T any] struct {
	o *grid.Object
	v grid.Coder[T]
}

// New returns the set with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error
// of every method.
func New[T any](client core.Client, name string, opts ...Option) *Set[T] {
	o := grid.New(client, "rset", grid.Set, name, opts)
	return &Set[T]{o, grid.Members[T](o)}
}

// Name returns the set's name as it was given to New.
func (s *Set[T]) Name() string { return s.o.Name() }

// Key returns the Redis key of the set.
func (s *Set[T]) Key() string { return s.o.Key() }

// Add adds members, and returns how many were not there. It costs a round trip for each 1,000 members, or 1 MiB, and is atomic within
// one only; after an error n counts those of the calls before.
func (s *Set[T]) Add(ctx context.Context, vs ...T) (n int, err error) {
	return s.o.ChangeAll(ctx, "add", sadd, 1, s.v.Args(vs))
}

// Remove removes members, and returns how many were there. It costs as much as Add.
func (s *Set[T]) Remove(ctx context.Context, vs ...T) (n int, err error) {
	return s.o.ChangeAll(ctx, "remove", srem, 1, s.v.Args(vs))
}

// Has reports whether a member is there.
func (s *Set[T]) Has(ctx context.Context, v T) (ok bool, err error) {
	return s.o.OK("has", s.o.Read(ctx, sismember, s.v.Arg(v)))
}

// HasAll reports of each member whether it is there. It costs a round trip for each 1,000 members, or 1 MiB.
func (s *Set[T]) HasAll(ctx context.Context, vs ...T) ([]bool, error) {
	row := s.o.ReadAll(ctx, smismember, s.v.Args(vs))
	there := make([]bool, len(vs))
	for i := range there {
		there[i] = row.Int() == 1
	}
	if err := row.Err(); err != nil {
		return nil, s.o.Wrap("has all", err)
	}
	return there, nil
}

// Len returns the number of members.
func (s *Set[T]) Len(ctx context.Context) (n int, err error) {
	return s.o.Int("len", s.o.Read(ctx, scard))
}

// Pop removes up to n members that the server picks, and returns them. n is from 1 to 100, as picking them takes the server
// long. After redlatch.ErrUnknown they may be lost.
func (s *Set[T]) Pop(ctx context.Context, n int) ([]T, error) {
	return s.v.All(s.o, "pop", s.o.Change(ctx, spop, grid.Count(n, maxAtOnce)))
}

// Random returns up to n members that the server picks, each once, and leaves them. n is from 1 to 100.
func (s *Set[T]) Random(ctx context.Context, n int) ([]T, error) {
	return s.v.All(s.o, "random", s.o.Read(ctx, srandmember, grid.Count(n, maxAtOnce)))
}

// MoveTo moves a member to another set of the client, in one step, and reports whether it was there. The names of both sets must
// have a common hash tag, as {shop}:new and {shop}:old have.
func (s *Set[T]) MoveTo(ctx context.Context, other *Set[T], v T) (ok bool, err error) {
	var to *grid.Object
	if other != nil {
		to = other.o
	}
	return s.o.OK("move to", s.o.Change(ctx, smove, s.o.Together(to), s.v.Arg(v)))
}

// All iterates over the members, in no order.
func (s *Set[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return grid.Scan(ctx, s.o, "sscan", s.v.Next)
}

// Delete deletes the set, and reports whether it was there.
func (s *Set[T]) Delete(ctx context.Context) (ok bool, err error) { return s.o.Delete(ctx) }

// Expire sets the time to live of the set, from 1 ms to 100 years, and reports whether it is there.
func (s *Set[T]) Expire(ctx context.Context, d time.Duration) (ok bool, err error) {
	return s.o.Expire(ctx, d)
}

// Persist removes the time to live of the set, and reports whether it had one.
func (s *Set[T]) Persist(ctx context.Context) (ok bool, err error) { return s.o.Persist(ctx) }

// TTL returns the time to live of the set: 0 if it is not there, negative if it has none.
func (s *Set[T]) TTL(ctx context.Context) (time.Duration, error) { return s.o.TTL(ctx) }

// Info is what the Info of a set returns.
type Info struct {
	// Name is that of the set.
	Name string
	// Len is the number of members.
	Len int
	// TTL is the time to live: 0 if it is not there, negative if it has none.
	TTL time.Duration
	// Bytes is how much memory the server uses for the set, 0 if it does not say.
	Bytes int64
}

// Info returns what Redis knows of the set.
func (s *Set[T]) Info(ctx context.Context) (Info, error) {
	info, err := s.o.Info(ctx)
	return Info(info), err
}
