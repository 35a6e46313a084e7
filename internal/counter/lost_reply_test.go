package counter_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
)

// onScript has the server ask what to do with each call of a script, counted from 1. A reply that is empty has the script
// run, [broken] closes the connection, [forgotten] is that to a number which was passed, and any other is an error.
func (d *rig) onScript(t *testing.T, reply func(call int) string) {
	t.Helper()
	require.NoError(t, d.redis.Ping(t.Context()).Err()) // the server exists from its first connection on
	var calls atomic.Int32
	d.mini.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") {
			return false
		}
		switch text := reply(int(calls.Add(1))); text {
		case "":
			return false
		case broken:
			p.Close()
		case forgotten:
			p.WriteLen(0)
		default:
			p.WriteError(text)
		}
		return true
	})
}

const (
	broken    = "broken"
	forgotten = "forgotten"
	forbidden = "NOPERM no permission"
)

// then hears of an operation and puts the next one, before its log can fall idle.
type then struct {
	heard
	rig  *rig
	next []string
}

func (a *then) Answered(op *counter.Op, others []int64) {
	a.heard.Answered(op, others)
	a.put()
}

func (a *then) put() {
	if len(a.next) == 0 {
		return
	}
	op := &counter.Op{Code: a.next[0], Answerer: a}
	a.next = a.next[1:]
	a.rig.Put("k", op)
}

func TestLostBatchIsRepeatedHoweverMuchIsUnsettled(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		d.onScript(t, func(call int) string {
			if call == 1 {
				return broken
			}
			return ""
		})
		for range 10_000 { // as many as the settler takes of locks
			d.core.Settler.Add(func(func(bool)) {}, d.core.Clock.Now()+time.Minute)
		}
		n, err := d.Do(t.Context(), "k", counter.Request{Code: "x"})
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Equal(t, []string{"1 1 x"}, d.log(t, "k"))
	})
}

func TestBatchIsDoubtedUntilOneLeavesItsNumber(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		d.onScript(t, func(call int) string {
			if call > 3 {
				return ""
			}
			return []string{broken, forgotten, forbidden}[call-1]
		})
		a := &then{rig: d, next: []string{"first", "second", "third", "fourth"}}
		a.put()
		d.Go("k")
		synctest.Wait()
		require.Len(t, a.err, 4)
		require.ErrorIs(t, a.err[0], errs.ErrUnknown)
		require.ErrorContains(t, a.err[1], forbidden)
		require.NotErrorIs(t, a.err[1], errs.ErrUnknown, "certainly not done")
		require.NoError(t, a.err[2])
		require.NoError(t, a.err[3])
		assert.Equal(t, []string{"3 1 third", "4 0 fourth"}, d.log(t, "k"))
		assert.Zero(t, d.Logs())
	})
}

// F25
func TestRefusalOfARepetitionSaysNothingOfOneInFlight(t *testing.T) {
	for _, refusal := range []string{forbidden, "OOM command not allowed", "NOAUTH Authentication required."} {
		inBubble(t, func(t *testing.T, d *rig) {
			late := make(chan struct{}) // closed when the second sending may arrive
			d.onScript(t, func(call int) string {
				switch call {
				case 1:
					return "READONLY You can't write against a read only replica."
				case 2:
					<-late
					return ""
				case 3:
					return refusal
				}
				return ""
			})
			time.AfterFunc(time.Second, func() { close(late) })
			n, err := d.Do(t.Context(), "k", counter.Request{Code: "x"})
			require.NoError(t, err, "after %s", refusal)
			require.EqualValues(t, 1, n)
			synctest.Wait()
			assert.Len(t, d.log(t, "k"), 1)
		})
	}
}
