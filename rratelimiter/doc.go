// Package rratelimiter provides rate limits that processes share through Redis.
//
//	limiter := client.GetRateLimiter("api", rratelimiter.Per(100, time.Second), rratelimiter.WithBurst(20))
//	res, err := limiter.Allow(ctx, userID, 1)
//	if err != nil {
//		return err
//	}
//	if !res.Allowed {
//		return fmt.Errorf("try again in %v", res.RetryAfter)
//	}
//
// Each key has tokens of its own. They come back evenly, one each 10 ms in the example, up to the capacity of 20
// ([WithBurst]). Allow takes tokens that are there; Wait reserves them and blocks until they are; Info only looks. In any
// time t at most the capacity and what comes back within t is taken, exactly, however many clients ask: the generic cell
// rate algorithm, on the clock of Redis. So Per(20, 2*time.Second) lets 40 pass in the first 2 s, or 21 with a burst of 1.
//
// With [Window] in place of [Per] at most n tokens are taken in any time of one length, exactly, and all n at once if so
// many are there. It needs more memory.
//
// Package httplimit limits the requests of a net/http server.
//
// # What is promised
//
// The rate is never exceeded. An answer that was lost is an error, its tokens may have been taken, and the call is not
// repeated. The rate is the caller's and not kept in Redis, so it changes with a deployment: while two rates are in use,
// each call judges by its own. What was used before stays used: as a time of Per, as a number of Window.
//
// # What is not promised
//
// A master that fails over may forget the last calls, and one that restarts empty all of them. If the clock of Redis steps
// back, keys whose tokens were taken are refused for so much longer.
//
// # In Redis
//
// A key is one string, or a list of a window's takes. It expires when all its tokens are back. Millions of keys cost
// nothing while nobody uses them.
package rratelimiter
