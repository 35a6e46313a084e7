package rsemaphore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/redlatch/redlatch/internal/batch"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// changes numbers what a client changes about its semaphores, and has the changes of one name follow one another: Redis
// takes no change whose number is not above that of the last one.
type changes struct {
	mu    sync.Mutex // guards all below
	last  int64
	turns map[string]*turn // of the names that are being changed
}

// turn is held by the change of a name that is under way.
type turn struct {
	token chan struct{} // 1: holds a token while a change is under way
	users int           // who has it, and who waits for it; guarded by the changes' mu
}

// resize changes the number of permits once, however often the change has to be sent.
func (s *PermitSemaphore) resize(ctx context.Context, how string, n int) (bool, error) {
	if err := s.checkChange(ctx, how, n); err != nil {
		return false, err
	}
	e, all := s.space.engine, &s.space.changes
	number, done, err := all.begin(ctx, e, s.name.Key())
	if err != nil {
		return false, err
	}
	defer done()
	c := change{key: s.name.Key(), client: e.ID, number: number, how: how, permits: n}
	for {
		reply, _, err := e.Query(ctx, func() *script.Call { return permitKind{}.resize(c) })
		switch {
		case err == nil:
			n, err := reply.Int()
			return n > 0, err
		case script.Judge(err) != script.Unknown:
			return false, err
		case !errors.Is(err, errs.ErrUnknown) || ctx.Err() != nil || e.Closed():
			s.space.void(c)
			return false, err
		}
	}
}

// checkChange judges a change before any I/O.
func (s *PermitSemaphore) checkChange(ctx context.Context, how string, n int) error {
	if err := s.check(); err != nil {
		return err
	}
	if how == "add" {
		if n == 0 || n < -math.MaxInt32 || n > math.MaxInt32 {
			return fmt.Errorf("%w: delta %d is 0 or not between -%d and %d", errs.ErrInvalid, n, math.MaxInt32, math.MaxInt32)
		}
	} else if err := checkCount("permits", n); err != nil {
		return err
	}
	if err := s.within("permits", n); err != nil {
		return err
	}
	if ctx == nil {
		return engine.ErrNilContext
	}
	return ctx.Err()
}

// begin waits until no other change of the name is under way, and numbers the next one. The caller calls done after it.
func (a *changes) begin(ctx context.Context, e *engine.Engine, key string) (number int64, done func(), err error) {
	a.mu.Lock()
	t := a.turns[key]
	if t == nil {
		if a.turns == nil {
			a.turns = map[string]*turn{}
		}
		t = &turn{token: make(chan struct{}, 1)}
		a.turns[key] = t
	}
	t.users++
	a.mu.Unlock()
	leave := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(a.turns, key)
		}
	}
	select {
	case t.token <- struct{}{}:
	case <-ctx.Done():
		leave()
		return 0, nil, ctx.Err()
	case <-e.Closing():
		leave()
		return 0, nil, errs.ErrClosed
	}
	a.mu.Lock()
	a.last++
	number = a.last
	a.mu.Unlock()
	return number, func() { <-t.token; leave() }, nil
}

// void keeps a change whose caller gave up from taking effect, if it has not had one, in the background.
func (s *PermitSpace) void(c change) {
	c.how = "void"
	e := s.engine
	e.Settler.Add(func(report func(settled bool)) {
		e.Batch.Start(permitKind{}.resize(c), batch.Urgent, func(reply *script.Call) {
			_, err := reply.Int()
			report(err == nil || script.Judge(err) == script.NotDone && !script.Transient(err))
		})
	}, func() {}, e.Clock.Now()+e.Lease)
}
