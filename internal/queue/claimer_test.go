package queue

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
)

// rig is a client whose Redis refuses all connections.
type rig struct {
	core    *core.Core
	manager *Manager
	queue   *Queue
}

func inBubble(t *testing.T, test func(t *testing.T, r rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		refuse := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
		}
		rdb := redis.NewClient(&redis.Options{
			Dialer: refuse, DialerRetries: 1,
			// It looks up no address by itself: that would not work in a bubble.
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
		})
		e := core.New(rdb, core.Config{
			Lease: 30 * time.Second, CloseGrace: time.Second, CallTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
			WithoutPresence: true,
		})
		manager := New(e)
		test(t, rig{e, manager, manager.Queue("jobs")})
		e.Close()
		require.NoError(t, rdb.Close())
		time.Sleep(2 * time.Second) // after many refused dials go-redis goes on dialing for so long
	})
}

func TestDemandThatComesAfterCloseFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r rig) {
		m := r.queue.message(t.Context(), Claimed{ID: "a"}, &demand{terms: Terms{Visibility: time.Minute}}, r.core.Clock.Now(), byCaller)
		closed := make(chan struct{})
		go func() {
			r.core.Close() // waits for the message
			close(closed)
		}()
		synctest.Wait()
		c := r.manager.use(&Queue{manager: r.manager, full: "another"}) // Close has not seen it
		failed := make(chan error, 1)
		c.claimer.add(&demand{want: 1, report: func(err error) { failed <- err }})
		synctest.Wait()
		require.Len(t, failed, 1, "it would sleep until its next look")
		assert.ErrorIs(t, <-failed, errs.ErrClosed)
		c.leave()
		m.forget(ended, ErrFinished)
		<-closed
	})
}

func TestClaimerOfAQueueThatWasLeftIsNotRevived(t *testing.T) {
	inBubble(t, func(t *testing.T, r rig) {
		old := r.manager.use(r.queue)
		old.leave()
		now := r.manager.use(r.queue)
		defer now.leave()
		require.NotSame(t, old, now)
		before := r.core.NextNumber()
		old.claimer.Message("0") // was on its way
		synctest.Wait()
		assert.Equal(t, before+1, r.core.NextNumber(), "a claim of the old one would take the client off the waiters")
		again := r.manager.use(r.queue)
		defer again.leave()
		assert.Same(t, now, again)
	})
}

func TestClientThatIsLeftLateLeavesItsSuccessorAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, r rig) {
		old := r.manager.use(r.queue)
		old.leave()
		now := r.manager.use(r.queue)
		defer now.leave()
		old.users++
		old.leave()
		again := r.manager.use(r.queue)
		defer again.leave()
		assert.Same(t, now, again)
	})
}

func TestLostMessageIsNotRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, r rig) {
		m := r.queue.message(t.Context(), Claimed{ID: "a"}, &demand{terms: Terms{Visibility: time.Minute}}, r.core.Clock.Now(), byTimer)
		m.lose("a renewal said so")
		m.Due(r.core.Clock.Now()) // its timer was set just after it was stopped
		assert.Zero(t, r.core.Timers.Len(), "its own, or that of a renewal")
	})
}

// F18
func TestContextOfAnOverdueMessageHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, r rig) {
		asked := r.core.Clock.Now() - time.Minute // as in a process that was stopped meanwhile
		m := r.queue.message(t.Context(), Claimed{ID: "a"}, &demand{terms: Terms{Visibility: time.Minute}}, asked, byTimer)
		inside, cancel := context.WithTimeout(m.Context(), time.Hour)
		defer cancel()
		m.enter(inside)
		handler := m.Context()
		require.Error(t, handler.Err(), "no timer has had the time to fire")
		require.ErrorIs(t, context.Cause(handler), errs.ErrLost)
		require.ErrorIs(t, context.Cause(inside), errs.ErrLost)
	})
}
