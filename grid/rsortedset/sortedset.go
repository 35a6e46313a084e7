// Package rsortedset provides sets in the order of scores that processes share through Redis, as Redisson's RScoredSortedSet
// does.
//
//	scores := rsortedset.New[string](client, "scores")
//	_, err := scores.Add(ctx, "ann", 31)
//	best, err := scores.RangeDesc(ctx, 0, 9) // the ten greatest
//
// Package grid says what holds for all objects: errors, encoding, costs. Members are equal if their encoded bytes are; those of
// one score are in the order of their bytes.
//
// # In Redis
//
// A sorted set is that of its name, and can be shared with Java.
package rsortedset

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	maxRange  = 10_000 // entries that a call returns
	maxAtOnce = 1000   // entries that a call removes, or reads by a script
)

// SortedSet is a set whose members have scores. It is safe for concurrent use.
type SortedSet[T any] struct {
	o *grid.Object
	v grid.Coder[T]
}

// Entry is a member and its score.
type Entry[T any] struct {
	Value T
	Score float64
}

// New returns the sorted set with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is
// the error of every method.
func New[T any](client core.Client, name string, opts ...Option) *SortedSet[T] {
	o := grid.New(client, "rsortedset", grid.ZSet, name, opts)
	return &SortedSet[T]{o, grid.Members[T](o)}
}

// Name returns the sorted set's name as it was given to New.
func (s *SortedSet[T]) Name() string { return s.o.Name() }

// Key returns the Redis key of the sorted set.
func (s *SortedSet[T]) Key() string { return s.o.Key() }

// Add adds a member, or gives it another score, and reports whether it did either. [IfAbsent], [IfGreater] or [IfLess] is a
// condition.
func (s *SortedSet[T]) Add(ctx context.Context, v T, score float64, opts ...AddOption) (changed bool, err error) {
	args := make([]any, 0, 4)
	for _, opt := range opts {
		switch {
		case opt == AddOption{}:
			args = append(args, errs.ErrNilOption)
		case len(args) > 0:
			args = append(args, fmt.Errorf("%w: Add takes one condition", errs.ErrInvalid))
		default:
			args = append(args, opt.flag)
		}
	}
	return s.o.OK("add", s.o.Change(ctx, zadd, append(args, "ch", number(score), s.v.Arg(v))...))
}

// number returns a score as an argument. It is an error if it is NaN.
func number(f float64) any {
	if math.IsNaN(f) {
		return fmt.Errorf("%w: a score is NaN", errs.ErrInvalid)
	}
	return f
}

// AddScore adds delta to the score of a member, 0 if it is not there, and returns the sum. An infinity less itself is an error of
// Redis, and changes nothing.
func (s *SortedSet[T]) AddScore(ctx context.Context, v T, delta float64) (float64, error) {
	row := s.o.Change(ctx, zincrby, number(delta), s.v.Arg(v))
	sum := row.Float()
	return sum, s.o.Wrap("add score", row.Err())
}

// Remove removes members, and returns how many were there. It costs a round trip for each 1,000 members, or 1 MiB, and is atomic within
// one only; after an error n counts those of the calls before.
func (s *SortedSet[T]) Remove(ctx context.Context, vs ...T) (n int, err error) {
	return s.o.ChangeAll(ctx, "remove", zrem, 1, s.v.Args(vs))
}

// Score returns the score of a member; ok is false if it is not there.
func (s *SortedSet[T]) Score(ctx context.Context, v T) (score float64, ok bool, err error) {
	return s.maybe("score", s.o.Read(ctx, zscore, s.v.Arg(v)))
}

// Rank returns how many members are before a member in the order of scores; ok is false if it is not there.
func (s *SortedSet[T]) Rank(ctx context.Context, v T) (rank int, ok bool, err error) {
	n, ok, err := s.maybe("rank", s.o.Read(ctx, zrank, s.v.Arg(v)))
	return int(n), ok, err
}

// RankDesc returns how many members are after a member in the order of scores; ok is false if it is not there.
func (s *SortedSet[T]) RankDesc(ctx context.Context, v T) (rank int, ok bool, err error) {
	n, ok, err := s.maybe("rank desc", s.o.Read(ctx, zrevrank, s.v.Arg(v)))
	return int(n), ok, err
}

func (s *SortedSet[T]) maybe(verb string, row *script.Row) (float64, bool, error) {
	n, ok := row.MaybeFloat()
	return n, ok, s.o.Wrap(verb, row.Err())
}

// Len returns the number of members.
func (s *SortedSet[T]) Len(ctx context.Context) (n int, err error) {
	return s.o.Int("len", s.o.Read(ctx, zcard))
}

// Count returns the number of members with from <= score <= to. Both may be infinite.
func (s *SortedSet[T]) Count(ctx context.Context, from, to float64) (n int, err error) {
	return s.o.Int("count", s.o.Read(ctx, zcount, number(from), number(to)))
}

// Range returns the members of the ranks from first to last, both included, as ZRANGE does: 0 is the least score, and negative
// ranks count from the end, -1 being the greatest. A range of more than 10,000 is redlatch.ErrInvalid. If first and last
// count from different ends, the master checks the length first, and more than 1,000 entries cost a second round trip. 10,000
// entries take Redis 6.2 about 6 ms, in which it serves nobody else, Redis 7.0 3 ms, and newer servers 1 ms.
func (s *SortedSet[T]) Range(ctx context.Context, first, last int) ([]Entry[T], error) {
	return s.ranks(ctx, "range", zrange, "asc", first, last)
}

// RangeDesc is Range in the order of falling scores: 0 is the greatest.
func (s *SortedSet[T]) RangeDesc(ctx context.Context, first, last int) ([]Entry[T], error) {
	return s.ranks(ctx, "range desc", zrevrange, "desc", first, last)
}

func (s *SortedSet[T]) ranks(ctx context.Context, verb string, command *script.Script, order string, first, last int) ([]Entry[T], error) {
	tooLong := func(n uint) error {
		return s.o.Wrap(verb, fmt.Errorf("%w: the range has %d entries, more than %d", errs.ErrInvalid, n, maxRange))
	}
	if (first < 0) == (last < 0) {
		if last-first >= maxRange { // which cannot overflow
			return nil, tooLong(uint(last-first) + 1)
		}
		return s.entries(verb, s.o.Read(ctx, command, first, last, "withscores"))
	}
	row := s.o.Read(ctx, rangeScript, first, last, maxAtOnce, order)
	switch n := row.Int(); {
	case n > maxRange:
		return nil, tooLong(uint(n))
	case n > maxAtOnce:
		row = s.o.Read(ctx, command, first, last, "withscores")
	}
	return s.entries(verb, row)
}

// RangeByScore returns the first members with from <= score <= to, at most limit of them. from and to may be infinite, limit is
// from 1 to 10,000, which costs the server as much as with [SortedSet.Range].
func (s *SortedSet[T]) RangeByScore(ctx context.Context, from, to float64, limit int) ([]Entry[T], error) {
	args := []any{number(from), number(to), "withscores", "limit", 0, grid.Count(limit, maxRange)}
	return s.entries("range by score", s.o.Read(ctx, zrangebyscore, args...))
}

// RemoveByScore removes the members with from <= score <= to, which may be infinite, and returns how many they were. It costs a
// round trip for each 1,000 of them, and is atomic within one only; after an error n counts those of the calls before.
func (s *SortedSet[T]) RemoveByScore(ctx context.Context, from, to float64) (n int, err error) {
	for {
		removed, err := s.o.Int("remove by score", s.o.Change(ctx, removeScript, number(from), number(to), maxAtOnce))
		n += removed
		if err != nil || removed < maxAtOnce {
			return n, err
		}
	}
}

// PopMin removes up to n members with the least scores, and returns them, the least first. n is from 1 to 1,000. After
// redlatch.ErrUnknown they may be lost.
func (s *SortedSet[T]) PopMin(ctx context.Context, n int) ([]Entry[T], error) {
	return s.entries("pop min", s.o.Change(ctx, zpopmin, grid.Count(n, maxAtOnce)))
}

// PopMax removes up to n members with the greatest scores, and returns them, the greatest first. n is from 1 to 1,000. After
// redlatch.ErrUnknown they may be lost.
func (s *SortedSet[T]) PopMax(ctx context.Context, n int) ([]Entry[T], error) {
	return s.entries("pop max", s.o.Change(ctx, zpopmax, grid.Count(n, maxAtOnce)))
}

// All iterates over the members, in no order.
func (s *SortedSet[T]) All(ctx context.Context) iter.Seq2[Entry[T], error] {
	return grid.Scan(ctx, s.o, "zscan", s.next)
}

func (s *SortedSet[T]) next(row *script.Row) (e Entry[T], err error) {
	e.Value, err = s.v.Next(row)
	e.Score = row.Float()
	return e, err
}

func (s *SortedSet[T]) entries(verb string, row *script.Row) ([]Entry[T], error) {
	var all []Entry[T]
	for row.More() {
		e, err := s.next(row)
		if err != nil {
			return nil, s.o.Wrap(verb, err)
		}
		all = append(all, e)
	}
	return all, s.o.Wrap(verb, row.Err())
}

// Delete deletes the sorted set, and reports whether it was there.
func (s *SortedSet[T]) Delete(ctx context.Context) (ok bool, err error) { return s.o.Delete(ctx) }

// Expire sets the time to live of the sorted set, from 1 ms to 100 years, and reports whether it is there.
func (s *SortedSet[T]) Expire(ctx context.Context, d time.Duration) (ok bool, err error) {
	return s.o.Expire(ctx, d)
}

// Persist removes the time to live of the sorted set, and reports whether it had one.
func (s *SortedSet[T]) Persist(ctx context.Context) (ok bool, err error) { return s.o.Persist(ctx) }

// TTL returns the time to live of the sorted set: 0 if it is not there, negative if it has none.
func (s *SortedSet[T]) TTL(ctx context.Context) (time.Duration, error) { return s.o.TTL(ctx) }

// Info is what [SortedSet.Info] returns.
type Info struct {
	// Name is that of the sorted set.
	Name string
	// Len is the number of members.
	Len int
	// TTL is the time to live: 0 if it is not there, negative if it has none.
	TTL time.Duration
	// Bytes is how much memory the server uses for the sorted set, 0 if it does not say.
	Bytes int64
}

// Info returns what Redis knows of the sorted set.
func (s *SortedSet[T]) Info(ctx context.Context) (Info, error) {
	info, err := s.o.Info(ctx)
	return Info(info), err
}
