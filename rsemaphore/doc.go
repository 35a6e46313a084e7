// Package rsemaphore provides semaphores that processes share through Redis: at most n of something happen at a time.
//
//	jobs := client.GetSemaphore("jobs")
//	if _, err := jobs.TrySetPermits(ctx, 5); err != nil { // the first process sets them
//		return err
//	}
//	if err := jobs.Acquire(ctx, 1); err != nil {
//		return err
//	}
//	defer jobs.Release(ctx, 1)
//	return work(ctx)
//
// # Two kinds
//
// A [Semaphore] is a counter. Its permits belong to nobody: another process may release them, and the permits of a process
// that dies are gone until someone adds them. A [PermitSemaphore] leases each permit to its holder, renews it, and gets
// it back when the holder dies. Prefer it where processes may crash.
//
// # What is promised
//
// Every operation takes effect at most once, and exactly once if it succeeds, also if its reply is lost and it is
// repeated. A call that gives up keeps nothing: what it was granted is given back. Waiters of one client are served
// first come, first served, so small requests do not starve a large one. A lost message delays a waiter by about a
// second.
//
// # What is not promised
//
// There is no order among processes. Redis replicates asynchronously: a master that fails over may forget its last
// operations, and the number of permits is then wrong.
package rsemaphore
