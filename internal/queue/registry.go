package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// Registry is what a client does with delayed queues just now. It is safe for concurrent use.
type Registry struct {
	core  *core.Core
	calls atomic.Uint64   // number of the last claim, or call of turns
	crew  crew            // the goroutines of all hubs
	life  context.Context //nolint:containedctx // until Drain gives up what is under way
	over  context.CancelFunc

	mu   sync.Mutex // guards all below, and the users of each hub; a leaf
	hubs map[string]*hub
	live map[*Message]struct{} // claimed, not finished, not lost
}

// NewRegistry returns a registry that closes with its core.
func NewRegistry(e *core.Core) *Registry {
	r := &Registry{core: e, hubs: map[string]*hub{}, live: map[*Message]struct{}{}}
	r.life, r.over = context.WithCancel(context.Background()) //nolint:forbidigo // ended by Drain
	e.Register(r)
	return r
}

// hub is a queue that this client does something with.
type hub struct {
	registry *Registry
	core     *core.Core
	name     string
	keys     *keys
	users    int // guarded by the registry's mu

	offers gatherer[offer]
	acks   gatherer[ack]
	nacks  gatherer[nack]
	backs  gatherer[Claimed]
	turns  turns
	lane   lane
	due    *timer.Batch[*Message] // to be renewed
}

// use returns the hub of a queue, which stays until it is left as often.
func (r *Registry) use(q *Queue) *hub {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hubs[q.full]
	if h == nil {
		h = &hub{registry: r, core: r.core, name: q.full, keys: q.names()}
		h.offers = gatherer[offer]{crew: &r.crew, send: h.sendOffers, weight: func(o *offer) int { return len(o.payload) }, ahead: true}
		h.acks = gatherer[ack]{crew: &r.crew, send: h.sendAcks, weight: func(*ack) int { return 1 }}
		h.nacks = gatherer[nack]{crew: &r.crew, send: h.sendNacks, weight: func(n *nack) int { return len(n.text) }}
		h.backs = gatherer[Claimed]{crew: &r.crew, send: h.sendBacks, weight: func(*Claimed) int { return 1 }}
		h.due = timer.NewBatch(r.core.Timers, h.renew)
		h.lane.hub = h
		r.hubs[q.full] = h
	}
	h.users++
	return h
}

// stay keeps a hub that somebody else uses, and reports whether anybody does: one that was left by all may have a successor.
func (h *hub) stay() bool {
	r := h.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.users == 0 {
		return false
	}
	h.users++
	return true
}

func (h *hub) leave() {
	r := h.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.users--; h.users == 0 && r.hubs[h.name] == h {
		delete(r.hubs, h.name)
	}
}

// Closing ends the contexts of all messages and all waits for messages.
func (r *Registry) Closing() {
	r.mu.Lock()
	var hubs []*hub
	for _, h := range r.hubs {
		hubs = append(hubs, h)
	}
	live := r.messages()
	r.mu.Unlock()
	for _, h := range hubs {
		h.lane.close()
	}
	for _, m := range live {
		m.cancel(errs.ErrClosed)
	}
}

// messages returns the live messages. It is called with mu held.
func (r *Registry) messages() []*Message {
	live := make([]*Message, 0, len(r.live))
	for m := range r.live {
		live = append(live, m)
	}
	return live
}

// Open returns the number of messages that are neither finished nor lost.
func (r *Registry) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// Drain has the messages that are left redelivered at once, unless they are to be abandoned, and waits for what is under way,
// until the limit is over.
func (r *Registry) Drain(limit time.Duration) {
	r.mu.Lock()
	live := r.messages()
	r.mu.Unlock()
	//nolint:forbidigo // bounded by the limit
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if !r.core.Abandon {
		nackAll(ctx, live)
	}
	r.crew.Wait(ctx)
	r.over()
}

// Wait waits until then for the crew, of which some wait for replies of a server that is silent.
func (r *Registry) Wait(until time.Time) {
	//nolint:forbidigo // bounded by the time
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	r.crew.Wait(ctx)
}

// settleTries is how long a call that ends something is repeated without an answer.
const settleTries = 20

// end runs a call that may run twice and must get through, also while the client closes: until it is answered, or for a few
// seconds.
func (r *Registry) end(call func() *script.Call) (*script.Call, error) {
	ctx := context.Background()          //nolint:forbidigo // bounded by the batcher and by the tries
	for try, open := 0, false; ; try++ { // open: one may have run
		c, err := r.core.Run(ctx, call, pipeline.Ask{Class: pipeline.Urgent})
		switch {
		case !script.Silent(err):
			return c, doubted(core.Explain(err), open)
		case try == settleTries || errors.Is(err, errs.ErrClosed):
			return c, fmt.Errorf("%w: %w", errs.ErrUnknown, err)
		}
		open = open || script.Judge(err) == script.Unknown
		if err := core.Sleep(r.life, core.Jitter(pause(try))); err != nil {
			return c, fmt.Errorf("%w: %w", errs.ErrUnknown, errs.ErrClosed)
		}
	}
}

// pause is the time after the given try, counted from 0.
func pause(try int) time.Duration {
	return min(10*time.Millisecond<<min(try, 10), 500*time.Millisecond)
}

// doubted returns a certain error as an unknown outcome if an earlier try may have run.
func doubted(err error, open bool) error {
	if err == nil || !open || errors.Is(err, errs.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", errs.ErrUnknown, err)
}

// query runs a call that may run twice, until it is answered, ctx is done or the client closes. It returns whether a try that was
// not answered may have run.
func (r *Registry) query(ctx context.Context, call func() *script.Call) (c *script.Call, open bool, err error) {
	for {
		c, repeated, err := r.core.Query(ctx, call)
		unknown := errors.Is(err, errs.ErrUnknown)
		open = open || repeated || unknown
		if !unknown && !script.Crowded(err) || ctx.Err() != nil || r.core.Closed() {
			return c, open, err
		}
	}
}

// act is query for a call that changes something.
func (r *Registry) act(ctx context.Context, call func() *script.Call) (*script.Call, error) {
	c, open, err := r.query(ctx, call)
	if ctx.Err() != nil {
		return c, err
	}
	return c, doubted(err, open)
}

// read is query for a call that only looks. One that the client's end has interrupted is ErrClosed.
func (r *Registry) read(ctx context.Context, call func() *script.Call) (*script.Call, error) {
	c, _, err := r.query(ctx, call)
	return c, r.core.Interrupted(ctx, err)
}

// twice runs a call that may run twice, and again until it is answered, the client closes or the limit is over.
func (r *Registry) twice(call func() *script.Call, limit time.Duration) (*script.Call, error) {
	ctx := context.Background() //nolint:forbidigo // bounded by the batcher, then by the limit
	c, err := r.core.Run(ctx, call, pipeline.Ask{})
	if !script.Silent(err) {
		return c, core.Explain(err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, open, again := r.query(ctx, call)
	switch {
	case again == nil:
		return c, nil
	case ctx.Err() == nil: // an answer after all, or the client has closed
		err = again
	}
	return c, doubted(err, open || script.Judge(err) == script.Unknown)
}

// wake has a client woken that waits for messages, also while this one closes: others hear of what it leaves. If that fails they
// find it by their safety checks.
func (h *hub) wake() {
	ctx := context.Background() //nolint:forbidigo // Query ends after a lease, and with the client
	if _, _, err := h.core.Query(ctx, h.keys.wake); err != nil && h.core.Closed() {
		_, _ = h.registry.end(h.keys.wake) // as said above
	}
}
