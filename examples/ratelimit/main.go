// Ratelimit is an HTTP server that lets each account pass 5 requests at once, and one more every 2 s.
//
//	go run ./examples/ratelimit
//
// Watch that the requests of ann above the limit get status 429, with Retry-After; that bob has a limit of his own; that a second server
// has the same limits, as it has the same Redis; and that ann gets an answer again after Retry-After. The program ends with an error if
// more than the rate passed, or if ann was turned away after that time. It takes about 3 s.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rratelimiter/httplimit"
)

const (
	burst = 5
	every = 2 * time.Second // a request more
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("ratelimit: ", err) //nolint:gocritic // the context ends with the process
	}
}

func run(ctx context.Context) error {
	redis, err := embedded.Start() // in production: the Redis that all servers have
	if err != nil {
		return err
	}
	defer redis.Close()
	var urls []string
	for range 2 { // as if they were processes: each has a client of its own
		client, err := redlatch.Open(ctx, redis.URL())
		if err != nil {
			return err
		}
		defer client.Close()
		server := httptest.NewServer(limited(client, http.HandlerFunc(hello)))
		defer server.Close()
		urls = append(urls, server.URL)
	}

	start := time.Now()
	passed, retry := 0, time.Duration(0)
	for n := range burst + 3 {
		ok, after, err := get(ctx, urls[n%2], "ann")
		if err != nil {
			return err
		}
		if ok {
			passed++
		} else {
			retry = after
		}
	}
	if most := burst + int(time.Since(start)/every); passed < burst || passed > most {
		return fmt.Errorf("%d requests passed, not %d to %d", passed, burst, most)
	}
	fmt.Printf("ann waits for %v\n", retry)
	bob, _, err1 := get(ctx, urls[0], "bob")
	time.Sleep(retry)
	ann, _, err2 := get(ctx, urls[0], "ann")
	if !bob || !ann {
		return errors.Join(errors.New("bob, or ann after Retry-After, was turned away"), err1, err2)
	}
	return nil
}

// limited limits the requests of each account, and of each address without one.
func limited(client *redlatch.Client, api http.Handler) http.Handler {
	limiter := client.GetRateLimiter("api", rratelimiter.Per(burst, burst*every))
	limit := httplimit.New(limiter, func(r *http.Request) string {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return cmp.Or(r.Header.Get("Account"), host) // one with an empty key would not be limited
	})
	return limit(api)
}

func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "hello, %s", r.Header.Get("Account"))
}

// get sends a request of an account, and reports whether it passed, or else the time to wait.
func get(ctx context.Context, url, account string) (ok bool, after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, 0, err
	}
	r.Header.Set("Account", account)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, 0, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	fmt.Printf("%s: %-21s  RateLimit: %-16s Retry-After: %s\n", account, response.Status, response.Header.Get("RateLimit"), response.Header.Get("Retry-After"))
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode == http.StatusOK, time.Duration(seconds) * time.Second, nil
}
