package near_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/wires"
)

// history is what a witness knows of one key: the versions whose writes were answered, and when.
type history struct {
	mu       sync.Mutex // guards what follows
	versions []int
	times    []time.Time
}

func (h *history) answered(version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions, h.times = append(h.versions, version), append(h.times, time.Now())
}

// overFor returns for how long a version has been over by an answered write.
func (h *history) overFor(version int, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.versions) - 1; ; i-- {
		if i < 0 || h.versions[i] <= version {
			if i++; i == len(h.versions) || h.times[i].After(now) {
				return 0
			}
			return now.Sub(h.times[i])
		}
	}
}

// attack has one client write keys and two read them, in a world that is harmed every few milliseconds.
type attack struct {
	maxStale, length, pause time.Duration
	harm, calm              func()
	keys                    [8]history

	hits, stale, wrong atomic.Int64
	worst              atomic.Int64 // of stale hits
}

func (a *attack) run(t *testing.T, writer, reader *node) {
	t.Helper()
	over := make(chan struct{})
	time.AfterFunc(a.length, func() { close(over) })
	var all sync.WaitGroup
	every := func(pause time.Duration, fn, last func()) {
		all.Go(func() {
			defer last()
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
					fn()
				}
			}
		})
	}
	for i := range a.keys {
		version := 0
		every(time.Duration(i+1)*a.pause, func() {
			version++
			if writer.set(t, strconv.Itoa(i), strconv.Itoa(version)) == nil {
				a.keys[i].answered(version)
			}
		}, func() {})
	}
	for range 2 {
		every(a.pause, func() { a.readAll(t, writer, true) }, func() {})
		every(a.pause, func() { a.readAll(t, reader, false) }, func() {})
		every(a.pause, func() { a.lookAtAll(t, reader) }, func() {})
	}
	every(5*a.pause, a.harm, a.calm)
	all.Wait()
	t.Logf("%d hits, %d stale, at most %v; reader %+v", a.hits.Load(), a.stale.Load(), time.Duration(a.worst.Load()), reader.Stats())
}

// readAll reads all keys.
func (a *attack) readAll(t *testing.T, n *node, own bool) {
	for i := range a.keys {
		began := time.Now()
		if text, hit, err := n.get(t, strconv.Itoa(i)); err == nil {
			a.judge(t, i, text, began, own || !hit)
		}
	}
}

// lookAtAll reads what is near of all keys, and so does not wait for Redis.
func (a *attack) lookAtAll(t *testing.T, n *node) {
	for i := range a.keys {
		began := time.Now()
		if text, ok := n.Get(strconv.Itoa(i)); ok {
			a.hits.Add(1)
			a.judge(t, i, text, began, false)
		}
	}
}

// judge looks at what a read that began then has returned.
func (a *attack) judge(t *testing.T, key int, text string, began time.Time, fresh bool) {
	version, _ := strconv.Atoi(text)
	over := a.keys[key].overFor(version, began)
	switch {
	case over == 0:
	case fresh || over >= a.maxStale:
		a.wrong.Add(1)
		t.Errorf("key %d: version %d was over for %v", key, version, over)
	default:
		a.stale.Add(1)
		a.worst.Store(max(a.worst.Load(), int64(over)))
	}
}

// of gives a node a cache with the attack's bound.
func (a *attack) of(n *node) *node {
	n.Cache = near.New[string](n.core, near.MapTopic(name), near.Options[string]{Entries: 100, MaxStale: a.maxStale})
	return n
}

// F30
func TestStalenessIsBoundedUnderFaultsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		w, r := wires.New(server.Dial), wires.New(server.Dial)
		a := attack{maxStale: 2 * time.Second, length: 10 * time.Second, pause: 10 * time.Millisecond}
		a.calm = func() { r.Blackhole(false) }
		a.harm = func() {
			switch rand.N(40) {
			case 0:
				r.Cut()
			case 1:
				w.LoseReplies(1)
			case 2:
				w.Cut()
			case 3:
				r.Blackhole(true)
			case 4, 5, 6:
				r.Blackhole(false)
			}
		}
		a.run(t, a.of(newNode(t, pipe.Client(w.Dial))), a.of(newNode(t, pipe.Client(r.Dial))))
		require.NotZero(t, a.hits.Load())
	})
}

// F30
func TestStalenessIsBoundedUnderFaultsOnAServer(t *testing.T) {
	server := redistest.Start(t)
	client := func() (*faulttest.Proxy, *node) {
		p := faulttest.NewProxy(t, server.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 300 * time.Millisecond, MaxRetries: -1})
		return p, newNode(t, rdb)
	}
	w, writer := client()
	r, reader := client()
	a := attack{maxStale: 500 * time.Millisecond, length: time.Duration(faulttest.Rounds(t, 2, 60)) * time.Second, pause: 4 * time.Millisecond}
	a.harm = func() {
		switch rand.N(30) {
		case 0:
			r.Cut()
		case 1:
			w.DropReply(faulttest.Script, 1)
		case 2:
			w.Cut()
		case 3:
			r.Blackhole(true)
		case 4:
			r.DropMessages(true)
		case 5:
			w.DropMessages(true)
		case 6, 7, 8:
			r.Blackhole(false)
		case 9, 10, 11:
			r.DropMessages(false)
			w.DropMessages(false)
		}
	}
	a.calm = func() {
		r.Blackhole(false)
		r.DropMessages(false)
	}
	a.run(t, a.of(writer), a.of(reader))
	require.NotZero(t, a.hits.Load())
}

// F30
func TestStalenessIsBoundedWhileTheSlotMoves(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	client := func() *node {
		return newNode(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
	}
	a := attack{maxStale: 500 * time.Millisecond, length: 10 * time.Second, pause: 4 * time.Millisecond, calm: func() {}}
	moves := 0
	a.harm = func() {
		if rand.N(20) > 0 {
			return
		}
		if to := cluster.Nodes()[rand.N(3)]; to.Addr() != cluster.Owner(t, name).Addr() {
			cluster.Migrate(t, name, to).Finish(t)
			moves++
		}
	}
	a.run(t, a.of(client()), a.of(client()))
	require.NotZero(t, a.hits.Load())
	require.NotZero(t, moves)
}

func TestWriteIsSeenOnACluster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	client := func() *node {
		return newNode(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
	}
	writer, reader := client(), client()
	for version := range 20 {
		want := strconv.Itoa(version)
		require.NoError(t, writer.set(t, "k", want))
		for _, n := range []*node{writer, reader} {
			redistest.Eventually(t, 10*time.Second, "the version is near", func() error {
				if got, hit, err := n.get(t, "k"); err != nil || !hit || got != want {
					return errNotYet
				}
				return nil
			})
		}
	}
}

// F30
func TestHitsAreFreshWithoutFaults(t *testing.T) {
	server := redistest.Start(t)
	a := attack{maxStale: time.Hour, length: time.Second, pause: 4 * time.Millisecond, harm: func() {}, calm: func() {}}
	writer, reader := newNode(t, server.Client(t)), newNode(t, server.Client(t))
	a.run(t, a.of(writer), a.of(reader))
	require.NotZero(t, a.hits.Load())
	redistest.Eventually(t, 10*time.Second, "the reader has the last versions", func() error {
		for i := range a.keys {
			last := a.keys[i].versions[len(a.keys[i].versions)-1]
			got, _, err := reader.get(t, strconv.Itoa(i))
			if err != nil || got != strconv.Itoa(last) {
				return errNotYet
			}
		}
		return nil
	})
	assert.Zero(t, a.wrong.Load())
}
