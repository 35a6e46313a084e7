package rscheduler

import (
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/script"
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
	// ErrLayout is returned for a scheduler whose keys were written by a version of this library that keeps them in another way. Its text
	// names the keys, and says what to do.
	ErrLayout = errors.New("the scheduler has another layout")
)

// errDied is the error of a run whose process died, and which is not repeated. Its result is that of the last attempt.
var errDied = errors.New("the process died")

// layout is the version of the keys. Version 1 was never released.
const layout = 2

// timeOf reads the time, µs, that begins a reply, or the version of keys that this library does not read.
func (k *keys) timeOf(row *script.Row) (int64, error) {
	now := row.Int()
	switch version := -now; {
	case now >= 0:
		return now, nil
	case version < layout:
		return 0, fmt.Errorf("%w: the keys %s* are of version %d, and this library reads version %d: stop all processes of the older one, delete the keys %s* and %s*, and start again; pauses, results and runs that wait are lost", ErrLayout, k.base, version, layout, k.base, k.queue.Base)
	default:
		return 0, fmt.Errorf("%w: the keys %s* are of version %d, and this library reads version %d: update this program", ErrLayout, k.base, version, layout)
	}
}
