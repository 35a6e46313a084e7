// Package redlatchgocron has a locker and an elector for github.com/go-co-op/gocron/v2, so that a job that several processes
// schedule runs in one of them.
//
//	locker, err := redlatchgocron.NewLocker(client, "billing", time.Minute)
//	...
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// # Locker or elector
//
// With a [Locker] each tick of a job runs once, in whichever process comes first. With an [Elector] one process runs all ticks, and the
// next one takes over when it dies. Around a change of the leader a tick may run twice or not at all.
//
// # What gocron cannot do
//
// A run whose process dies is not repeated, and the context of a job does not end when the lock or the leadership is lost. Package
// rscheduler of redlatch does both, and goes by the clock of Redis alone.
package redlatchgocron
