// Package rscheduler runs scheduled jobs: each tick once, on one of the processes that share the scheduler.
//
//	s := client.GetScheduler("billing")
//	err := s.Register("close-orders", rscheduler.MustCron("*/5 * * * *"), closeOrders)
//	...
//	err = s.Run(ctx) // in each process
//
// A tick is a message of a delayed queue, see package rdelayedqueue, under the id job@instant. All processes come to the same
// instants by Redis's clock, and offer them up to half a minute ahead, and of each job at least the next one; the id makes the
// offers of the others harmless. One of them claims the tick, a few milliseconds after its instant, renews the claim while the
// handler runs, and the tick is claimed anew if its process dies.
//
// # What is promised
//
// Each tick of a job that somebody runs is begun once, however many processes there are and whatever their clocks show, unless the
// job is paused or its [Overlap] leaves the tick out. A run whose process died is repeated after the lease (30 s, see [WithLease]),
// with [Run.Attempt] 2, unless the job has [WithAtMostOnce]. The context of a handler ends before its run can be repeated elsewhere.
// Unless [WithOverlap] says so, no two runs of a job go on at the same time.
//
// The schedule of a job, pauses, results and what runs are kept in Redis. A pause outlasts all processes. When Redis has lost its data,
// the jobs that are registered are there again after 10 s; pauses and results are not.
//
// # What is not promised
//
// A run may be repeated although its handler returned, if its process died or lost Redis just then: handlers should bear that, or have
// [WithAtMostOnce], with which it may be lost instead. [Run.Token] fences off a handler that goes on after its context has ended. What
// a master loses in a failover before a replica has it is lost: a tick may then run again. The keys must not be evicted. When Redis has
// lost its data, or after [Scheduler.Remove], an [At] within the window of [WithCatchUp] may run again.
//
// Handlers of one process share [WithConcurrency]: ticks for which all processes are too busy begin late. If a tick is more than 5 s late
// when the next one of its job is due, only the newest tick runs, unless it has waited for another run (see [Queue]), or the job has
// [Allow] or [WithBackfill].
//
// A process claims ticks of jobs that it has not registered as well, and passes them on at once: where processes of one scheduler have
// different jobs ticks begin some milliseconds later for each process that has to pass them on.
package rscheduler
