package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/rratelimiter"
)

// Option configures the middleware.
type Option interface{ set(o *options) }

type setting func(*options)

func (s setting) set(o *options) { s(o) }

type options struct {
	failOpen bool
	onError  func(r *http.Request, err error)
	refuse   http.Handler
}

// WithFailOpen lets requests pass when the limiter fails, as it does while Redis does not answer. Without it they get 503.
func WithFailOpen() Option { return setting(func(o *options) { o.failOpen = true }) }

// WithErrorHandler has a function called with each error of the limiter, for a log or a metric, on the request's
// goroutine. Without it, as with nil, nobody learns of them.
func WithErrorHandler(fn func(r *http.Request, err error)) Option {
	return setting(func(o *options) { o.onError = fn })
}

// WithRefusal has a handler answer requests that are over the limit. The headers are set already; the status is the
// handler's to write. Without it, as with nil, the answer is 429 with a line of text.
func WithRefusal(h http.Handler) Option { return setting(func(o *options) { o.refuse = h }) }

// New returns a middleware that takes a token for each request, of the key that keyOf returns: the caller's account, or its
// address. A request with an empty key is not limited. A longer key than the limiter allows is shortened to it. An option that
// is nil is left out.
//
// Each limited response has the headers RateLimit-Policy and RateLimit (the IETF's draft), as in
//
//	RateLimit-Policy: "api";q=100;w=60
//	RateLimit: "api";r=42;t=35
//
// where r is what is left and t the seconds until all is back. A refused request gets 429 Too Many Requests with
// Retry-After, in seconds, rounded up. When the limiter fails, the request gets 503 Service Unavailable, or passes with
// [WithFailOpen]. One whose context is cancelled gets 503: its client has given up, or the server stops.
//
// A call costs one round trip, and waits for Redis at most as long as the request's context and the call timeout allow.
func New(l *rratelimiter.Limiter, keyOf func(*http.Request) string, opts ...Option) func(http.Handler) http.Handler {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt.set(&o)
		}
	}
	if o.onError == nil {
		o.onError = func(*http.Request, error) {}
	}
	if o.refuse == nil {
		o.refuse = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
		})
	}
	n, period := l.Rate()
	name := quoted(l.Name())
	policy := fmt.Sprintf("%s;q=%d;w=%d", name, n, seconds(period))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := keyOf(r)
			if key == "" {
				next.ServeHTTP(w, r)
				return
			}
			res, err := l.Allow(r.Context(), key[:min(len(key), rratelimiter.MaxKey)], 1)
			if err != nil {
				o.onError(r, err)
				if o.failOpen && !errors.Is(err, context.Canceled) {
					next.ServeHTTP(w, r)
					return
				}
				http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("RateLimit-Policy", policy)
			w.Header().Set("RateLimit", fmt.Sprintf("%s;r=%d;t=%d", name, res.Remaining, seconds(res.ResetAfter)))
			if res.Allowed {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Retry-After", strconv.FormatInt(seconds(res.RetryAfter), 10))
			o.refuse.ServeHTTP(w, r)
		})
	}
}

// seconds returns a time in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// quoted returns a name as a string of a structured header field, which has no characters beyond ASCII.
func quoted(name string) string {
	ascii := strings.Map(func(c rune) rune {
		if c < 0x20 || c > 0x7e {
			return '?'
		}
		return c
	}, name)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(ascii) + `"`
}
