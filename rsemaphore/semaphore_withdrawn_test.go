package rsemaphore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
)

// asked counts the acquisitions in each call of a script that has some.
type asked struct {
	mu   sync.Mutex // guards each
	each []int
}

func (a *asked) hook(_ *server.Peer, cmd string, args ...string) bool {
	n := 0
	for _, arg := range args {
		if arg == "a1" {
			n++
		}
	}
	if strings.HasPrefix(cmd, "EVAL") && n > 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.each = append(a.each, n)
	}
	return false
}

func (a *asked) take() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	each := a.each
	a.each = nil
	return each
}

func TestSemaphoreWithdrawnPermitsAreNotCountedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), b.Peer(t).GetSemaphore("s")
		s := p.GetSemaphore("s")
		give(t, s, 1)
		take(t, s, 1)
		waiting := []<-chan error{beginTake(t.Context(), s, 1), beginTake(t.Context(), s, 1), beginTake(t.Context(), s, 1)}
		time.Sleep(semaphoreMoment)
		p.HangReplies(1)
		silent := make(chan error, 1) // room for the result
		go func() { silent <- s.AddPermits(t.Context(), -1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), semaphoreMoment)
		defer cancel()
		require.ErrorIs(t, s.AddPermits(ctx, 5), context.DeadlineExceeded, "behind the one that is not answered")
		require.NoError(t, ended(t, silent))
		synctest.Wait()
		var seen asked
		b.Mini.Server().SetPreHook(seen.hook)
		release(t, other, 2)
		synctest.Wait()
		require.Equal(t, []int{1}, seen.take(), "one permit is there, so one asks")
		release(t, other, 2)
		for _, w := range waiting {
			require.NoError(t, ended(t, w))
		}
	})
}
