package presence

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
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/events"
)

// Whatever is taken for a question names a channel for the answer and nothing else.
func FuzzQuestion(f *testing.F) {
	good := question{"me.0123456789abcdef", "00112233445566778899aabbccddeeff", "orders of today"}.String()
	for _, seed := range []string{good, "", "1", "   ", good[:40], strings.Replace(good, "me", "a:{b}", 1)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, ok := parseQuestion(text)
		if !ok {
			return
		}
		assert.Equal(t, text, q.String())
		channel := replyChannel("app:", q)
		assert.True(t, strings.HasPrefix(channel, "redlatch_reply:{app:}"+q.From+":"))
		assert.Less(t, len(channel), 200)
		assert.False(t, strings.ContainsFunc(channel, unicode.IsControl))
		assert.Equal(t, 1, strings.Count(strings.TrimPrefix(channel, "redlatch_reply:{app:}"), ":"))
	})
}

func FuzzReport(f *testing.F) {
	const id = "me.0123456789abcdef"
	good, err := json.Marshal(Report{
		Version: reportVersion, ID: id, Holds: []Hold{{Kind: "lock", Name: "n", Since: time.Now()}},
		Losses: []events.Loss{{Kind: "lock", Name: "n", Site: "a/b.go:1", Cause: "gone"}}, Failovers: []events.Failover{{Node: "a:1"}},
		Caches: []Cache{{Kind: "map", Name: "n", Near: &Near{Since: time.Now(), Heard: time.Now()}}, {Kind: "cache", Name: "n"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "{}", "null", string(good[:30]), `{"v":1,"id":"` + id + `","now":"9999-12-31T00:00:00Z","holds":[{"since":"0001-01-01T00:00:00Z"}],"caches":[{},{"near":{}}]}`} {
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
		assert.LessOrEqual(t, len(r.Caches), answerList)
	})
}

// slowReporter takes long to say what is held.
type slowReporter struct {
	asked atomic.Int64
	goOn  chan struct{}
}

func (r *slowReporter) Holds() []Hold {
	r.asked.Add(1)
	<-r.goOn
	return nil
}

func (*slowReporter) Waits() []Wait { return nil }

// F21: what the client does for its own leases must not stand in line behind questions, which anybody may ask.
func TestQuestionsHoldUpNoWorkOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{
			Addr:                     "127.0.0.1:1",
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
			DialerRetries:            1,
		})
		c := core.New(rdb, core.Config{Lease: 30 * time.Second, CallTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
		r := &slowReporter{goOn: make(chan struct{})}
		p := Of(c)
		p.Add(r)
		for range 10 {
			p.Message("1 me.0123456789abcdef 00112233445566778899aabbccddeeff ")
		}
		synctest.Wait()
		require.EqualValues(t, 1, r.asked.Load(), "one at a time")
		var ran atomic.Bool
		c.Workers.Go(func() { ran.Store(true) })
		synctest.Wait()
		assert.True(t, ran.Load(), "a release has waited for an answer")
		close(r.goOn)
		synctest.Wait()
		assert.EqualValues(t, maxOpen, r.asked.Load(), "those that came when so many waited have no answer")
		time.Sleep(2 * time.Second)
		p.Message("1 me.0123456789abcdef 00112233445566778899aabbccddeeff ")
		synctest.Wait()
		assert.EqualValues(t, maxOpen+1, r.asked.Load())
		c.Close()
		require.NoError(t, rdb.Close())
	})
}

func TestClientChannelTellsPrefixAndID(t *testing.T) {
	const id = "b-1.x.0123456789abcdef"
	for _, prefix := range []string{"", "shop:", "shop", "a/b ", "{eu}:", "x{eu}", "{eu}:shop/", "*"} {
		c := &core.Core{Config: core.Config{Prefix: prefix}}
		gotPrefix, gotID, ok := SplitChannel(Channel(c, id))
		assert.Equal(t, []any{prefix, id, true}, []any{gotPrefix, gotID, ok})
	}
	for _, other := range []string{"redlatch_reply:" + id, "redlatch_client:b", "redlatch_client:", id} {
		_, _, ok := SplitChannel(other)
		assert.False(t, ok, other)
	}
}
