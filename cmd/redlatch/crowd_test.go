package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rfairlock"
)

// Where not all are listed, the command says how many more there are.
func TestInfoOfACrowdSaysHowManyMore(t *testing.T) {
	r := newRig(t)
	o, err := redis.ParseURL(r.url)
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	permits := r.c.GetPermitSemaphore("uploads")
	require.NoError(t, permits.SetPermits(t.Context(), 130))
	_, err = permits.AcquireN(t.Context(), 120)
	require.NoError(t, err)
	for range 130 {
		_, err := r.c.GetReadWriteLock("prices").RLock(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, r.c.GetFairLock("orders").Do(t.Context(), func(ctx context.Context) error {
		for i := range 140 {
			require.NoError(t, rdb.RPush(ctx, "redisson_lock_queue:{orders}", fmt.Sprint("java:", i)).Err())
		}
		assert.Contains(t, r.must(t, "lock", "info", "orders"), "… and 40 more")
		return rdb.Del(ctx, "redisson_lock_queue:{orders}").Err()
	}))
	assert.Contains(t, r.must(t, "lock", "info", "prices"), "… and 30 more")
	assert.Contains(t, r.must(t, "ls", "prices"), " and 129 more, 0 writers wait")
	assert.Regexp(t, `10 of 130 available, held by [0-9a-f]{32} and 119 more, `, r.must(t, "ls", "uploads"))
	assert.Contains(t, r.must(t, "sem", "info", "uploads"), "… and 20 more")
	_, text, _ := r.run(t.Context(), "lock", "info", "other")
	assert.NotContains(t, text, "more")
	assert.Contains(t, r.must(t, "lock", "force", "prices", "--yes"), "… and 30 more")
}

func TestLongestWaitsOfACrowdAreListed(t *testing.T) {
	said := inspect.Census{}
	report := redlatch.ClientReport{WaitCount: 1_140}
	for i := range 140 {
		w := redlatch.WaitInfo{Kind: "lock", Name: "orders", Since: time.Now().Add(-time.Hour), Site: fmt.Sprintf("a.go:%d", i)}
		said.Waits = append(said.Waits, inspect.Wait{Client: "a.1", WaitInfo: w}, inspect.Wait{Client: "a.1", WaitInfo: redlatch.WaitInfo{Name: "other"}})
		report.Waits = append(report.Waits, w)
	}
	l := lockState{inspect.Lock{Name: "orders", Locked: true, Calls: said.WaitsFor("orders")}}
	var text strings.Builder
	require.NoError(t, l.write(&text))
	assert.Equal(t, 100, strings.Count(text.String(), "a call of"))
	assert.Contains(t, text.String(), "a.go:99\n\t… and 40 more\n")

	said.Holds = []inspect.Hold{{Client: "b.2", HoldInfo: redlatch.HoldInfo{Kind: "lock", Name: "orders", Since: time.Now()}}}
	d := &doctor{}
	d.long(&said, nil)
	require.Len(t, d.findings, 1)
	assert.Contains(t, d.findings[0].Found, "140 calls wait for it")

	text.Reset()
	require.NoError(t, writeClient(&text, report))
	assert.Contains(t, text.String(), "a.go:139\n\t… and 1000 more\n")
	var out bytes.Buffer
	require.NoError(t, (&app{environment: &environment{out: &out}, json: true}).print(l, nil))
	assert.Contains(t, out.String(), `"more_waits":40,`)
}

// A fair lock is free while those before it in the queue are dead: that is when one looks.
func TestQueueOfAFreeLockIsListed(t *testing.T) {
	l := lockState{inspect.Lock{Name: "orders", Waiting: 2, Queue: []rfairlock.Waiter{{Owner: "java:1"}, {Owner: "a.1:2", Left: time.Second}}}}
	var text strings.Builder
	require.NoError(t, l.write(&text))
	assert.Contains(t, text.String(), "held\tno\n")
	assert.Contains(t, text.String(), "  1\tjava:1, dead: its time is over\n  2\ta.1:2\n")
}
