package httplimit_test

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rratelimiter/httplimit"
)

func ExampleNew() {
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	limiter := client.GetRateLimiter("api", rratelimiter.Per(2, time.Minute))
	limit := httplimit.New(limiter, func(r *http.Request) string {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return cmp.Or(r.Header.Get("X-Api-Key"), host) // one with an empty key would not be limited
	})
	api := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") }))

	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/api/greeting", nil)
		r.Header.Set("X-Api-Key", "ann")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 hello
	// 200 hello
	// 429 Too Many Requests
}
