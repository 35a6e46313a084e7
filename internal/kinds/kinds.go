// Package kinds names the kinds of objects: in one way for output, such as logs, metrics and JSON, and in another for errors.
package kinds

import (
	"cmp"
	"strings"
)

// The kinds as logs, metrics, the command and the console have them.
const (
	Lock      = "lock"
	FairLock  = "fair_lock"
	RWLock    = "rw_lock"
	MultiLock = "multi_lock"
	Semaphore = "semaphore"
	Permits   = "permits" // a semaphore of leased permits
	Latch     = "latch"
	Barrier   = "barrier"
	Queue     = "queue"
	Executor  = "executor"
	Scheduler = "scheduler"
	Election  = "election"
	Once      = "once"
	Limiter   = "limiter"
	Cache     = "cache"
	Map       = "map" // that keeps entries near
)

// packages are those whose objects are of a kind.
var packages = map[string]string{ //nolint:gochecknoglobals // a constant in all but name
	Lock: "rlock", FairLock: "rfairlock", RWLock: "rrwlock", MultiLock: "rmultilock", Semaphore: "rsemaphore", Permits: "rsemaphore",
	Latch: "rlatch", Barrier: "rbarrier", Queue: "rdelayedqueue", Executor: "rexecutor", Scheduler: "rscheduler", Election: "relection", Once: "ronce",
	Limiter: "rratelimiter", Cache: "rcache", Map: "rmap",
}

// Package returns the name of the package of a kind, with which the texts of its errors begin.
func Package(kind string) string { return cmp.Or(packages[kind], kind) }

// Words returns a kind as people read it.
func Words(kind string) string { return strings.ReplaceAll(kind, "_", " ") }
