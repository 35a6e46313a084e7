package redlatch

import (
	"context"
	"fmt"
	"iter"

	"github.com/redlatch/redlatch/internal/find"
	"github.com/redlatch/redlatch/internal/option"
)

// Object is an object that Redis has keys or waiters of.
type Object struct {
	// Kind is its kind: lock, fair_lock, rw_lock, semaphore, permits (a semaphore of leased permits), latch, barrier, queue, executor,
	// scheduler, election or cache.
	Kind string
	// Name is its name.
	Name string
	// Info is its state, in the order of kinds: an rlock.Info, rfairlock.Info, rrwlock.Info, rsemaphore.SemaphoreInfo,
	// rsemaphore.PermitSemaphoreInfo, rlatch.Info, rbarrier.Info, rdelayedqueue.Stats, rexecutor.Stats, []rscheduler.Job or
	// relection.Leader; nil for a cache.
	Info any
}

// ObjectsOption is a setting of [Client.Objects].
type ObjectsOption interface{ set(o *objectsOptions) }

type objectsSetting func(*objectsOptions)

func (s objectsSetting) set(o *objectsOptions) { s(o) }

type objectsOptions struct{ kinds []string }

// WithKinds leaves out objects whose [Object.Kind] is none of these, which costs less than to look at them. Defaults to all.
func WithKinds(kinds ...string) ObjectsOption {
	return objectsSetting(func(o *objectsOptions) { o.kinds = append(o.kinds, kinds...) })
}

// Objects returns the locks, semaphores, latches, barriers, queues, executors, elections, schedulers and caches in Redis whose names match a
// pattern, one after another. The pattern is that of Redis's KEYS, with *, ? and [a-z]; the empty one matches all. Names that do not begin with the
// client's prefix are not found.
//
// It finds them by SCAN and by what their keys look like, so free locks are not listed, nor is anything that nobody can tell from the keys
// of other programs: a counting semaphore or a latch is listed if this library has changed it within an hour, or if somebody waits for it.
// A fair lock for which nobody waits is listed as a lock. A barrier is listed for a minute after its last use. A barrier and a double
// barrier may have one name, and are two objects. An election is listed if somebody leads. A cache is listed once if it has keys. Other
// objects of the grid are not found. An object that changes meanwhile may be missing, or come twice; one of several keys may be missing
// while its slot moves to another node of a cluster, and a step in which there is one takes a third of a second.
//
// It is made for servers in use: each SCAN looks at some hundred keys, and the loop gets what it has found before the next one. Only
// names of semaphores, latches and caches are kept, up to 100,000, so that none comes twice. In the end PUBSUB CHANNELS, once for
// semaphores and once for latches, goes through all channels of the server for those that are known by their waiters alone; with
// [WithKinds] without "semaphore" and "latch" it does not.
//
// It blocks as long as the loop goes on. Each step ends when ctx is done, with [ErrClosed] when the client closes, or with
// [ErrUnavailable] after the call timeout (see [WithCallTimeout]). An error is the last thing that it yields. The user needs +scan and the
// commands of Info; without the right to PUBSUB, what is known by its waiters alone is missing.
func (c *Client) Objects(ctx context.Context, pattern string, opts ...ObjectsOption) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var o objectsOptions
		err := option.Apply(opts, &o, ObjectsOption.set)
		if err == nil {
			err = find.Objects(ctx, c, pattern, o.kinds, func(found find.Object) bool { return yield(Object(found), nil) })
		}
		if err != nil {
			yield(Object{}, fmt.Errorf("redlatch: objects: %w", err))
		}
	}
}
