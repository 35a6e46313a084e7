package gridtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/wires"
)

// history is what a witness knows of one key: the versions whose writes were answered, and when.
type history struct {
	mu       sync.Mutex // guards what follows
	versions []int
	times    []time.Time
	unknown  map[int]bool // versions whose writes may come late, since nobody knows of them whether they were made
}

// wrote notes the outcome of a write.
func (h *history) wrote(version int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.versions, h.times = append(h.versions, version), append(h.times, time.Now())
	case errors.Is(err, redlatch.ErrUnknown):
		h.unknown[version] = true
	}
}

// overFor returns for how long a version has been over by an answered write. One that may have come after that write is not over.
func (h *history) overFor(version int, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unknown[version] {
		return 0
	}
	for i := len(h.versions) - 1; ; i-- {
		if i < 0 || h.versions[i] <= version {
			if i++; i == len(h.versions) || h.times[i].After(now) {
				return 0
			}
			return now.Sub(h.times[i])
		}
	}
}

// Node is a client that keeps entries near.
type Node interface {
	// Set writes a value.
	Set(t *testing.T, key, text string) error
	// Get reads a value, and reports whether it may have been near.
	Get(t *testing.T, key string) (text string, near bool, err error)
	// Look reads a value that is near, and does not wait for Redis.
	Look(t *testing.T, key string) (text string, ok bool)
}

// Calls is a node of calls that take a second at the most. A value that is missing is an error, or empty.
type Calls struct {
	Write func(ctx context.Context, key, text string) error
	Read  func(ctx context.Context, key string) (string, error)
}

// Set writes a value.
func (n Calls) Set(t *testing.T, key, text string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return n.Write(ctx, key, text)
}

// Get reads a value. Nobody can tell whether it was near.
func (n Calls) Get(t *testing.T, key string) (text string, near bool, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	text, err = n.Read(ctx, key)
	return text, true, err
}

// Look does not wait for Redis: what is near comes at once, and what is not, not in time.
func (n Calls) Look(t *testing.T, key string) (text string, ok bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	text, err := n.Read(ctx, key)
	return text, err == nil && text != ""
}

// Attacked is how many keys an [Attack] uses: 0 to 7.
const Attacked = 8

// Attack has one client write keys and two read them, in a world that is harmed every few milliseconds.
type Attack struct {
	// MaxStale is the bound: no value is read that was over for as long by an answered write.
	MaxStale time.Duration
	// Length is for how long the attack lasts, and Pause that between two reads, two writes, and a fifth of that between harms.
	Length, Pause time.Duration
	// Harm harms the world, not in the first quarter, and Calm ends all harm. Neither is called after Calm.
	Harm, Calm func()
	// Hits are the values that were found near.
	Hits atomic.Int64

	keys  [Attacked]history
	stale atomic.Int64
	worst atomic.Int64 // of stale hits
}

// InMemory harms the connections of a writer and a reader to a server in memory.
func (a *Attack) InMemory(writer, reader *wires.Wires) {
	a.Calm = func() { reader.Blackhole(false) }
	a.Harm = func() {
		switch rand.N(40) {
		case 0:
			reader.Cut()
		case 1:
			writer.LoseReplies(1)
		case 2:
			writer.Cut()
		case 3:
			reader.Blackhole(true)
		case 4, 5, 6:
			reader.Blackhole(false)
		}
	}
}

// OnServer harms the connections of a writer and a reader to a server.
func (a *Attack) OnServer(writer, reader *faulttest.Proxy) {
	a.Calm = func() {
		reader.Blackhole(false)
		reader.DropMessages(false)
		reader.Delay(0)
	}
	a.Harm = func() {
		switch rand.N(30) {
		case 0:
			reader.Cut()
		case 1:
			writer.DropReply(faulttest.Script, 1)
		case 2:
			writer.Cut()
		case 3:
			reader.Blackhole(true)
		case 4:
			reader.DropMessages(true)
		case 5:
			writer.DropMessages(true)
		case 6, 7, 8:
			reader.Blackhole(false)
		case 9, 10, 11:
			reader.DropMessages(false)
			writer.DropMessages(false)
		case 12:
			if rand.N(3) == 0 {
				reader.HalfOpen()
			}
		case 13:
			reader.Delay(rand.N(10 * time.Millisecond))
		case 14, 15, 16:
			reader.Delay(0)
		}
	}
}

// Last returns the last version of a key whose write was answered.
func (a *Attack) Last(key int) string {
	versions := a.keys[key].versions
	return strconv.Itoa(versions[len(versions)-1])
}

// Run attacks, and fails the test for each value that is too old: of the writer for each that was over.
func (a *Attack) Run(t *testing.T, writer, reader Node) {
	t.Helper()
	over := make(chan struct{})
	time.AfterFunc(a.Length, func() { close(over) })
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
		a.keys[i].unknown = map[int]bool{}
		every(time.Duration(i+1)*a.Pause, func() {
			version++
			a.keys[i].wrote(version, writer.Set(t, strconv.Itoa(i), strconv.Itoa(version)))
		}, func() {})
	}
	for range 2 {
		every(a.Pause, func() { a.readAll(t, writer, true) }, func() {})
		every(a.Pause, func() { a.readAll(t, reader, false) }, func() {})
		every(a.Pause, func() { a.lookAtAll(t, reader) }, func() {})
	}
	harmless := time.Now().Add(a.Length / 4)
	every(5*a.Pause, func() {
		if time.Now().After(harmless) {
			a.Harm()
		}
	}, a.Calm)
	all.Wait()
	t.Logf("%d hits, %d stale, at most %v", a.Hits.Load(), a.stale.Load(), time.Duration(a.worst.Load()))
}

// readAll reads all keys.
func (a *Attack) readAll(t *testing.T, n Node, own bool) {
	for i := range a.keys {
		began := time.Now()
		if text, hit, err := n.Get(t, strconv.Itoa(i)); err == nil {
			a.judge(t, i, text, began, own || !hit)
		}
	}
}

// lookAtAll reads what is near of all keys, and so does not wait for Redis.
func (a *Attack) lookAtAll(t *testing.T, n Node) {
	for i := range a.keys {
		began := time.Now()
		if text, ok := n.Look(t, strconv.Itoa(i)); ok {
			a.Hits.Add(1)
			a.judge(t, i, text, began, false)
		}
	}
}

// judge looks at what a read that began then has returned.
func (a *Attack) judge(t *testing.T, key int, text string, began time.Time, fresh bool) {
	version, _ := strconv.Atoi(text)
	over := a.keys[key].overFor(version, began)
	switch {
	case over == 0:
	case fresh || over >= a.MaxStale:
		t.Errorf("key %d: version %d was over for %v", key, version, over)
	default:
		a.stale.Add(1)
		a.worst.Store(max(a.worst.Load(), int64(over)))
	}
}
