package core

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/events"
)

// Whatever is taken for a question names a channel for the answer and nothing else.
func FuzzQuestion(f *testing.F) {
	good := `{"v":1,"from":"me.0123456789abcdef","nonce":"00112233445566778899aabbccddeeff","cursor":3}`
	for _, seed := range []string{good, "", "{}", "null", "[]", good[:40], strings.Replace(good, "me", "a:{b}", 1)} {
		f.Add(seed)
	}
	c := &Core{Config: Config{Prefix: "app:"}}
	f.Fuzz(func(t *testing.T, text string) {
		q, ok := parseQuestion(text)
		if !ok {
			return
		}
		channel := c.replyChannel(q)
		assert.True(t, strings.HasPrefix(channel, "redlatch_reply:{app:}"+q.From+":"))
		assert.Less(t, len(channel), 200)
		assert.False(t, strings.ContainsFunc(channel, isControl))
		assert.Equal(t, 1, strings.Count(strings.TrimPrefix(channel, "redlatch_reply:{app:}"), ":"))
		assert.GreaterOrEqual(t, q.Cursor, 0)
	})
}

func FuzzReport(f *testing.F) {
	const id = "me.0123456789abcdef"
	good, err := json.Marshal(Report{
		Version: questionVersion, ID: id, Holds: []ReportHold{{Kind: "lock", Name: "n", Age: 1}},
		Losses: []ReportLoss{{Kind: "lock", Name: "n", Site: "a/b.go:1", Cause: "gone"}}, Failovers: []ReportFailover{{Node: "a:1", Age: 1}},
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "{}", "null", string(good[:30]), `{"v":1,"id":"` + id + `","cursor":-1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parseReport(text, id)
		if !ok {
			return
		}
		assert.Equal(t, id, r.ID)
		assert.LessOrEqual(t, len(r.Holds), answerList)
		assert.LessOrEqual(t, len(r.Waits), answerList)
		assert.LessOrEqual(t, len(r.Losses), events.Kept)
		assert.LessOrEqual(t, len(r.Failovers), events.Kept)
		assert.GreaterOrEqual(t, r.Cursor, 0)
	})
}

// slowReporter takes long to say what is held.
type slowReporter struct {
	asked atomic.Int64
	goOn  chan struct{}
}

func (r *slowReporter) Holds() []HoldInfo {
	r.asked.Add(1)
	<-r.goOn
	return nil
}

func (*slowReporter) Waits() []WaitInfo { return nil }

// F21: what the client does for its own leases must not stand in line behind questions, which anybody may ask.
func TestQuestionsHoldUpNoWorkOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{
			Addr:                     "127.0.0.1:1",
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
			DialerRetries:            1,
		})
		c := New(rdb, Config{Lease: 30 * time.Second, CallTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
		r := &slowReporter{goOn: make(chan struct{})}
		c.Reports(r)
		c.presence.begin(c)
		for range 10 {
			c.presence.Message(`{"v":1,"from":"me.0123456789abcdef","nonce":"00112233445566778899aabbccddeeff"}`)
		}
		synctest.Wait()
		require.EqualValues(t, 1, r.asked.Load(), "one at a time")
		var ran atomic.Bool
		c.Workers.Go(func() { ran.Store(true) })
		synctest.Wait()
		assert.True(t, ran.Load(), "a release has waited for an answer")
		close(r.goOn)
		synctest.Wait()
		assert.EqualValues(t, presenceMost, r.asked.Load(), "those that came when so many waited have no answer")
		time.Sleep(2 * time.Second)
		c.presence.Message(`{"v":1,"from":"me.0123456789abcdef","nonce":"00112233445566778899aabbccddeeff"}`)
		synctest.Wait()
		assert.EqualValues(t, presenceMost+1, r.asked.Load())
		c.Close()
		require.NoError(t, rdb.Close())
	})
}
