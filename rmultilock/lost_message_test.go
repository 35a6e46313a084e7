package rmultilock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// recheck bounds how long a waiter sleeps that hears of nothing, its pause between two rounds included.
const recheck = 1500 * time.Millisecond

// silences are ways in which locks become free and a waiter hears nothing of it.
var silences = map[string]func(t *testing.T, s servers, waiter peers, name string){
	"DEL": func(t *testing.T, s servers, _ peers, name string) {
		for _, b := range s {
			b.Delete(t, name)
		}
	},
	"expiry": func(t *testing.T, s servers, _ peers, name string) {
		for _, b := range s {
			assert.True(t, b.Redis.PExpire(t.Context(), name, time.Millisecond).Val())
		}
		time.Sleep(time.Millisecond)
	},
	"lost message": func(t *testing.T, s servers, waiter peers, name string) {
		faults["silent"](waiter, true)
		for _, b := range s {
			assert.NoError(t, b.Redis.Publish(t.Context(), "redisson_lock__channel:{"+name+"}", 0).Err())
			b.Delete(t, name)
		}
		synctest.Wait()
		faults["silent"](waiter, false)
	},
}

// F4
func TestWaiterGoesOnWithoutMessages(t *testing.T) {
	for _, kind := range []string{"MultiLock", "RedLock"} {
		for how, free := range silences {
			t.Run(kind+", "+how, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s := newServers(t, b, 3)
					p := s.peers(t)
					for run := range faulttest.Rounds(t, 10, 100) {
						name := fmt.Sprint("a", run)
						for _, server := range s[:2] {
							server.Foreign(t, name, time.Hour)
						}
						waiting := locktest.Begin(func() (*rlock.Hold, error) {
							return both(p[0].Client, p.locks(name)...)[kind].Lock(t.Context())
						})
						time.Sleep(time.Second + time.Duration(run)*97*time.Millisecond)
						select {
						case <-waiting:
							assert.Fail(t, "two of three are taken")
							return
						default:
						}
						free(t, s[:2], p, name)
						start := time.Now()
						h := locktest.Next(t, waiting)
						assert.LessOrEqual(t, time.Since(start), recheck)
						locktest.Unlock(t, h)
						s.empty(t, 100*time.Millisecond)
					}
				})
			})
		}
	}
}
