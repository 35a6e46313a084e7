package faulttest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestWitnessSeesOverlapAtOnce(t *testing.T) {
	w := faulttest.NewWitness(t, redistest.Shared(t).Addr(), t.Name())
	assert.True(t, w.Enter("a"))
	w.Exit("a")
	assert.True(t, w.Enter("b"))
	assert.Empty(t, w.Overlaps())
	assert.False(t, w.Enter("c"))
	assert.False(t, w.Enter("c"), "its own name counts too")
	require.Len(t, w.Overlaps(), 2)
	assert.Contains(t, w.Overlaps()[0], "c entered, inside: b")
	for _, who := range []string{"c", "c", "b"} {
		w.Exit(who)
	}
	assert.True(t, w.Enter("d"))
	assert.Equal(t, 5, w.Entries())
}

func TestWitnessSeesOtherProcesses(t *testing.T) {
	addr := redistest.Shared(t).Addr()
	w := faulttest.NewWitness(t, addr, t.Name())
	c := faulttest.StartChild(t, "enter", addr, t.Name())
	require.Equal(t, "alone true", c.Next())
	assert.False(t, w.Enter("parent"))
	c.Send("leave")
	require.NoError(t, c.Wait())
	w.Exit("parent")

	c = faulttest.StartChild(t, "enter", addr, t.Name())
	require.Equal(t, "alone true", c.Next())
	c.Kill()
	w.Exit("child")
	assert.True(t, w.Enter("parent"))
	require.Len(t, w.Overlaps(), 1)
}

func TestWitnessKeepsTokensExactly(t *testing.T) {
	const token = int64(1)<<53 + 1
	w := faulttest.NewWitness(t, redistest.Shared(t).Addr(), t.Name())
	before := w.Now()
	w.Token(token)
	w.Token(token + 2)
	assert.Empty(t, w.Regressions())
	w.Token(token + 1)
	w.Token(token + 2)
	assert.Len(t, w.Regressions(), 2)

	events := w.Events()
	assert.Equal(t, token, events[0].Token)
	assert.False(t, events[0].At.Before(before))
}

func TestMonitorSeesWhatScriptsDoToTheKey(t *testing.T) {
	s := redistest.Shared(t)
	rdb := s.Client(t)
	w := faulttest.NewWitness(t, s.Addr(), t.Name())
	key := "faulttest:" + t.Name()
	m := faulttest.MonitorWrites(t, s.Addr(), key)

	require.NoError(t, rdb.Set(t.Context(), key, "a \"b\"\n\x00\xff", time.Minute).Err())
	require.NoError(t, rdb.Set(t.Context(), key+"2", "x", time.Minute).Err())
	all := m.Commands()
	require.Len(t, all, 1)
	assert.Equal(t, "SET", all[0].Name())
	assert.Equal(t, "a \"b\"\n\x00\xff", all[0].Args[2])
	assert.Empty(t, m.Since(w.Now(), "SET"))

	from := w.Now()
	require.NoError(t, rdb.Eval(t.Context(), "return redis.call('PEXPIRE', KEYS[1], 1000)", []string{key}).Err())
	renewals := m.Since(from, "pexpire")
	require.Len(t, renewals, 1)
	assert.Equal(t, "lua", renewals[0].Source)
	assert.Len(t, m.Since(from), 2)
}

// verdict records what a check reports, and holds its cleanups back.
type verdict struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (v *verdict) Helper() {}
func (v *verdict) Errorf(format string, args ...any) {
	v.errors = append(v.errors, fmt.Sprintf(format, args...))
}
func (v *verdict) Cleanup(fn func()) { v.cleanups = append(v.cleanups, fn) }

func (v *verdict) end() []string {
	for _, fn := range v.cleanups {
		fn()
	}
	return v.errors
}

func TestLeakCheckPassesWhatIsCleanedUp(t *testing.T) {
	s := redistest.Start(t)
	faulttest.LeakCheck(t, s.Addr(), "queue:*")
	rdb := s.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "leased", "1", time.Minute).Err())
	require.NoError(t, rdb.Set(t.Context(), "queue:1", "1", 0).Err())
	sub := rdb.Subscribe(t.Context(), "channel")
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sub.Close()) })
	faulttest.NewWitness(t, s.Addr(), "w").Enter("a")
}

func TestLeakCheckFindsWhatIsLeft(t *testing.T) {
	redistest.Long(t)
	s := redistest.Start(t)
	v := &verdict{TB: t}
	faulttest.LeakCheck(v, s.Addr(), "queue:*")
	rdb := s.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "forgotten", "1", 0).Err())
	subscriptions := []func() *redis.PubSub{func() *redis.PubSub { return rdb.Subscribe(t.Context(), "channel") }}
	wants := []string{`key "forgotten"`, `channel "channel"`, "2 clients, 0 at"}
	if s.Major(t) >= 7 {
		subscriptions = append(subscriptions, func() *redis.PubSub { return rdb.SSubscribe(t.Context(), "shard") })
		wants = []string{`key "forgotten"`, `channel "channel"`, `channel "shard"`, "3 clients, 0 at"}
	}
	for _, subscribe := range subscriptions {
		sub := subscribe()
		defer sub.Close()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
	}
	left := v.end()
	require.Len(t, left, len(wants))
	for i, want := range wants {
		assert.Contains(t, left[i], want)
	}
}
