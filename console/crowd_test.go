package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// A client answers ten questions a second. How many look at its page is not its concern.
func TestPageOfAClientIsThereForManyViewers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		hold := locktest.Acquire(t, t.Context(), c.GetLock("orders"))
		time.Sleep(4 * time.Second)
		h := Handler(unhurried(t, b))
		look := func() string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/client?id="+c.ID(), nil))
			return w.Body.String()
		}
		var viewers sync.WaitGroup
		for range 30 {
			viewers.Go(func() { assert.Contains(t, look(), "Holds: 1") })
		}
		viewers.Wait()
		locktest.Unlock(t, hold)
		assert.Contains(t, look(), "Holds: 1", "it is asked again after a while")
		time.Sleep(crowdFor)
		assert.Contains(t, look(), "Holds: 0")
	})
}

func TestAnswersOfClientsAreForgotten(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := crowd{client: unhurried(t, b)}
		for i := range 2 * sharedMost {
			_, err := c.ask(t.Context(), fmt.Sprint("nonsense ", i))
			assert.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		assert.Len(t, c.asked.all, sharedMost)
		time.Sleep(crowdFor)
		_, err := c.ask(t.Context(), "nonsense")
		assert.ErrorIs(t, err, redlatch.ErrInvalid)
		assert.Len(t, c.asked.all, 1)
	})
}
