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
// rate algorithm, on the clock of Redis.
//
// Package httplimit limits the requests of a net/http server.
//
// # What is promised
//
// The rate is never exceeded. An answer that was lost is an error, its tokens may have been taken, and the call is not
// repeated. The rate is the caller's and not kept in Redis, so it changes with a deployment: while two rates are in use,
// each call judges by its own.
//
// # What is not promised
//
// A master that fails over may forget the last calls, and one that restarts empty all of them. If the clock of Redis steps
// back, keys whose tokens were taken are refused for so much longer.
//
// # In Redis
//
// A key is one string, which expires when all its tokens are back. Millions of keys cost nothing while nobody uses them.
package rratelimiter
