package rrwlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// bench is a server on which bare scripts run, each twice: the second run must change nothing.
type bench struct {
	*redis.Client
	key    string
	memory *miniredis.Miniredis // nil for a real server
}

// onBoth runs a test on a real server and on the one in memory.
func onBoth(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Run("server", func(t *testing.T) {
		test(t, &bench{Client: redistest.Shared(t).Client(t), key: "scripts:" + uuid.NewString()})
	})
	t.Run("memory", func(t *testing.T) {
		memory := miniredis.RunT(t)
		rdb := redis.NewClient(&redis.Options{
			Addr:                     memory.Addr(),
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		test(t, &bench{Client: rdb, key: "scripts:" + uuid.NewString(), memory: memory})
	})
}

// run runs a script once and returns its integer.
func (b *bench) run(t *testing.T, c *script.Call) int {
	t.Helper()
	err := b.Process(t.Context(), c)
	if c.Missing() {
		c.Resend()
		err = b.Process(t.Context(), c)
	}
	require.NoError(t, err)
	n, err := c.Int()
	require.NoError(t, err)
	return int(n)
}

// state is everything that the keys of the lock hold, but their TTLs.
func (b *bench) state(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	fields, err := b.HGetAll(t.Context(), b.key).Result()
	require.NoError(t, err)
	for f, v := range fields {
		all[f] = v
	}
	levels, err := b.Keys(t.Context(), "{"+b.key+"}:*").Result()
	require.NoError(t, err)
	for _, key := range levels {
		all[key[len(b.key)+3:]] = b.Get(t.Context(), key).Val()
	}
	for _, waiting := range b.ZRange(t.Context(), writersOf(b.key), 0, -1).Val() {
		all["waits "+waiting] = ""
	}
	return all
}

func (b *bench) ask(owner string) locker.AcquireArgs {
	return locker.AcquireArgs{Key: b.key, Owner: owner, Lease: 30 * time.Second}
}

func (b *bench) is(t *testing.T, want ...string) {
	t.Helper()
	all := map[string]string{}
	for i := 0; i < len(want); i += 2 {
		all[want[i]] = want[i+1]
	}
	assert.Equal(t, all, b.state(t))
}

const level = ":rwlock_timeout:"

func TestScriptsKeepTheWireFormat(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		read, write := readKind{heeds: true}, writeKind{}
		assert.Equal(t, -2, b.run(t, read.Acquire(b.ask("A"))))
		for range 2 {
			assert.Equal(t, 1, b.run(t, read.Keep(b.key, "A", lease.Levels{Read: 2}, time.Minute, time.Hour)))
		}
		assert.Equal(t, -3, b.run(t, read.Acquire(b.ask("B"))))
		b.is(t, "mode", "read", "A", "2", "B", "1", "A"+level+"1", "1", "A"+level+"2", "1", "B"+level+"1", "1")
		assert.InDelta(t, time.Minute, b.PTTL(t.Context(), b.key).Val(), float64(10*time.Second), "the longest")

		ask := b.ask("W")
		assert.Positive(t, b.run(t, write.Acquire(ask)))
		ask.Waits = true
		for range 2 {
			assert.InDelta(t, 60_000, b.run(t, write.Acquire(ask)), 31_000)
		}
		assert.Positive(t, b.run(t, read.Acquire(b.ask("C"))), "held back")
		assert.Equal(t, 1, b.run(t, read.Keep(b.key, "B", lease.Levels{Read: 2}, 10*time.Second, time.Hour)), "B re-enters")
		assert.Equal(t, 1, b.run(t, read.Keep(b.key, "B", lease.Levels{Read: 1}, 10*time.Second, time.Hour)))
		assert.InDelta(t, time.Minute, b.PTTL(t.Context(), b.key).Val(), float64(10*time.Second), "not below another's")
		b.is(t, "mode", "read", "A", "2", "B", "1", "A"+level+"1", "1", "A"+level+"2", "1", "B"+level+"1", "1", "waits W", "")

		assert.Equal(t, 1, b.run(t, read.Release(b.key, "A")))
		assert.Zero(t, b.run(t, read.Release(b.key, "A")), "a second run finds nothing")
		assert.LessOrEqual(t, b.PTTL(t.Context(), b.key).Val(), 10*time.Second, "what is left is the longest of the rest")
		assert.Equal(t, 1, b.run(t, read.Release(b.key, "B")), "1: free, and nobody heard")
		b.is(t, "waits W", "")
		assert.Equal(t, -2, b.run(t, write.Acquire(ask)))
		assert.Equal(t, -2, b.run(t, write.Acquire(ask)), "after a lost answer")
		b.is(t, "mode", "write", "W:write", "1")
	})
}

func TestScriptsDowngrade(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		k := common{}
		keep := func(owner string, levels lease.Levels, length time.Duration) int {
			return b.run(t, k.Keep(b.key, owner, levels, length, time.Hour))
		}
		both, reads := lease.Levels{Write: 2, Read: 1}, lease.Levels{Read: 1}
		assert.Zero(t, keep("W", both, time.Minute), "there is no writer")
		b.is(t)
		b.run(t, writeKind{}.Acquire(b.ask("W")))
		for range 2 {
			assert.Equal(t, 1, keep("W", both, time.Minute))
			b.is(t, "mode", "write", "W:write", "2", "W", "1", "W"+level+"1", "1")
		}
		assert.Zero(t, keep("X", both, time.Minute), "another's")
		assert.Equal(t, 1, keep("W", lease.Levels{Write: 1}, time.Minute))
		b.is(t, "mode", "write", "W:write", "1")
		for range 2 {
			assert.Equal(t, 1, keep("W", reads, 10*time.Second))
			b.is(t, "mode", "read", "W", "1", "W"+level+"1", "1")
		}
		assert.LessOrEqual(t, b.PTTL(t.Context(), b.key).Val(), 10*time.Second)
		assert.Zero(t, keep("W", both, time.Minute), "a late one, from before the downgrade, changes nothing")
		b.is(t, "mode", "read", "W", "1", "W"+level+"1", "1")
		assert.Equal(t, -2, b.run(t, readKind{}.Acquire(b.ask("A"))), "others may read")
		assert.Equal(t, 1, b.run(t, k.Release(b.key, "A")))
		assert.Equal(t, 1, b.run(t, k.Release(b.key, "W")))
		assert.Zero(t, keep("W", reads, time.Minute), "a late one gets nothing")
		b.is(t)
		b.run(t, writeKind{}.Acquire(b.ask("W")))
		keep("W", both, time.Minute)
		assert.Equal(t, 1, b.run(t, k.Release(b.key, "W")), "both modes end")
		b.is(t)
	})
}

func TestScriptsCountDeadReadersOut(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		read, write := readKind{}, writeKind{}
		die := func(owner string) { require.NoError(t, b.Del(t.Context(), levelOf(b.key, owner, 1)).Err()) }
		names := func(n int) (all []string) {
			for i := range n {
				all = append(all, fmt.Sprintf("dead%d", i))
			}
			return all
		}
		for _, dead := range []int{1, closeLook, closeLook + 1, 100} {
			for _, owner := range append(names(dead), "A") {
				assert.Equal(t, -2, b.run(t, read.Acquire(b.ask(owner))))
			}
			for _, owner := range names(dead) {
				die(owner)
			}
			assert.Positive(t, b.run(t, write.Acquire(b.ask("W"))), "A is alive")
			if dead <= closeLook {
				assert.Equal(t, 1, b.run(t, read.Release(b.key, "A")))
				b.is(t)
				continue
			}
			assert.Equal(t, 1, b.run(t, read.Release(b.key, "A")))
			assert.Equal(t, -2, b.run(t, write.Acquire(b.ask("W"))))
			b.is(t, "mode", "write", "W:write", "1")
			b.run(t, write.Release(b.key, "W"))
		}
	})
}

func TestScriptsTakeOver(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		read, write := readKind{heeds: true}, writeKind{}
		from := func(owner, earlier string) locker.AcquireArgs { a := b.ask(owner); a.From = earlier; return a }
		b.run(t, write.Acquire(b.ask("A")))
		b.run(t, common{}.Keep(b.key, "A", lease.Levels{Write: 1, Read: 1}, time.Minute, time.Hour))
		assert.Positive(t, b.run(t, write.Acquire(from("B", "C"))), "another's")
		assert.Equal(t, -2, b.run(t, write.Acquire(from("B", "A"))))
		assert.Positive(t, b.run(t, write.Acquire(from("C", "A"))), "A is gone")
		assert.Equal(t, "1", b.state(t)["B:write"])
		assert.NotContains(t, b.state(t), "A:write")
		assert.NotContains(t, b.state(t), "A", "who read under that id counts as gone")
		b.run(t, write.Release(b.key, "B"))
		b.run(t, read.Acquire(b.ask("D")))
		b.run(t, read.Acquire(b.ask("E")))
		assert.Positive(t, b.run(t, write.Acquire(from("F", "D"))), "E reads")
		b.run(t, read.Release(b.key, "E"))
		assert.Equal(t, -2, b.run(t, write.Acquire(from("F", "D"))), "from the reader")
		assert.NotContains(t, b.state(t), "D")
	})
}

func TestLeaveTakesEverythingBack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		write := writeKind{}
		heard := b.Subscribe(t.Context(), channelOf(b.key))
		t.Cleanup(func() { assert.NoError(t, heard.Close()) })
		_, err := heard.Receive(t.Context())
		require.NoError(t, err)
		messages := heard.Channel()
		waits := func(owner string) locker.AcquireArgs { a := b.ask(owner); a.Waits = true; return a }

		b.run(t, readKind{}.Acquire(b.ask("A")))
		b.run(t, write.Acquire(waits("V")))
		b.run(t, write.Acquire(waits("W")))
		assert.Zero(t, b.run(t, write.Leave(b.key, "V", 0)))
		assert.Positive(t, b.run(t, readKind{heeds: true}.Acquire(b.ask("C"))), "W waits")
		for range 2 {
			assert.Zero(t, b.run(t, write.Leave(b.key, "W", 0)))
		}
		assert.Equal(t, -3, b.run(t, readKind{heeds: true}.Acquire(b.ask("C"))))
		b.run(t, readKind{}.Release(b.key, "A"))
		b.run(t, readKind{}.Release(b.key, "C"))
		b.run(t, write.Acquire(waits("W")))
		assert.Equal(t, 2, b.run(t, write.Leave(b.key, "W", 0)), "it was granted meanwhile")
		b.is(t)
		require.NoError(t, b.Publish(t.Context(), channelOf(b.key), "end").Err())
		var got []string
		for m := range messages {
			if m.Payload == "end" {
				break
			}
			got = append(got, m.Payload)
		}
		assert.Equal(t, []string{"1", "0", "1"}, got, "the last mark that went, the last reader, the writer")
	})
}

func TestReadersAreHeldBackForWhoLeavesNoMark(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		read, write, writers := readKind{heeds: true}, writeKind{}, writersOf(b.key)
		note := func(age time.Duration) int {
			return b.run(t, foreignScript.Call(2, b.key, writers, script.Millis(foreignFor), script.Millis(age), script.Millis(noteFor)))
		}
		assert.Zero(t, note(0), "nobody reads")
		b.is(t)
		assert.Equal(t, -2, b.run(t, read.Acquire(b.ask("A"))))
		assert.Zero(t, note(0), "noted")
		left := b.PTTL(t.Context(), writers).Val()
		assert.True(t, 0 < left && left <= noteFor, "%v", left)
		assert.Zero(t, note(time.Minute), "the note is too young")
		assert.Equal(t, -3, b.run(t, read.Acquire(b.ask("B"))), "a note holds nobody back")
		b.run(t, read.Release(b.key, "B"))

		waits := b.ask("W")
		waits.Waits = true
		assert.Positive(t, b.run(t, write.Acquire(waits)))
		assert.Zero(t, note(0), "one is heeded that left a mark")
		b.run(t, write.Leave(b.key, "W", 0))
		assert.Zero(t, note(0), "it took the note away")

		assert.Equal(t, 1, note(0))
		assert.Zero(t, note(0), "the mark is not made longer")
		left = b.PTTL(t.Context(), writers).Val()
		assert.True(t, noteFor < left && left <= foreignFor, "%v", left)
		assert.Equal(t, 100, b.run(t, read.Acquire(b.ask("C"))), "look again soon")
		assert.Equal(t, -2, b.run(t, readKind{}.Acquire(b.ask("D"))), "one that passes")
		b.run(t, read.Release(b.key, "D"))
		b.run(t, read.Release(b.key, "A"))
		if left := b.run(t, read.Acquire(b.ask("C"))); b.memory != nil {
			assert.InDelta(t, 50, left, 25, "a moment for the writer")
		} else { // which passes meanwhile
			assert.LessOrEqual(t, left, 75)
		}
		assert.LessOrEqual(t, b.PTTL(t.Context(), writers).Val(), 50*time.Millisecond)
		if b.memory != nil {
			b.memory.FastForward(50 * time.Millisecond)
		}
		redistest.Eventually(t, time.Second, "end of the mark", func() error {
			if left := b.run(t, read.Acquire(b.ask("C"))); left > -2 {
				return fmt.Errorf("held back for %d ms", left)
			}
			if left := b.PTTL(t.Context(), writers).Val(); left >= 0 {
				return fmt.Errorf("there for %v", left)
			}
			return nil
		})
		b.is(t, "mode", "read", "C", "1", "C"+level+"1", "1")
	})
}

func TestRenewalSparesWhatIsLonger(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		ctx := context.WithoutCancel(t.Context())
		b.run(t, readKind{}.Acquire(b.ask("A")))
		b.run(t, readKind{}.Keep(b.key, "A", lease.Levels{Read: 2}, time.Minute, time.Hour))
		require.NoError(t, b.PExpire(ctx, levelOf(b.key, "A", 2), 10*time.Second).Err())
		other := b.key + ":x"
		require.NoError(t, b.Set(ctx, other, "data", 0).Err())
		gone := func(c *script.Call) []int64 {
			err := b.Process(ctx, c)
			if c.Missing() {
				c.Resend()
				err = b.Process(ctx, c)
			}
			require.NoError(t, err)
			list, err := c.Ints()
			require.NoError(t, err)
			return list
		}
		c := readKind{}.Renew(lease.Read, []any{b.key, b.key, other, b.key}, []any{"A", "B", "C", "A"}, 30*time.Second)
		assert.Equal(t, []int64{2, 3}, gone(c))
		for i, want := range []time.Duration{time.Minute, 30 * time.Second} {
			assert.InDelta(t, want, b.PTTL(ctx, levelOf(b.key, "A", i+1)).Val(), float64(10*time.Second))
		}
		assert.InDelta(t, time.Minute, b.PTTL(ctx, b.key).Val(), float64(10*time.Second))
		assert.Equal(t, []int64{1}, gone(writeKind{}.Renew(lease.Write, []any{b.key}, []any{"A"}, time.Second)), "a reader is no writer")
		require.NoError(t, b.Del(ctx, b.key, other).Err())
		b.run(t, writeKind{}.Acquire(b.ask("W")))
		assert.Empty(t, gone(writeKind{}.Renew(lease.Write, []any{b.key}, []any{"W"}, time.Minute)))
		assert.InDelta(t, time.Minute, b.PTTL(ctx, b.key).Val(), float64(10*time.Second))
	})
}

func levelOf(key, owner string, i int) string { return fmt.Sprint(readersOf(key), owner, level, i) }
