// Package httplimit limits the requests of a net/http server by a rate limiter that processes share.
//
//	limiter := client.GetRateLimiter("api", rratelimiter.Per(100, time.Minute))
//	limit := httplimit.New(limiter, func(r *http.Request) string { return r.Header.Get("X-Api-Key") })
//	http.Handle("/api/", limit(api))
package httplimit
