// Package rexecutor runs named tasks in worker processes, and brings their results back.
//
//	var Resize = rexecutor.NewTask[ResizeArgs, Image]("resize", rexecutor.WithMaxAttempts(5)) // for both sides
//
//	ex := rexecutor.New(client, "media")
//
//	// where the work is done
//	err := Resize.Handle(ex, func(ctx context.Context, c rexecutor.Call[ResizeArgs]) (Image, error) {
//		return resize(ctx, c.Args)
//	})
//	err = ex.Work(ctx, rexecutor.WithConcurrency(16))
//
//	// where it is wanted
//	f, err := Resize.Submit(ctx, ex, args)
//	img, err := f.Get(ctx)
//
// [Task.Send] submits a task whose result nobody wants: a job.
//
// # What is promised
//
// A task is a message of a delayed queue: it is begun at least once, and not before it is due. A worker that dies loses its claim after the
// visibility (30 s by default), and another begins the task again. The end of a task, its result and its acknowledgement are one step: of a task that
// has ended there is a result, and a worker that has lost its claim cannot end it. So handlers may run twice, and should bear that; a resource
// that checks [Info].Token refuses the older of two.
//
// A submission with the id of another is that other, see [WithID].
//
// A worker claims only tasks that it handles, and whose limit of [WithTaskConcurrency] is not reached. An executor has at most 100 tasks: all
// names that were ever submitted or handled count, until the executor has had no task, dead ones included, for a day.
//
// # Costs
//
// Work, claims and retries cost what a delayed queue costs, see package rdelayedqueue, and a command each 10 s for a worker. [Future.Get] waits on one
// channel of the client, and asks about once a second, for all futures of an executor together. All keys of an executor are in one slot of a cluster:
// it is as fast as one node.
package rexecutor
