package keepalive_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/keepalive"
	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const length = 30 * time.Second

// bed is a renewer whose calls a server answers with what the test says.
type bed struct {
	*core.Core
	renewer *keepalive.Renewer
	sizes   []int // of the calls so far; read it after synctest.Wait
	reply   atomic.Pointer[script.Script]
}

func run(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		rdb := redis.NewClient(&redis.Options{
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				conn, err := mini.Dial()
				return pipe.Buffer(conn), err
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
		})
		b := &bed{Core: core.New(rdb, core.Config{Lease: length, CallTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})}
		b.renewer = keepalive.New(b.Core, keepalive.Calls{Renew: b.renew})
		b.replies("return {}")
		test(t, b)
		b.Close()
		assert.NoError(t, rdb.Close())
		mini.Close()
	})
}

// replies has calls answered by this Lua from here on.
func (b *bed) replies(source string) { b.reply.Store(script.Embedded("test", &source)) }

func (b *bed) renew(_ keepalive.Mode, keys, owners []any, _ time.Duration) *script.Call {
	b.sizes = append(b.sizes, len(keys))
	return b.reply.Load().Call(len(keys), append(append([]any{}, keys...), owners...)...)
}

// lease is a plain one, held until it is gone.
type lease struct {
	mu     sync.Mutex
	member keepalive.Member
	bed    *bed
	key    any
	gone   bool
	busy   bool // not to be renewed now
}

func (b *bed) hold(n int) []*lease {
	var all []*lease
	for i := range n {
		l := &lease{bed: b, key: fmt.Sprint("k", i)}
		l.member.Timer.Task = l
		b.renewer.Begin(&l.member, b.Clock.Now(), length, length)
		l.mu.Lock()
		l.ArmLocked()
		l.mu.Unlock()
		all = append(all, l)
	}
	return all
}

func (l *lease) Due(time.Duration)     { l.bed.renewer.Renew(&l.member) }
func (l *lease) Ref() (key, owner any) { return l.key, "owner" }
func (l *lease) HeldLocked() bool      { return !l.gone }
func (*lease) Verify()                 {}
func (l *lease) Mutex() *sync.Mutex    { return &l.mu }

func (l *lease) Gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := !l.gone
	l.member.Leave()
	l.gone = true
	l.bed.Timers.Stop(&l.member.Timer)
	return was
}

func (l *lease) RenewalLocked(now time.Duration) (keepalive.CallKey, time.Duration, bool) {
	return keepalive.CallKey{Length: length, Lease: length, Plain: true}, l.member.End(), !l.gone && !l.busy && now >= l.member.Next()
}

func (l *lease) ArmLocked() {
	next := l.member.Next()
	if l.busy {
		next = l.bed.Clock.Now() + time.Millisecond
	}
	if next != keepalive.Never && !l.gone {
		l.bed.Timers.Set(&l.member.Timer, next)
	}
}

// left returns how long the lease lasts.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.member.End() - l.bed.Clock.Now()
}

func TestLeasesThatAreDueTogetherShareCalls(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		all := b.hold(150)
		time.Sleep(length / 3)
		synctest.Wait()
		assert.ElementsMatch(t, []int{100, 50}, b.sizes)
		for range 100 {
			time.Sleep(length / 10)
			for _, l := range all {
				require.Greater(t, l.left(), length*3/5, "two thirds of the lease, but for the grid")
			}
		}
		synctest.Wait()
		assert.LessOrEqual(t, len(b.sizes), 2*35, "two calls every third of the lease")
	})
}

func TestOneThatRedisHasNoLongerIsGoneAlone(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.replies("return {2}")
		all := b.hold(3)
		time.Sleep(length/3 + time.Second)
		synctest.Wait()
		assert.False(t, all[0].gone)
		assert.True(t, all[1].gone)
		assert.False(t, all[2].gone)
		assert.Greater(t, all[0].left(), length/2)
	})
}

func TestAnErrorIsFollowedByAnotherTrySoon(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.replies("return redis.error_reply('OOM')")
		l := b.hold(1)[0]
		time.Sleep(length / 3)
		synctest.Wait()
		failed := len(b.sizes)
		require.Positive(t, failed)
		l.mu.Lock()
		assert.False(t, l.member.Fresh(), "its last renewal failed")
		l.mu.Unlock()
		time.Sleep(length / 6)
		synctest.Wait()
		assert.GreaterOrEqual(t, len(b.sizes), failed+3)
		assert.Less(t, l.left(), length*2/3)
		b.replies("return {}")
		time.Sleep(length / 12)
		synctest.Wait()
		assert.Greater(t, l.left(), length/2)
	})
}

func TestAMemberThatLeavesHasItsOwnTimer(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		all := b.hold(60)
		time.Sleep(length / 3)
		synctest.Wait()
		require.Equal(t, []int{60}, b.sizes, "one group, which lasts")
		one := all[7]
		one.mu.Lock()
		assert.Equal(t, keepalive.Never, one.member.Next(), "the group's timer is all it needs")
		before := one.member.End()
		one.member.Leave()
		assert.Equal(t, before, one.member.End())
		assert.Less(t, one.member.Next(), before)
		one.mu.Unlock()
		time.Sleep(length / 3)
		synctest.Wait()
		assert.ElementsMatch(t, []int{60, 59, 1}, b.sizes)
	})
}

func TestOneThatIsNotToBeRenewedNowKeepsItsTimer(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		l := b.hold(1)[0]
		l.mu.Lock()
		l.busy = true
		due := l.member.Next() - b.Clock.Now()
		l.mu.Unlock()
		time.Sleep(due + 5*time.Millisecond)
		synctest.Wait()
		assert.Empty(t, b.sizes)
		l.mu.Lock()
		l.busy = false
		l.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []int{1}, b.sizes)
	})
}

// F6
func TestABatchThatIsRefusedForOneOfItIsRenewedOneByOne(t *testing.T) {
	for name, source := range map[string]string{
		"a server in cluster mode behind a plain client": "if #KEYS > 1 then return redis.error_reply('CROSSSLOT Keys in request do not hash to the same slot') end return {}",
		"a user that may not touch one of the keys any more": "for _, key in ipairs(KEYS) do if key == 'k1' then " +
			"return redis.error_reply('NOPERM this user has no permissions to access one of the keys used as arguments') end end return {}",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bed) {
				b.replies(source)
				var told atomic.Pointer[error]
				b.Events.Hooks.Renewed = func(_, _ int, err error) {
					if err != nil {
						told.Store(&err)
					}
				}
				all := b.hold(3)
				time.Sleep(length * 5 / 6)
				synctest.Wait()
				assert.Greater(t, all[0].left(), length/2)
				assert.Greater(t, all[2].left(), length/2)
				assert.Equal(t, all[1].left() < length/2, told.Load() != nil, "it is no failure if each is renewed")
			})
		})
	}
}
