package pubsub

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type deaf struct{}

func (deaf) Subscribed()    {}
func (deaf) Message(string) {}

// confirmAll answers every command that is due.
func confirmAll(t *testing.T, tab *table, now time.Time) {
	t.Helper()
	for {
		cmd, _, err := tab.next(now, true)
		require.NoError(t, err)
		if cmd == nil {
			return
		}
		for _, ch := range cmd.channels {
			_, err := tab.confirm(nil, cmd.verb, ch.key)
			require.NoError(t, err)
		}
	}
}

// refuse answers a command with an error.
func refuse(tab *table, now time.Time) error {
	_, err := tab.refuse(nil, now, false)
	return err
}

// F19
func TestMapIsReplacedWhenMuchSmaller(t *testing.T) {
	now := time.Now()
	tab := newTable(Options{Linger: time.Second, HealthCheck: time.Minute})
	tab.received = now
	var members []*Membership
	for i := range 50_000 {
		m := &Membership{listener: deaf{}}
		tab.join(key{name: fmt.Sprint(i)}, m, now)
		members = append(members, m)
	}
	confirmAll(t, &tab, now)
	for _, m := range members[5:] {
		tab.leave(m, now)
	}
	confirmAll(t, &tab, now.Add(2*time.Second))
	assert.Len(t, tab.channels, 5)
	assert.LessOrEqual(t, tab.peak, smallMap)
	assert.Zero(t, tab.lingering.Len()+tab.queue.Len()+tab.refusals.Len())
}

func TestForeignConfirmationEndsTheConnection(t *testing.T) {
	now := time.Now()
	tab := newTable(Options{Linger: time.Second, HealthCheck: time.Minute})
	tab.received = now
	tab.join(key{name: "a"}, &Membership{listener: deaf{}}, now)
	confirmAll(t, &tab, now)
	_, err := tab.confirm(nil, subscribe, key{name: "a"})
	require.ErrorIs(t, err, errUnexpected, "the Redis client has reconnected by itself")
	require.ErrorIs(t, refuse(&tab, now), errUnexpected)

	tab.reset()
	cmd, _, err := tab.next(now, true)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, cmd.names())
}

// F20
func TestRefusalsBackOffAndFindTheRefusedChannel(t *testing.T) {
	now := time.Now()
	tab := newTable(Options{Linger: time.Second, HealthCheck: time.Hour})
	tab.received = now
	for i := range 1000 {
		tab.join(key{name: fmt.Sprint(i)}, &Membership{listener: deaf{}}, now)
	}
	bad := map[string]bool{"3": true, "400": true, "999": true}
	commands := 0
	for start := now; now.Sub(start) < time.Minute; {
		cmd, wait, err := tab.next(now, true)
		require.NoError(t, err)
		if cmd == nil {
			now = now.Add(max(wait, time.Millisecond))
			continue
		}
		commands++
		if anyOf(cmd, bad) {
			require.NoError(t, refuse(&tab, now))
			continue
		}
		for _, ch := range cmd.channels {
			_, err := tab.confirm(nil, cmd.verb, ch.key)
			require.NoError(t, err)
		}
	}
	for name, ch := range tab.channels {
		if !bad[name.name] {
			assert.Equal(t, subscribed, ch.state, name)
		}
	}
	assert.Equal(t, 3, tab.refusals.Len())
	assert.Less(t, commands, 120)
}

func TestChannelsOfARefusedUnsubscribeLinger(t *testing.T) {
	now := time.Unix(1000, 0)
	tab := newTable(Options{Linger: time.Second, HealthCheck: time.Minute})
	tab.received = now
	members := []*Membership{{listener: deaf{}}, {listener: deaf{}}}
	next := func(v verb) {
		t.Helper()
		cmd, _, err := tab.next(now, true)
		require.NoError(t, err)
		require.NotNil(t, cmd)
		require.Equal(t, v, cmd.verb)
	}
	for _, m := range members {
		tab.join(key{name: "channel"}, m, now)
		next(subscribe)
		_, err := tab.confirm(nil, subscribe, key{name: "channel"})
		require.NoError(t, err)
		tab.leave(m, now)
		now = now.Add(time.Second)
		next(unsubscribe)
		require.NoError(t, refuse(&tab, now))
		assert.Equal(t, subscribed, tab.channels[key{name: "channel"}].state)
		now = now.Add(time.Second)
		next(unsubscribe)
		assert.False(t, tab.join(key{name: "channel"}, m, now), "to be confirmed")
		require.NoError(t, refuse(&tab, now))
		next(subscribe)
		_, err = tab.confirm(nil, subscribe, key{name: "channel"})
		require.NoError(t, err)
		tab.leave(m, now)
		tab.drop(tab.channels[key{name: "channel"}])
	}
}

func anyOf(cmd *command, bad map[string]bool) bool {
	for _, ch := range cmd.channels {
		if bad[ch.name] {
			return true
		}
	}
	return false
}

func BenchmarkDeliver(b *testing.B) {
	r := New(nil, Options{})
	for i := range 1000 {
		r.table.join(key{name: fmt.Sprint("channel:", i)}, &Membership{router: r, listener: deaf{}}, time.Now())
	}
	c := &connection{router: r}
	m := &redis.Message{Channel: "channel:7", Payload: "0"}
	b.ReportAllocs()
	for b.Loop() {
		c.deliver(m)
	}
}

func BenchmarkJoinLeave(b *testing.B) {
	r := New(nil, Options{})
	r.running = true
	r.table.join(key{name: "hot"}, &Membership{router: r, listener: deaf{}}, time.Now())
	b.ReportAllocs()
	for b.Loop() {
		m, _ := r.Join("hot", deaf{})
		m.Leave()
	}
}
