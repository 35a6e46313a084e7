package console

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"
)

const (
	sharedFor  = 2 * time.Second // how long an answer is shown
	sharedMost = 50              // answers that are kept, unless most says otherwise
)

// shared is what was asked for lately, for all who look at the console. Its zero value is ready to use.
type shared[T any] struct {
	most  int // answers that are kept
	share int // an answer is kept for share times as long as it has taken, if that is longer

	mu  sync.Mutex // guards all
	all map[string]*answer[T]
}

// answer is what was asked for. The one who asks sets it.
type answer[T any] struct {
	at    time.Time     // when it was asked for
	there chan struct{} // closed when the rest is set
	took  time.Duration
	value T
	err   error
}

// old reports whether an answer is to be asked for again.
func (s *shared[T]) old(_ string, a *answer[T]) bool {
	age := time.Since(a.at)
	select {
	case <-a.there:
		return age >= max(sharedFor, time.Duration(s.share)*a.took)
	default:
		return s.share == 0 && age >= sharedFor
	}
}

// get returns what ask has returned for a key, if that is not long ago, or returns now. Others may wait for the same, so that ask gets a
// context that does not end with ctx.
func (s *shared[T]) get(ctx context.Context, key string, ask func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	maps.DeleteFunc(s.all, s.old)
	a, known := s.all[key]
	if !known {
		a = &answer[T]{at: time.Now(), there: make(chan struct{})}
		if s.all == nil {
			s.all = map[string]*answer[T]{}
		}
		if len(s.all) < cmp.Or(s.most, sharedMost) {
			s.all[key] = a
		}
	}
	s.mu.Unlock()
	if !known {
		a.value, a.err = ask(context.WithoutCancel(ctx))
		a.took = time.Since(a.at)
		close(a.there)
	}
	select {
	case <-a.there:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// forget drops the answers to keys, which are asked for again when they are needed.
func (s *shared[T]) forget(is func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(key string, _ *answer[T]) bool { return is(key) })
}
