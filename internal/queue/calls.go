package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// callNumber tells Redis one call from the others of its lane: it acts once on each, and on none below the last that it has seen. The
// numbers of a client rise, and it has one call in flight on each lane; a later call is sent only when nobody waits for the last one.
type callNumber struct {
	lane   int
	number uint64
}

// repeatLimit is how long a call is repeated under its number, which Redis remembers for an hour.
const repeatLimit = 50 * time.Minute

// operate runs an operation of the queue as a whole, one at a time.
func (q *Queue) operate(ctx context.Context, call func(k *keys, client string, n callNumber) *script.Call) (reply, error) {
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	c := q.manager.use(q)
	defer c.leave()
	ctx, cancel := c.core.Bound(ctx)
	defer cancel()
	select {
	case c.operating <- struct{}{}:
	case <-ctx.Done():
		return nil, core.Conclude(ctx, script.NotDone, script.ErrNotSent)
	case <-c.core.Closing():
		return nil, errs.ErrClosed
	}
	defer func() { <-c.operating }() // never blocks: the token is there
	if ctx.Err() != nil {
		return nil, core.Conclude(ctx, script.NotDone, script.ErrNotSent)
	}
	n := callNumber{number: c.core.NextNumber()}
	done, _, err := c.core.Query(ctx, func() *script.Call { return call(c.keys, c.core.ID, n) })
	return known(done, err)
}

// ask runs a call that only looks, on a queue whose name and context are in order.
func (q *Queue) ask(ctx context.Context, call func(k *keys) *script.Call) (reply, error) {
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	return known(q.manager.core.Read(ctx, func() *script.Call { return call(q.names()) }))
}

// known returns the array that a script answered with, unless that is the negative version of a newer layout.
func known(c *script.Call, err error) (reply, error) {
	if err != nil {
		return nil, err
	}
	r, err := replyOf(c)
	if err != nil || len(r) != 1 {
		return r, err
	}
	if first, err := r.int(0); err == nil && first < 0 {
		return nil, newerLayout(-first)
	}
	return r, nil
}

// background says how a call is sent that belongs to no caller. On one server the pipeline bounds it anyway; on a cluster it
// would wait as long as the user's read time-out says.
func background() pipeline.SendOptions { return pipeline.SendOptions{Limit: pipeline.Usual} }

// settleTries is how often a call that ends something is repeated without an answer.
const settleTries = 20

// end runs a call that may run twice and must get through, also while the client closes: until it is answered, or for about
// a minute. Earlier is what the tries before the answer may have done.
func (m *Manager) end(call func() *script.Call) (c *script.Call, earlier script.Outcome, err error) {
	ctx := context.Background() //nolint:forbidigo // bounded by the pipeline and by the tries
	earlier = script.NotDone
	for try := 0; ; try++ {
		c, err = m.core.Run(ctx, call, pipeline.SendOptions{Class: pipeline.Urgent})
		switch {
		case !script.Silent(err):
			return c, earlier, doubted(core.Explain(err), earlier)
		case try == settleTries || errors.Is(err, errs.ErrClosed):
			return c, script.Unknown, fmt.Errorf("%w: %w", errs.ErrUnknown, err)
		}
		if script.Judge(err) == script.Unknown {
			earlier = script.Unknown
		}
		if err := core.Sleep(m.life, pause(try)); err != nil {
			return c, script.Unknown, fmt.Errorf("%w: %w", errs.ErrUnknown, errs.ErrClosed)
		}
	}
}

// pause is the time after the given try, counted from 0.
func pause(try int) time.Duration {
	return backoff.Pause(try, 10*time.Millisecond, 500*time.Millisecond)
}

// doubted returns a certain error as an unknown outcome if an earlier try may have run.
func doubted(err error, earlier script.Outcome) error {
	if err == nil || earlier != script.Unknown || errors.Is(err, errs.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", errs.ErrUnknown, err)
}
