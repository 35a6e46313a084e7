package rid

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Generator returns ids. All generators of one name and form in a client take from one block. It is safe for concurrent
// use.
type Generator struct {
	manager *manager
	name    string // with the client's prefix
	key     string
	form    string // generators of the same form share their blocks
	opts    options
	err     error
}

// manager is a client's state for its generators.
type manager struct {
	core      *core.Core
	sequences *core.Table[*sequence] // by form
}

func newManager(c *core.Core) *manager { return &manager{c, core.NewTable[*sequence]()} }

// sequence is the block of a client for one generator. It is guarded by its shard of the table.
type sequence struct {
	left    int64         // how many ids the block has yet
	next    int64         // the next of them, of a timed generator the counter
	second  int64         // of the block, in s since 1970
	fetched chan struct{} // closed when the call that fetches a block has ended; nil for none
}

// New returns a client's generator by name. It is for the client: users call GetIDGenerator there.
func New(c *core.Core, name string, opts ...Option) *Generator {
	g := &Generator{manager: core.Manager(c, newManager), name: c.Prefix + name, opts: options{block: 1000}}
	for _, o := range opts {
		o(&g.opts)
	}
	g.err = core.CheckUserName(name, g.name)
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

// Name returns the generator's name as it was given to the client.
func (g *Generator) Name() string { return g.manager.core.UserName(g.name) }

// Next returns an id that no call has returned before, in any process, above all that calls of this client have returned
// before this one began.
//
// It costs nothing while the block has ids; another block is one round trip, and calls wait for the one that fetches
// it. They wait for Redis until ctx is done, or for the call timeout if ctx has no deadline (10 s by default, see
// redlatch.WithCallTimeout); meanwhile a call without an answer is repeated for another block. Then, and at once if the
// connection is refused, the error is redlatch.ErrUnavailable. It is [ErrExhausted] if no id is left.
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
	shard := g.manager.sequences.Shard(g.form)
	shard.Lock()
	s := shard.Of[g.form]
	if s == nil {
		s = &sequence{}
		shard.Of[g.form] = s
	}
	if s.left > 0 {
		defer shard.Unlock()
		return g.popLocked(s), nil
	}
	shard.Unlock()
	ctx, end := c.Bound(ctx)
	defer end()
	for {
		shard.Lock()
		if s.left > 0 {
			defer shard.Unlock()
			return g.popLocked(s), nil
		}
		fetched := s.fetched
		if fetched == nil {
			s.fetched = make(chan struct{})
		}
		shard.Unlock()
		if fetched == nil {
			return g.fetch(ctx, shard, s)
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
func (g *Generator) fetch(ctx context.Context, shard *core.Shard[*sequence], s *sequence) (int64, error) {
	lowest, second := s.next, s.second // they stay until the block has come
	call, err := g.manager.core.Read(ctx, func() *script.Call {
		if g.opts.timed {
			return dayScript.Call(1, g.key, g.opts.block, int64(1)<<g.opts.bits, second, lowest)
		}
		return blockScript.Call(1, g.key, g.opts.block, lowest)
	})
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) && !errors.Is(err, errs.ErrUnavailable) {
		err = core.Conclude(ctx, script.NotDone, script.ErrNoAnswer) // it ended while the call waited for another one's block
	}
	shard.Lock()
	defer shard.Unlock()
	close(s.fetched)
	s.fetched = nil
	if err == nil {
		err = g.tookLocked(s, call)
	}
	if err != nil {
		return 0, err
	}
	return g.popLocked(s), nil
}

// tookLocked takes a block.
func (g *Generator) tookLocked(s *sequence, call *script.Call) error {
	if !g.opts.timed {
		first, err := call.Int()
		if err == nil {
			s.next, s.left = first, int64(g.opts.block)
		}
		return err
	}
	row := call.Row()
	count, second, counter := row.Int(), row.Int(), row.Int()
	if err := row.Err(); err != nil {
		return err
	}
	seconds := second - g.opts.since()
	switch {
	case count == 0:
		return fmt.Errorf("%w: the day has had %d", ErrExhausted, counter)
	case seconds < 0 || seconds >= 1<<(63-g.opts.bits):
		return fmt.Errorf("%w: %d seconds since the epoch do not fit into %d bits", ErrExhausted, seconds, 63-g.opts.bits)
	}
	s.left, s.second, s.next = count, second, counter
	return nil
}

func (g *Generator) popLocked(s *sequence) int64 {
	id := s.next
	s.next++
	s.left--
	if g.opts.timed {
		return (s.second-g.opts.since())<<g.opts.bits | id
	}
	return id
}
