package rid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/script"
)

// Generator returns ids. All generators of one name and form in a client take from one block. It is safe for concurrent
// use.
type Generator struct {
	manager *manager
	name    string // with the client's prefix
	key     string
	form    string
	blocks  atomic.Pointer[sequence] // nil before the first Next
	opts    options
	err     error
}

// manager is a client's state for its generators.
type manager struct {
	core      *core.Core
	sequences *core.Table[*sequence] // by form
}

func newManager(c *core.Core) *manager { return &manager{c, core.NewTable[*sequence]()} }

// of returns the blocks of a form.
func (m *manager) of(form string) *sequence {
	shard := m.sequences.Shard(form)
	shard.Lock()
	defer shard.Unlock()
	s := shard.Of[form]
	if s == nil {
		s = &sequence{}
		shard.Of[form] = s
	}
	return s
}

// sequence is the blocks of a client for the generators of one form, one after the other.
type sequence struct {
	block atomic.Pointer[block] // nil before the first; only the call that fetches one sets it

	mu      sync.Mutex    // guards the rest
	fetched chan struct{} // closed when the call that fetches a block has ended; nil for none

	// Of the last block of plain ids, for the call that fetches the next one.
	size  int
	since time.Duration // when it came, by the client's clock
}

const (
	hotRate = time.Microsecond // for each id: a block that was used up faster is followed by one of twice its size,
	hotMost = 16               // up to so many times the size that the user has set
)

// block is some ids: prefix with each number from next up to end, without end.
type block struct {
	next   atomic.Int64 // of a timed generator the counter; not below end when the block is used up
	first  int64
	end    int64
	second int64 // of the block, in s since 1970
	prefix int64
	lapses time.Duration // when its second is over, by the client's clock; 0 for never
}

// pop returns the next id, and reports whether there was one.
func (m *manager) pop(s *sequence) (id int64, ok bool) {
	b := s.block.Load()
	if b == nil || b.lapses > 0 && m.core.Clock.Now() >= b.lapses {
		return 0, false
	}
	n := b.next.Add(1) - 1
	return b.prefix | n, n < b.end
}

// demand returns how many ids the block after this one should have if a second lasts no longer than a block: as many as
// were used, and twice as many if that was not enough. What a block leaves unused is used up for the day.
func (b *block) demand(now time.Duration) int {
	used := int(min(b.next.Load(), b.end) - b.first)
	if now < b.lapses {
		return 2 * used
	}
	return used
}

// New returns the generator of ids with this name, as client.GetIDGenerator does. client is a *redlatch.Client. It
// does no I/O and keeps nothing alive; bad input is the error of every method.
func New(client core.Client, name string, opts ...Option) *Generator {
	c := core.Of(client)
	g := &Generator{manager: core.Manager(c, newManager), name: c.Prefix + name, opts: options{block: 1000}}
	g.err = cmp.Or(core.CheckUserName(name, g.name), option.Apply(opts, &g.opts, Option.set))
	if g.err == nil {
		g.err = g.opts.validate()
	}
	g.key = core.Prefixed("redlatch_id", g.name)
	g.form = g.key
	if g.opts.timed {
		g.key = core.Prefixed("redlatch_id_day", g.name)
		g.form = strconv.Itoa(g.opts.bits) + " " + strconv.FormatInt(g.opts.since(), 10) + " " + g.key
	}
	return g
}

// sequence returns the blocks that the generator takes from.
func (g *Generator) sequence() *sequence {
	s := g.blocks.Load()
	if s == nil {
		s = g.manager.of(g.form)
		g.blocks.Store(s)
	}
	return s
}

// Name returns the generator's name as it was given to the client.
func (g *Generator) Name() string { return g.manager.core.UserName(g.name) }

// Next returns an id that no call has returned before, in any process, above all that calls of this client have
// returned before this one began. A failover in which two masters serve for a while may give out ids twice, unless
// every client has redlatch.WithReplicas for all replicas; see the package's documentation.
//
// It costs nothing while the block has ids, and with [WithTimePrefix] its second lasts; another block is one round
// trip, and calls wait for the one that fetches it. They wait for Redis until ctx is done, or for the call timeout if
// ctx has no deadline (10 s by default, see redlatch.WithCallTimeout); meanwhile a call without an answer is repeated
// for another block. Then, and at once if the connection is refused, the error is redlatch.ErrUnavailable. It is that
// and redlatch.ErrNotConfirmed if the replicas do not confirm the block, which is not used then. It is [ErrExhausted]
// if no id is left.
func (g *Generator) Next(ctx context.Context) (int64, error) {
	id, err := g.next(ctx)
	if err != nil {
		return 0, errs.Wrap("rid", "next", g.Name(), err)
	}
	return id, nil
}

func (g *Generator) next(ctx context.Context) (int64, error) {
	c := g.manager.core
	switch {
	case g.err != nil:
		return 0, g.err
	case ctx == nil:
		return 0, core.ErrNilContext
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case c.Closed():
		return 0, errs.ErrClosed
	}
	s := g.sequence()
	if id, ok := g.manager.pop(s); ok {
		return id, nil
	}
	ctx, end := c.Bound(ctx)
	defer end()
	for {
		s.mu.Lock()
		if id, ok := g.manager.pop(s); ok { // of a block that has come meanwhile
			s.mu.Unlock()
			return id, nil
		}
		fetched := s.fetched
		if fetched == nil {
			s.fetched = make(chan struct{})
		}
		s.mu.Unlock()
		if fetched == nil {
			return g.fetch(ctx, s)
		}
		select {
		case <-fetched:
		case <-ctx.Done():
			return 0, core.Conclude(ctx, script.NotDone, script.ErrNoAnswer)
		}
	}
}

// fetch has Redis give out a block, and returns its first id. If a reply is lost so is its block, and the next one is
// asked for.
func (g *Generator) fetch(ctx context.Context, s *sequence) (int64, error) {
	var lowest, second int64
	clock := g.manager.core.Clock
	size, sent := g.opts.block, clock.Now()
	if g.opts.timed {
		size = 1
	}
	if b := s.block.Load(); b != nil {
		lowest, second = b.end, b.second
		switch {
		case g.opts.timed:
			size = min(g.opts.block, b.demand(sent))
		case sent-s.since < time.Duration(s.size)*hotRate:
			size = max(size, min(2*s.size, hotMost*size)) // another generator may have had smaller ones
		}
	}
	call, err := g.manager.core.Read(ctx, func() *script.Call {
		sent = clock.Now()
		call := blockScript.Call(1, g.key, size, lowest)
		if g.opts.timed {
			call = dayScript.Call(1, g.key, size, int64(1)<<g.opts.bits, second, lowest)
		}
		call.Confirms = true
		return call
	})
	if err == nil && call.Unconfirmed != nil { // another master may give out the same block
		err = fmt.Errorf("%w: %w", errs.ErrUnavailable, call.Unconfirmed)
	}
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) && !errors.Is(err, errs.ErrUnavailable) {
		err = core.Conclude(ctx, script.NotDone, script.ErrNoAnswer) // it ended while the call waited for another one's block
	}
	var id int64
	if err == nil {
		id, err = g.take(call, s, size, sent)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.fetched)
	s.fetched = nil
	if err == nil {
		s.size, s.since = size, clock.Now()
	}
	return id, err
}

// take takes a block of so many ids that was asked for at a time of the client's clock, and returns its first id.
func (g *Generator) take(call *script.Call, s *sequence, size int, sent time.Duration) (int64, error) {
	b := &block{}
	var first, count int64
	if g.opts.timed {
		row := call.Row()
		count, b.second, first = row.Int(), row.Int(), row.Int()
		b.lapses = sent + time.Duration(row.Int())*time.Microsecond
		if err := row.Err(); err != nil {
			return 0, err
		}
		seconds := b.second - g.opts.since()
		switch {
		case count == 0:
			return 0, fmt.Errorf("%w: the day has had %d", ErrExhausted, first)
		case seconds < 0 || seconds >= 1<<(63-g.opts.bits):
			return 0, fmt.Errorf("%w: %d seconds since the epoch do not fit into %d bits", ErrExhausted, seconds, 63-g.opts.bits)
		}
		b.prefix = seconds << g.opts.bits
	} else {
		var err error
		if first, err = call.Int(); err != nil {
			return 0, err
		}
		count = int64(size)
	}
	b.first, b.end = first, first+count
	b.next.Store(first + 1)
	s.block.Store(b)
	return b.prefix | first, nil
}
