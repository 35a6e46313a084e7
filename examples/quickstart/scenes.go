package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/rlock"
)

// scenes shows what else may happen to a lock, with two workers in this process.
func scenes(ctx context.Context, c crew) error {
	a, err := c.hire(ctx, "A")
	if err != nil {
		return err
	}
	defer a.leave()
	b, err := c.hire(ctx, "B")
	if err != nil {
		return err
	}
	defer b.leave()

	for _, scene := range []func(ctx context.Context, a, b *worker) error{outlive, takenAway, nest} {
		if err := scene(ctx, a, b); err != nil {
			return err
		}
	}
	return nil
}

// outlive holds a lock for twice its lease: the watchdog renews it.
func outlive(ctx context.Context, a, b *worker) error {
	heading("2. A job that outlives its lease of %s", seconds(lease))
	hold, err := a.client.GetLock("report").Lock(ctx)
	if err != nil {
		return err
	}
	a.say("got the lock, and works for twice as long")
	for range 3 {
		if err := pause(hold.Context(), lease*4/5); err != nil {
			return err
		}
		_, err := b.client.GetLock("report").TryLock(ctx)
		if !errors.Is(err, rlock.ErrNotAcquired) {
			return fmt.Errorf("worker B was not turned away: %w", err)
		}
		left, err := a.client.GetLock("report").TTL(ctx)
		if err != nil {
			return err
		}
		b.say("turned away; the lease of the lock has %s left: it was renewed", seconds(left))
	}
	a.say("is done, and unlocks")
	return hold.Unlock(ctx)
}

// takenAway has an operator free a lock that is held: the holder's context ends.
func takenAway(ctx context.Context, a, b *worker) error {
	heading("3. A lock that is taken away")
	hold, err := a.client.GetLock("import").Lock(ctx)
	if err != nil {
		return err
	}
	a.say("got the lock, and works until its context ends")
	if _, err := b.client.GetLock("import").ForceUnlock(ctx); err != nil {
		return err
	}
	b.say("force-unlocks it")
	<-hold.Context().Done()
	a.say("stops: %v", context.Cause(hold.Context()))
	a.say("unlocks, in vain: %v", hold.Unlock(ctx))
	return nil
}

// nest locks under the context of a hold of the same lock, as a function does that is called by one that has the lock.
func nest(ctx context.Context, a, b *worker) error {
	heading("4. Nesting")
	lock := a.client.GetLock("stock")
	outer, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	inner, err := lock.Lock(outer.Context()) // the context makes it the same owner
	if err != nil {
		return errors.Join(err, outer.Unlock(ctx))
	}
	levels, err := lock.HoldCount(inner.Context())
	a.say("holds the lock %d times", levels)
	err = errors.Join(err, inner.Unlock(ctx))
	_, busy := b.client.GetLock(lock.Name()).TryLock(ctx)
	b.say("turned away after one unlock: %v", errors.Is(busy, rlock.ErrNotAcquired))
	err = errors.Join(err, outer.Unlock(ctx))
	taken, free := lock.IsLocked(ctx)
	a.say("unlocked twice; locked: %v", taken)
	return errors.Join(err, free)
}
