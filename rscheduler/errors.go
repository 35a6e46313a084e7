package rscheduler

import (
	"errors"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// The errors of schedulers, in addition to those of package redlatch. They come wrapped with what was being done; test them with
// errors.Is.
var (
	// ErrNotFound is returned for a job that no process has registered and run, or that was removed. It is
	// rdelayedqueue.ErrNotFound.
	ErrNotFound = errs.ErrNotFound
	// ErrTimeout is the cause of a handler's context after the time of [WithTimeout], and the error of its run. It is
	// rdelayedqueue.ErrTimeout.
	ErrTimeout = errs.ErrTimeout
	// ErrLost is the cause of a handler's context if its claim is over, so that another process may repeat the run. It is
	// rlock.ErrLost.
	ErrLost = errs.ErrLost
	// ErrStopped is the cause of a handler's context if Run stops and the grace of [WithStopGrace] is over.
	ErrStopped = queue.ErrStopped
)

// errDied is the error of a run whose process died, and which is not repeated. Its result is that of the last attempt.
var errDied = errors.New("the process died")
