package rmultilock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// odd is a lock of a user's own that returns what a lock must not.
type odd struct {
	rlock.Locker
	held func() (*rlock.Hold, error)
}

func (o odd) Lock(context.Context, ...rlock.Option) (*rlock.Hold, error)    { return o.held() }
func (o odd) TryLock(context.Context, ...rlock.Option) (*rlock.Hold, error) { return o.held() }

func TestLockOfAUsersOwnThatMisbehavesIsErrInvalid(t *testing.T) {
	for what, held := range map[string]func() (*rlock.Hold, error){
		"no hold and no error": func() (*rlock.Hold, error) { return nil, nil }, //nolint:nilnil // the very mistake
		"a hold of nothing":    func() (*rlock.Hold, error) { return &rlock.Hold{}, nil },
		"a panic":              func() (*rlock.Hold, error) { panic("odd") },
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				c := b.Peer(t)
				for kind, l := range both(c.Client, c.GetLock("a"), odd{c.GetLock("b"), held}) {
					for verb, acquire := range map[string]func() error{
						"Lock":    func() error { _, err := l.Lock(t.Context()); return err },
						"TryLock": func() error { _, err := l.TryLock(t.Context()); return err },
						"Do":      func() error { return l.Do(t.Context(), func(context.Context) error { return assert.AnError }) },
					} {
						require.ErrorIs(t, acquire(), redlatch.ErrInvalid, "%s: %s", kind, verb)
						synctest.Wait() // a try that was given up arrives, and is taken back before the next one
						servers{b}.empty(t, 100*time.Millisecond)
					}
				}
			})
		})
	}
}

// wild is a hold whose methods panic.
type wild struct{ *rlock.Hold }

func (wild) Name() string                                { return "wild" }
func (wild) Unlock(context.Context) error                { panic("unlock") }
func (wild) Extend(context.Context, time.Duration) error { panic("extend") }

func TestPanicOfAUsersOwnHoldDoesNotKeepTheOthers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		z := c.GetLock("z")
		for kind, l := range both(c.Client, c.GetLock("a"), odd{z, func() (*rlock.Hold, error) {
			h, err := z.TryLock(t.Context(), rlock.WithLease(lease))
			return rlock.NewHold("wild", wild{h}), err
		}}) {
			h := locktest.Acquire(t, t.Context(), l)
			require.Error(t, h.Extend(t.Context(), time.Minute), kind)
			require.Error(t, h.Unlock(t.Context()), kind)
			assert.Equal(t, []string{"z"}, b.Keys(t), kind)
			time.Sleep(lease)
		}
	})
}
