package scenario_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/gridtest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// nearNode is a client's map or cache of which values are near.
type nearNode struct {
	gridtest.Calls
	key    func(key string) string // that Redis has it under
	writes sync.RWMutex            // locked while nothing is to be written
}

func (n *nearNode) Set(t *testing.T, key, text string) error {
	n.writes.RLock()
	defer n.writes.RUnlock()
	return n.Calls.Set(t, key, text)
}

// nearKinds are what keeps values near, each with all its keys in the slot of a name's tag.
var nearKinds = map[string]func(c *redlatch.Client, name string, entries int, maxStale time.Duration) *nearNode{
	"map": func(c *redlatch.Client, name string, entries int, maxStale time.Duration) *nearNode {
		m := rmap.New[string, string](c, name, rmap.WithNear(entries), rmap.WithMaxStale(maxStale))
		return &nearNode{key: func(string) string { return m.Key() }, Calls: gridtest.Calls{
			Write: func(ctx context.Context, key, text string) error { return m.Set(ctx, key, text) },
			Read: func(ctx context.Context, key string) (string, error) {
				text, _, err := m.Get(ctx, key)
				return text, err
			},
		}}
	},
	"cache": func(c *redlatch.Client, name string, entries int, maxStale time.Duration) *nearNode {
		m := rcache.New[string, string](c, name, nil, rcache.WithNear(entries), rcache.WithMaxStale(maxStale))
		return &nearNode{key: m.Key, Calls: gridtest.Calls{Write: m.Set, Read: m.Get}}
	},
}

// nearAttack attacks a map and a cache, and then has a reader see the last values near.
type nearAttack struct {
	length, maxStale time.Duration
	writer, reader   *redlatch.Client
	nodes            []*nearNode // of the writer
}

// stopWrites waits until no write is under way, and has none begin until the function that it returns is called.
func (a *nearAttack) stopWrites() (resume func()) {
	for _, n := range a.nodes {
		n.writes.Lock()
	}
	return func() {
		for _, n := range a.nodes {
			n.writes.Unlock()
		}
	}
}

// run has harm called every few milliseconds, by one goroutine.
func (a *nearAttack) run(t *testing.T, name string, harm, calm func()) {
	t.Helper()
	var runs, ends []func()
	for kind, of := range nearKinds {
		writer, reader := of(a.writer, name, 100, a.maxStale), of(a.reader, name, 100, a.maxStale)
		a.nodes = append(a.nodes, writer)
		attack := &gridtest.Attack{MaxStale: a.maxStale, Length: a.length, Pause: 10 * time.Millisecond, Harm: harm, Calm: calm}
		if len(runs) > 0 {
			attack.Harm, attack.Calm = func() {}, func() {}
		}
		runs = append(runs, func() { attack.Run(t, writer, reader) })
		ends = append(ends, func() {
			assert.NotZero(t, attack.Hits.Load(), "near values: %s", kind)
			for i := range gridtest.Attacked {
				key := strconv.Itoa(i)
				redistest.Eventually(t, 30*time.Second, kind+": the last value is near", func() error {
					if text, _, err := reader.Get(t, key); err != nil || text != "last" {
						return errors.Join(err, writer.Set(t, key, "last"), fmt.Errorf("%q is there", text)) // an older write may come late
					}
					if text, ok := reader.Look(t, key); !ok || text != "last" {
						return fmt.Errorf("%q is near", text)
					}
					return nil
				})
			}
		})
	}
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(run)
	}
	all.Wait()
	for _, end := range ends {
		end()
	}
}

// F9, F30: a failover to a replica that has all leaves no near value that is older than its bound, and none that its writer has changed.
func TestNearValuesKeepTheirBoundThroughAFailover(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for _, tc := range failovers() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := tc.start(t)
			quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
			a := &nearAttack{length: 15 * time.Second, maxStale: 2 * time.Second, writer: p.connect(t, quiet), reader: p.connect(t, quiet)}
			begun, failedOver := time.Now(), false
			a.run(t, "{"+nameFor("near", p.concerned)+"}", func() {
				if failedOver || time.Since(begun) < 2*time.Second {
					return
				}
				failedOver = true
				resume := a.stopWrites()
				p.change()
				if p.retire != nil {
					p.retire()
				}
				resume()
				p.serves()
			}, func() {})
			require.True(t, failedOver)
		})
	}
}

// F24, F30
func TestNearValuesKeepTheirBoundWhileTheirSlotMoves(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client := func() *redlatch.Client {
		c, err := redlatch.New(cluster.Client(t))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	a := &nearAttack{length: 10 * time.Second, maxStale: 500 * time.Millisecond, writer: client(), reader: client()}
	const name = "{near}"
	var under *redistest.Migration
	moved := 0
	harm := func() {
		switch {
		case rand.N(4) > 0:
		case under == nil:
			under = cluster.Migrate(t, name, cluster.Other(t, name))
		case rand.N(3) > 0: // some keys are here and some there
			n := a.nodes[rand.N(len(a.nodes))]
			under.Move(t, n.key(strconv.Itoa(rand.N(gridtest.Attacked))))
		default:
			under.Finish(t)
			under = nil
			moved++
		}
	}
	a.run(t, name, harm, func() {
		if under != nil {
			under.Finish(t)
		}
	})
	require.Greater(t, moved, 3)
}

// F18, F30: a near value's age is measured by the client, which the server's clock does not change.
func TestNearValuesKeepTheirBoundWhateverTheServersClockDoes(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	s := startClocked(t, 0)
	client := func() *redlatch.Client { return s.client(t, s.Addr()) }
	a := &nearAttack{length: 6 * time.Second, maxStale: 500 * time.Millisecond, writer: client(), reader: client()}
	a.run(t, "near", func() {
		if rand.N(20) == 0 {
			s.clock.Set(time.Duration(rand.N(5)-2) * time.Hour)
		}
	}, func() { s.clock.Set(0) })
}

// F18, F30: a value whose time is over is not near any more by the client's clock, whatever the server's does meanwhile.
func TestTimeToLiveOfANearValueIsTheClients(t *testing.T) {
	t.Parallel()
	s := startClocked(t, 0)
	c := rcache.New[string, string](s.client(t, s.Addr()), "near", nil, rcache.WithTTL(2*time.Second), rcache.WithNear(10), rcache.WithMaxStale(time.Hour))
	near := func() bool {
		before := c.Stats().NearHits
		_, err := c.Get(t.Context(), "a")
		return err == nil && c.Stats().NearHits > before
	}
	awaitNear := func() {
		redistest.Eventually(t, 10*time.Second, "the value is near", func() error {
			if !near() {
				return errors.New("it is not")
			}
			return nil
		})
	}
	require.NoError(t, c.Set(t.Context(), "a", "kept"))
	awaitNear() // the subscription is confirmed
	require.NoError(t, c.Set(t.Context(), "a", "kept"))
	set := time.Now()
	awaitNear()
	s.clock.Set(-time.Hour)
	redistest.Eventually(t, 10*time.Second, "the near value is over", func() error {
		if began := time.Now(); near() {
			require.Less(t, began.Sub(set), 2*time.Second+2*time.Millisecond, "Redis counts in whole ms: a near value outlives its time")
			return errors.New("it is near")
		}
		return nil
	})
	v, err := c.Get(t.Context(), "a")
	require.NoError(t, err, "by its clock Redis keeps it for another hour")
	require.Equal(t, "kept", v)
}

// nearReader is a process that reads a near value again and again, and says when it began to read, and what it saw, if that is
// something else than before, or if more than 100 ms have passed. Args: the server's address, the bound in ms.
func nearReader(args []string) {
	ctx := context.Background()
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}))
	exitOn(err)
	ms, err := strconv.Atoi(args[1])
	exitOn(err)
	over := make(chan struct{})
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		close(over)
	}()
	nodes := map[string]*nearNode{}
	seen, said := map[string]string{}, map[string]time.Time{}
	for kind, of := range nearKinds {
		nodes[kind] = of(c, "near", 100, time.Duration(ms)*time.Millisecond)
	}
	for {
		for kind, n := range nodes {
			began := time.Now()
			text, err := n.Read(ctx, "a")
			exitOn(err)
			if text != seen[kind] || began.Sub(said[kind]) > 100*time.Millisecond {
				seen[kind], said[kind] = text, began
				faulttest.Emit("%s %s %d", kind, text, began.UnixNano())
			}
		}
		select {
		case <-over:
			return
		default:
		}
	}
}

// F1, F30: a process that was stopped and goes on returns nothing that is older than the bound, also if Redis has closed its subscription
// because it did not read.
func TestStoppedProcessReturnsNoNearValueBeyondItsBound(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const maxStale = time.Second
	server := redistest.Start(t, "--client-output-buffer-limit", "pubsub", "1mb", "0", "0")
	rdb := server.Client(t)
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	written := map[string][]time.Time{} // when each version was
	nodes := map[string]*nearNode{}
	set := func() {
		for kind, n := range nodes {
			require.NoError(t, n.Set(t, "a", strconv.Itoa(len(written[kind]))))
			written[kind] = append(written[kind], time.Now())
		}
	}
	for kind, of := range nearKinds {
		nodes[kind] = of(c, "near", 0, maxStale)
	}
	set()
	child := faulttest.StartChild(t, "near reader", server.Addr(), strconv.FormatInt(maxStale.Milliseconds(), 10))
	// see has the child see the newest versions, and judges what it saw meanwhile.
	see := func() {
		newest := map[string]bool{}
		for len(newest) < len(nodes) {
			line := strings.Fields(child.Next())
			require.Len(t, line, 3)
			version, err := strconv.Atoi(line[1])
			require.NoError(t, err)
			nanos, err := strconv.ParseInt(line[2], 10, 64)
			require.NoError(t, err)
			all := written[line[0]]
			if newest[line[0]] = version == len(all)-1; !newest[line[0]] {
				delete(newest, line[0])
				over := time.Unix(0, nanos).Sub(all[version+1])
				require.Less(t, over, maxStale, "%s: version %d of %d was over", line[0], version, len(all)-1)
			}
		}
	}
	for i := range 12 {
		see()
		child.Stop()
		set()
		if i%3 == 2 { // more than the server and the system keep for it
			for _, channel := range []string{"{near}:topic", "redlatch_cache_channel:{near}"} {
				for range 200 {
					require.NoError(t, rdb.Publish(t.Context(), channel, strings.Repeat("x", 100_000)).Err())
				}
				redistest.AwaitSubscribers(t, rdb, channel, 0)
			}
		}
		time.Sleep([]time.Duration{maxStale / 4, maxStale * 3 / 2}[i%2])
		child.Cont()
	}
	see()
	child.Send("")
	require.NoError(t, child.Wait())
}
