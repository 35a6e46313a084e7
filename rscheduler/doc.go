// Package rscheduler runs scheduled jobs: each tick once, on one of the processes that share the scheduler.
//
//	s := client.GetScheduler("billing")
//	err := s.Register("close-orders", rscheduler.MustCron("*/5 * * * *"), closeOrders)
//	...
//	err = s.Run(ctx) // in each process
//
// A tick is a message of a delayed queue, see package rdelayedqueue, under the id job@instant. The script that ends a run puts the next
// tick of its job into the queue, and with [Allow] the one that begins it. A process claims the tick a few milliseconds after its instant
// by Redis's clock, and renews the claim while the handler runs; if it dies, the tick is claimed again. In the sources, states.md has the
// states of a tick, and what is kept of a job: HGETALL of its hash says it all.
//
// # What is promised
//
// Each tick of a job that somebody runs is begun once, however many processes there are and whatever their clocks show, unless the
// job is paused or its [Overlap] leaves the tick out. A run whose process died is repeated after the lease (30 s, see [WithLease]),
// with [Run.Attempt] 2, unless the job has [WithAtMostOnce]. The context of a handler ends before its run can be repeated elsewhere.
// Unless [WithOverlap] says so, no two runs of a job go on at the same time.
//
// The schedule of a job, pauses, results and what runs are kept in Redis. A pause outlasts all processes. When Redis has lost its data,
// the jobs that are registered are there again within 13 s; pauses and results are not. A run that goes on then learns of it at its next
// renewal, a third of the lease later at most, and the next tick may begin before.
// Keys of another version of this library are refused, see [ErrLayout].
//
// # What is not promised
//
// A run may be repeated although its handler returned, if its process died or lost Redis just then: handlers should bear that, or have
// [WithAtMostOnce], with which it may be lost instead. [Run.Token] fences off a handler that goes on after its context has ended. What
// a master loses in a failover before a replica has it is lost: a tick may then run again. The keys must not be evicted. When Redis has
// lost its data, or after [Scheduler.Remove], an [At] within the window of [WithCatchUp] may run again.
//
// Handlers of one process share [WithConcurrency]: ticks for which all processes are too busy begin late. If a tick is more than 5 s late
// when the next one of its job is due, only the newest tick runs, unless the job has [Allow] or [QueueAll].
// A process that dies after it has claimed a tick holds up its job for the lease. If Redis's clock steps back, ticks come when it shows
// their time again: a job that comes each minute is silent for an hour if the step is an hour.
//
// A process claims ticks of jobs that it has not registered as well, and passes them on at once: where processes of one scheduler have
// different jobs ticks begin some milliseconds later for each process that has to pass them on.
package rscheduler
