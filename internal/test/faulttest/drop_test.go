package faulttest_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestDropReplyExecutesExactlyOnce(t *testing.T) {
	for n := 1; n <= 4; n++ {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			r := setup(t)
			r.proxy.DropReply(faulttest.Script, n)
			rdb := r.client(t, 3)
			for i := 1; i <= 5; i++ {
				err := rdb.Eval(t.Context(), "return redis.call('INCR', KEYS[1])", []string{"n"}).Err()
				require.Equal(t, i == n, err != nil, "call %d: %v", i, err)
				assert.Equal(t, strconv.Itoa(i), r.real.Get(t.Context(), "n").Val())
			}
			assert.Equal(t, 1, r.proxy.Dropped())
			assert.Equal(t, 5, r.proxy.Commands()["EVAL"])
		})
	}
}

func TestDropRepliesHitsEachOfTheNext(t *testing.T) {
	r := setup(t)
	r.proxy.DropReplies(faulttest.Named("incr"), 2)
	rdb := r.client(t, 2)
	for i := 1; i <= 4; i++ {
		err := rdb.Incr(t.Context(), "n").Err()
		assert.Equal(t, i <= 2, err != nil, "call %d: %v", i, err)
	}
	assert.Equal(t, "4", r.real.Get(t.Context(), "n").Val())
	assert.Equal(t, 2, r.proxy.Dropped())
}

func TestDropReplyInAPipelineKeepsWhatWentBefore(t *testing.T) {
	r := setup(t)
	r.proxy.DropReply(faulttest.Named("INCR"), 2)
	w := r.dial(t)
	w.send("ECHO a\r\nINCR n\r\nLRANGE none 0 -1\r\nINCR n\r\nINCR n\r\nSET after 1\r\n")
	assert.Equal(t, "$1\r\na\r\n:1\r\n*0\r\n", w.expectEnd())
	redistest.Eventually(t, 5*time.Second, "the rest is executed", func() error {
		return r.real.Get(t.Context(), "after").Err()
	})
	assert.Equal(t, "3", r.real.Get(t.Context(), "n").Val())
}

func TestDropReplyOfGoRedisPipeline(t *testing.T) {
	r := setup(t)
	r.proxy.DropReply(func(cmd []string) bool { return cmd[0] == "incr" && cmd[1] == "k5" }, 1)
	rdb := r.client(t, 3)
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 10 {
			p.Incr(t.Context(), fmt.Sprint("k", i))
		}
		return nil
	})
	require.Error(t, err)
	redistest.Eventually(t, 5*time.Second, "all are executed", func() error {
		return r.real.Get(t.Context(), "k9").Err()
	})
	for i := range 10 {
		assert.Equal(t, "1", r.real.Get(t.Context(), fmt.Sprint("k", i)).Val())
	}
}

func TestDropReplyCountsPastPushesAndConfirmations(t *testing.T) {
	for _, hello := range []string{"", "HELLO 3\r\n"} {
		t.Run(hello, func(t *testing.T) {
			r := setup(t)
			r.proxy.DropReply(faulttest.Named("PING"), 2)
			w := r.dial(t)
			w.send(hello + "SUBSCRIBE a b\r\nPING\r\nUNSUBSCRIBE\r\nECHO x\r\nPING\r\n")
			got := w.expectEnd()
			assert.Contains(t, got, "$1\r\nx\r\n")
			assert.NotContains(t, got[len(got)-7:], "PONG", "only the first is answered")
		})
	}
}

func TestDropReplyOfSubscribe(t *testing.T) {
	r := setup(t)
	r.proxy.DropReply(faulttest.Named("SUBSCRIBE"), 1)
	w := r.dial(t)
	w.send("PING\r\nSUBSCRIBE a\r\n")
	assert.Equal(t, "+PONG\r\n", w.expectEnd())
}

func TestDropMessagesKeepsConfirmations(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(strconv.Itoa(protocol), func(t *testing.T) {
			r := setup(t)
			r.proxy.DropMessages(true)
			sub := r.client(t, protocol).Subscribe(t.Context(), "a")
			defer sub.Close()
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			require.NoError(t, r.real.Publish(t.Context(), "a", "lost").Err())

			require.NoError(t, sub.Subscribe(t.Context(), "b"))
			msg, err := sub.Receive(t.Context())
			require.NoError(t, err)
			require.IsType(t, &redis.Subscription{}, msg)

			r.proxy.DropMessages(false)
			require.NoError(t, r.real.Publish(t.Context(), "a", "seen").Err())
			got, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "seen", got.Payload)
		})
	}
}
