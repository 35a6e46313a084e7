package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const (
	workerVisibility = 2 * time.Second
	maxWork          = 50 * time.Millisecond // so that a kill meets jobs that have begun
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// childClient returns a client of a process that is killed.
func childClient(addr string) *redlatch.Client {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: addr}), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	must(err)
	return c
}

func childQueue(addr string) *rdelayedqueue.Queue[job] {
	return redlatch.GetDelayedQueue[job](childClient(addr), "jobs", rdelayedqueue.WithVisibility(workerVisibility), rdelayedqueue.WithMaxAttempts(0))
}

// Keys of what workers note, on their connection past the proxy.
const (
	handlings  = "handlings" // list of "id attempt process µs end", see handling
	handledIDs = "handled"   // set
	endings    = "endings"   // list of "id attempt end": acked, or lost if the holder was told so
)

// noteHandling notes that a handler has begun, with Redis's time and the time at which the visibility ends unless it is renewed; 0
// if the claim is not the latest any more.
//
// KEYS: handlings, handled, the queue's bodies, flight and claims. ARGV: id, attempt, process.
var noteHandling = redis.NewScript(`
local time = redis.call('time')
local member = string.sub(redis.call('hget', KEYS[3], ARGV[1]) or '', 1, 16) .. ARGV[1]
local attempt = string.sub(redis.call('hget', KEYS[5], ARGV[1]) or '', 18)
local ends = attempt == ARGV[2] and redis.call('zscore', KEYS[4], member) or '0'
redis.call('rpush', KEYS[1], table.concat({ARGV[1], ARGV[2], ARGV[3], string.format('%.0f', time[1] * 1000000 + time[2]), ends}, ' '))
return redis.call('sadd', KEYS[2], ARGV[1])`)

// notesHandling matches calls of noteHandling.
func notesHandling(cmd []string) bool {
	return faulttest.Script(cmd) && len(cmd) > 3 && cmd[3] == handlings
}

// worker consumes jobs until it is killed, and notes what it handles. Args: the address for the queue, and the one for the notes.
func worker(args []string) {
	q := childQueue(args[0])
	notes := redis.NewClient(&redis.Options{Addr: args[1]})
	keys := []string{handlings, handledIDs, "redlatch_dq:{jobs}:bodies", "redlatch_dq:{jobs}:flight", "redlatch_dq:{jobs}:claims"}
	must(q.Consume(context.Background(), func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
		if err := noteHandling.Run(context.WithoutCancel(ctx), notes, keys, m.ID, m.Attempt, os.Getpid()).Err(); err != nil {
			return err
		}
		context.AfterFunc(ctx, func() {
			how := "acked" // no handler fails here
			if errors.Is(context.Cause(ctx), rdelayedqueue.ErrLost) {
				how = "lost"
			}
			must(notes.RPush(context.WithoutCancel(ctx), endings, fmt.Sprint(m.ID, " ", m.Attempt, " ", how)).Err())
		})
		<-time.After(rand.N(maxWork))
		return nil
	}, rdelayedqueue.WithConcurrency(8)))
}

// producer offers one job and ends. Args: the address, the delay in ms.
func producer(args []string) {
	q := childQueue(args[0])
	ms, err := strconv.Atoi(args[1])
	must(err)
	_, err = q.Offer(context.Background(), job{Name: "left behind"}, time.Duration(ms)*time.Millisecond)
	must(err)
}

// A job is handled again only if the process that handled it before had been killed, or was told that the visibility had run out,
// and then not before the visibility had. A lost reply of a claim or an Ack is no reason: neither makes a handling too many. What was
// seen to be acknowledged is never handled again.
//
// F8
func TestKilledWorkersLoseNothing(t *testing.T) {
	r := newRig(t)
	n, workers, kills := faulttest.Rounds(t, 2000, 100_000), 4, 8 // the rounds are jobs
	if faulttest.Soaking() {
		workers, kills = 20, 400
	}
	lag := faulttest.MeasureLag(t, r.server.Addr())
	q := queue(r.direct(t))
	now := func() time.Time {
		now, err := r.redis.Time(t.Context()).Result()
		require.NoError(t, err)
		return now
	}
	start := func() *faulttest.Child { return faulttest.StartChild(t, "worker", r.proxy.Addr(), r.server.Addr()) }
	children := make([]*faulttest.Child, workers)
	for i := range children {
		children[i] = start()
	}
	record := workRecord{due: map[string]time.Time{}, killed: map[string]time.Time{}}
	for first := 0; first < n; first += 100 {
		items := make([]rdelayedqueue.Item[job], 100)
		offered := now()
		for i := range items {
			items[i] = rdelayedqueue.Item[job]{Delay: rand.N(3 * time.Second), ID: strconv.Itoa(first + i)}
			record.due[items[i].ID] = offered.Add(items[i].Delay.Truncate(time.Millisecond))
		}
		_, err := q.OfferBatch(t.Context(), items)
		require.NoError(t, err)
	}
	handled := func() int64 { return r.redis.SCard(t.Context(), handledIDs).Val() }
	for kill := range kills {
		goal := min(int64(n), handled()+int64(n/kills/2))
		redistest.Eventually(t, patience, "jobs are handled", func() error {
			if now := handled(); now < goal {
				return fmt.Errorf("%d of %d", now, goal)
			}
			return nil
		})
		victim := rand.N(workers)
		record.killed[strconv.Itoa(children[victim].Pid())] = now()
		children[victim].Kill()
		children[victim] = start()
		if kill%2 == 0 {
			r.proxy.DropReply(faulttest.Script, 1+rand.N(20))
		}
	}
	redistest.Eventually(t, 2*patience, "all jobs are done", func() error {
		s, err := q.Stats(t.Context())
		if err == nil && s != (rdelayedqueue.Stats{}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	for _, child := range children {
		child.Kill()
	}
	assert.EqualValues(t, n, handled(), "each job was handled")
	record.read(t, r.redis)
	again := 0
	for id, all := range record.handled {
		again += len(all) - 1
		for _, err := range record.unexplained(id) {
			t.Errorf("job %s: %v, of %v", id, err, all)
		}
	}
	t.Logf("%d jobs, %d handled again, after %d kills and %d lost replies; %d lost, worst lag %v",
		n, again, kills, r.proxy.Dropped(), len(record.lost), lag.Worst())
	if lag.Late() < workerVisibility {
		assert.Empty(t, record.lost, "only a machine that stands still lets a visibility run out while a worker lives")
	}
}

// handling is that a handler has begun, as its process noted it.
type handling struct {
	attempt int
	process string
	at      time.Time // by Redis's clock, as all here
	until   time.Time // the claim lasts until then at least, if that is known
}

func (h handling) String() string {
	const clock = "05.000000"
	return fmt.Sprintf("attempt %d by %s at %s until %s", h.attempt, h.process, h.at.Format(clock), h.until.Format(clock))
}

// workRecord is what became of the jobs.
type workRecord struct {
	due     map[string]time.Time  // by job; it may be due a little later
	killed  map[string]time.Time  // by process: when the kill was about to begin
	handled map[string][]handling // by job, in order
	acked   map[string]int        // by job: the attempt that was acknowledged
	lost    map[string]bool       // by job and attempt: its holder was told that it had lost the job
}

// read reads what the workers noted.
func (w *workRecord) read(t *testing.T, rdb *redis.Client) {
	t.Helper()
	w.handled, w.acked, w.lost = map[string][]handling{}, map[string]int{}, map[string]bool{}
	list, err := rdb.LRange(t.Context(), handlings, 0, -1).Result()
	require.NoError(t, err)
	for _, line := range list {
		var id string
		var at, until float64
		var h handling
		_, err := fmt.Sscan(line, &id, &h.attempt, &h.process, &at, &until)
		require.NoError(t, err, line)
		h.at, h.until = time.UnixMicro(int64(at)), time.UnixMicro(int64(until))
		w.handled[id] = append(w.handled[id], h)
	}
	list, err = rdb.LRange(t.Context(), endings, 0, -1).Result()
	require.NoError(t, err)
	for _, line := range list {
		var id, how string
		var attempt int
		_, err := fmt.Sscan(line, &id, &attempt, &how)
		require.NoError(t, err, line)
		if how == "acked" {
			w.acked[id] = max(w.acked[id], attempt)
		} else {
			w.lost[lostKey(id, attempt)] = true
		}
	}
}

func lostKey(id string, attempt int) string { return fmt.Sprint(id, " ", attempt) }

// unexplained returns what of the handlings of a job has no cause, one by one. An attempt that nobody began to handle was claimed
// by another process that was killed before.
func (w *workRecord) unexplained(id string) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	all := w.handled[id]
	holders := map[string]bool{}
	until, attempt, unbegun := w.due[id], 0, 0
	for i, h := range all {
		skipped := h.attempt - attempt - 1
		if skipped < 0 {
			fault("attempt %d after %d", h.attempt, attempt)
		}
		earliest := until.Add(time.Duration(skipped) * workerVisibility)
		if h.at.Before(earliest) {
			fault("attempt %d came %v too early", h.attempt, earliest.Sub(h.at))
		}
		if unbegun += skipped; unbegun > 0 {
			others := 0
			for process, at := range w.killed {
				if !holders[process] && at.Before(h.at) {
					others++
				}
			}
			if others < unbegun {
				fault("%d attempts before %d were not begun, and only %d processes killed", unbegun, h.attempt, others)
			}
		}
		if i > 0 {
			before := all[i-1]
			kill, isKilled := w.killed[before.process]
			if (!isKilled || kill.After(h.at)) && !w.lost[lostKey(id, before.attempt)] {
				fault("attempt %d, but process %s lives, which handled it before", h.attempt, before.process)
			}
		}
		if acked, ok := w.acked[id]; ok && acked < h.attempt {
			fault("attempt %d, but attempt %d was acknowledged", h.attempt, acked)
		}
		holders[h.process], attempt = true, h.attempt
		until = earliest.Add(workerVisibility) // it was not claimed sooner
		if h.until.After(until) {
			until = h.until
		}
	}
	return faults
}

// F8
func TestMessageOfAKilledWorkerComesBackInTime(t *testing.T) {
	r := newRig(t)
	lag := faulttest.MeasureLag(t, r.server.Addr())
	q := queue(r.direct(t), rdelayedqueue.WithMaxAttempts(0))
	child := faulttest.StartChild(t, "worker", r.proxy.Addr(), r.proxy.Addr())
	caught := make(chan struct{}, 1)
	r.proxy.OnCommand(func(cmd []string) {
		if notesHandling(cmd) { // a handler has begun
			select {
			case caught <- struct{}{}:
			default:
			}
			<-t.Context().Done()
		}
	})
	_, err := q.Offer(t.Context(), job{Name: "a"}, 0)
	require.NoError(t, err)
	<-caught
	child.Kill()
	killed := time.Now()
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, m.Attempt)
	assert.Less(t, time.Since(killed), workerVisibility+time.Second+lag.Late())
	require.NoError(t, m.Ack(t.Context()))
}

// F8
func TestCancelledTakeLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q := queue(r.client(t))
	r.proxy.Delay(2 * time.Millisecond)
	n := faulttest.Rounds(t, 60, 500)
	for i := range n {
		id, err := q.Offer(t.Context(), job{N: i}, 0)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(12*time.Millisecond))
		m, err := q.Take(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			m, err = q.Take(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, id, m.ID)
		require.Equal(t, 1, m.Attempt, "a claim that nobody saw does not count")
		require.NoError(t, m.Ack(t.Context()))
	}
	assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
}
