package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rratelimiter/httplimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func byAccount(r *http.Request) string { return r.Header.Get("Account") }

// get has a handler answer a request of an account.
func get(ctx context.Context, h http.Handler, account string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	r.Header.Set("Account", account)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func TestRequestsAboveTheLimitGet429(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetRateLimiter(`a"p`, rratelimiter.Per(2, time.Minute))
		h := httplimit.New(l, byAccount)(served)
		for _, left := range []string{"r=1;t=30", "r=0;t=60"} {
			r := get(t.Context(), h, "ann")
			assert.Equal(t, http.StatusNoContent, r.StatusCode)
			assert.Equal(t, `"a\"p";q=2;w=60`, r.Header.Get("RateLimit-Policy"))
			assert.Equal(t, `"a\"p";`+left, r.Header.Get("RateLimit"))
			assert.Empty(t, r.Header.Get("Retry-After"))
		}
		r := get(t.Context(), h, "ann")
		assert.Equal(t, http.StatusTooManyRequests, r.StatusCode)
		assert.Equal(t, "30", r.Header.Get("Retry-After"))
		assert.Equal(t, http.StatusNoContent, get(t.Context(), h, "bob").StatusCode)
		assert.Equal(t, http.StatusNoContent, get(t.Context(), h, strings.Repeat("k", 1000)).StatusCode)
		for range 3 {
			r := get(t.Context(), h, "")
			assert.Equal(t, http.StatusNoContent, r.StatusCode, "not limited")
			assert.Empty(t, r.Header.Get("RateLimit"))
		}
		own := httplimit.New(l, byAccount, httplimit.WithRefusal(http.RedirectHandler("/busy", http.StatusSeeOther)))(served)
		assert.Equal(t, http.StatusSeeOther, get(t.Context(), own, "ann").StatusCode)
	})
}

func TestRequestsAboveAWindowGet429(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := httplimit.New(b.Peer(t).GetRateLimiter("api", rratelimiter.Window(2, time.Minute)), byAccount)(served)
		for _, left := range []string{"r=1;t=60", "r=0;t=60"} {
			r := get(t.Context(), h, "ann")
			assert.Equal(t, http.StatusNoContent, r.StatusCode)
			assert.Equal(t, `"api";q=2;w=60`, r.Header.Get("RateLimit-Policy"))
			assert.Equal(t, `"api";`+left, r.Header.Get("RateLimit"))
			time.Sleep(10 * time.Second)
		}
		r := get(t.Context(), h, "ann")
		assert.Equal(t, http.StatusTooManyRequests, r.StatusCode)
		assert.Equal(t, "40", r.Header.Get("Retry-After"))
		assert.Equal(t, `"api";r=0;t=50`, r.Header.Get("RateLimit"))
		time.Sleep(40 * time.Second)
		assert.Equal(t, http.StatusNoContent, get(t.Context(), h, "ann").StatusCode)
	})
}

func TestNilOptionChangesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetRateLimiter("api", rratelimiter.Per(1, time.Minute))
		h := httplimit.New(l, byAccount, nil)(served)
		assert.Equal(t, http.StatusNoContent, get(t.Context(), h, "ann").StatusCode)
		assert.Equal(t, http.StatusTooManyRequests, get(t.Context(), h, "ann").StatusCode)
	})
}

// F27
func TestRequestsWithoutRedisGet503OrPass(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetRateLimiter("api", rratelimiter.Per(2, time.Minute))
		p.Refuse(true)
		p.Cut()
		var errs []error
		closed := httplimit.New(l, byAccount, httplimit.WithErrorHandler(func(_ *http.Request, err error) { errs = append(errs, err) }))(served)
		assert.Equal(t, http.StatusServiceUnavailable, get(t.Context(), closed, "ann").StatusCode)
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], redlatch.ErrUnavailable)
		open := httplimit.New(l, byAccount, httplimit.WithFailOpen())(served)
		assert.Equal(t, http.StatusNoContent, get(t.Context(), open, "ann").StatusCode)
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		assert.Equal(t, http.StatusServiceUnavailable, get(ctx, closed, "ann").StatusCode, "who set the deadline may wait for the answer")
		assert.Equal(t, http.StatusNoContent, get(ctx, open, "ann").StatusCode)
	})
}

// net/http answers 200 for a handler that has written nothing.
//
// F25
func TestCanceledRequestsAreNotServedAndGet503(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetRateLimiter("api", rratelimiter.Per(2, time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, limit := range []func(http.Handler) http.Handler{httplimit.New(l, byAccount), httplimit.New(l, byAccount, httplimit.WithFailOpen())} {
			assert.Equal(t, http.StatusServiceUnavailable, get(ctx, limit(served), "ann").StatusCode)
		}
	})
}

// A service that has configured no log must not fail when Redis does.
//
// F27
func TestNilHandlersAreThoseWithoutTheOption(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetRateLimiter("api", rratelimiter.Per(1, time.Minute))
		h := httplimit.New(l, byAccount, httplimit.WithFailOpen(), httplimit.WithErrorHandler(nil), httplimit.WithRefusal(nil))(served)
		assert.Equal(t, http.StatusNoContent, get(t.Context(), h, "ann").StatusCode)
		assert.Equal(t, http.StatusTooManyRequests, get(t.Context(), h, "ann").StatusCode)
		p.Refuse(true)
		p.Cut()
		assert.Equal(t, http.StatusNoContent, get(t.Context(), h, "ann").StatusCode)
	})
}
