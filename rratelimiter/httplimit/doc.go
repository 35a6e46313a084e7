// Package httplimit limits the requests of a net/http server by a rate limiter that processes share.
//
//	limiter := client.GetRateLimiter("api", rratelimiter.Per(100, time.Minute))
//	limit := httplimit.New(limiter, func(r *http.Request) string {
//		host, _, _ := net.SplitHostPort(r.RemoteAddr)
//		return cmp.Or(r.Header.Get("X-Api-Key"), host)
//	})
//	http.Handle("/api/", limit(api))
//
// A request with an empty key is not limited, so one without the header is limited by its address here. A header limits only those who
// cannot choose what it says: check it first.
package httplimit
