package rset

import (
	"context"
	"iter"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/script"
)

// Expiring is a set whose members expire, by the clock of Redis. A member that is over is not there for any method, though Redis
// keeps it until an Add comes upon it: each removes up to 100. It works on all versions of the server. It is safe for
// concurrent use.
type Expiring[T any] struct {
	o *grid.Object
	v grid.Coder[T]
}

// NewExpiring returns the set of members that expire with this name. client is a *redlatch.Client. It does no I/O and keeps nothing
// alive; bad input is the error of every method.
func NewExpiring[T any](client core.Client, name string, opts ...Option) *Expiring[T] {
	o := grid.New(client, "rset", grid.ZSet, name, opts)
	return &Expiring[T]{o, grid.Members[T](o)}
}

// Name returns the set's name as it was given to NewExpiring.
func (s *Expiring[T]) Name() string { return s.o.Name() }

// Key returns the Redis key of the set.
func (s *Expiring[T]) Key() string { return s.o.Key() }

// Add adds a member for a time, from 1 ms to 100 years, and reports whether it was not there. The expiry of a member that is there
// stays.
func (s *Expiring[T]) Add(ctx context.Context, v T, ttl time.Duration) (added bool, err error) {
	return s.o.OK("add", s.o.Change(ctx, putScript, s.v.Arg(v), grid.TTL(ttl), "add"))
}

// Renew sets the time of a member from now on, from 1 ms to 100 years, and reports whether it is there.
func (s *Expiring[T]) Renew(ctx context.Context, v T, ttl time.Duration) (ok bool, err error) {
	return s.o.OK("renew", s.o.Change(ctx, putScript, s.v.Arg(v), grid.TTL(ttl), "renew"))
}

// Has reports whether a member is there. It asks the master.
func (s *Expiring[T]) Has(ctx context.Context, v T) (ok bool, err error) {
	return s.o.OK("has", s.o.Read(ctx, hasScript, s.v.Arg(v)))
}

// Remove removes members, and returns how many were there. It costs a round trip for each 1,000 members, or 1 MiB, and is atomic within
// one only; after an error n counts those of the calls before.
func (s *Expiring[T]) Remove(ctx context.Context, vs ...T) (n int, err error) {
	return s.o.ChangeAll(ctx, "remove", removeScript, 1, s.v.Args(vs))
}

// Len returns the number of members. It asks the master.
func (s *Expiring[T]) Len(ctx context.Context) (n int, err error) {
	return s.o.Int("len", s.o.Read(ctx, lenScript))
}

// All iterates over the members, in no order.
func (s *Expiring[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return grid.Steps(s.o, func(cursor string) *script.Row { return s.o.Read(ctx, scanScript, cursor, grid.Scanned) }, s.v.Next)
}

// Delete deletes the set, and reports whether it was there.
func (s *Expiring[T]) Delete(ctx context.Context) (ok bool, err error) { return s.o.Delete(ctx) }

// Expire sets the time to live of the set, from 1 ms to 100 years, and reports whether it is there.
func (s *Expiring[T]) Expire(ctx context.Context, d time.Duration) (ok bool, err error) {
	return s.o.Expire(ctx, d)
}

// Persist removes the time to live of the set, and reports whether it had one.
func (s *Expiring[T]) Persist(ctx context.Context) (ok bool, err error) { return s.o.Persist(ctx) }

// TTL returns the time to live of the set: 0 if it is not there, negative if it has none.
func (s *Expiring[T]) TTL(ctx context.Context) (time.Duration, error) { return s.o.TTL(ctx) }

// Info returns what Redis knows of the set; its Len counts members that are over and still kept.
func (s *Expiring[T]) Info(ctx context.Context) (Info, error) {
	info, err := s.o.Info(ctx)
	return Info(info), err
}
