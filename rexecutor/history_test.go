package rexecutor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
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
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rexecutor"
)

// order is what a task of a history does.
type order struct{ Group, How string }

const (
	fails   = "fails at first"
	rejects = "rejects"
)

// receipt says which run of a task has returned it.
type receipt struct{ Token int64 }

const (
	historyLimit      = 2 // of a group
	historyVisibility = time.Second
	witnessKey        = "runs" // list of what happened, in order
)

// deliver has results, and note has none.
var (
	soonAgain = rexecutor.WithBackoff(func(int) time.Duration { return time.Millisecond })
	deliver   = rexecutor.NewTask[order, receipt]("deliver", rexecutor.WithMaxAttempts(0), soonAgain)
	note      = rexecutor.NewTask[order, struct{}]("note", rexecutor.WithMaxAttempts(0), soonAgain)
)

func historyExecutor(c *redlatch.Client) *rexecutor.Executor {
	return rexecutor.New(c, "history", rexecutor.WithGroupLimit(historyLimit), rexecutor.WithVisibility(historyVisibility))
}

// taskWorker works on tasks until its input ends or it is killed. Args: the URL of the executor, the address of the witness.
func taskWorker(argv []string) {
	rdb := redis.NewClient(&redis.Options{Addr: argv[1]})
	ctx, stop := context.WithCancel(context.Background())
	c, err := redlatch.Open(ctx, argv[0], redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	ex := historyExecutor(c)
	err = errors.Join(err, deliver.Handle(ex, func(ctx context.Context, c rexecutor.Call[order]) (receipt, error) {
		return receipt{c.Token}, witnessed(ctx, rdb, c.Info, c.Args)
	}), note.Handle(ex, func(ctx context.Context, c rexecutor.Call[order]) (struct{}, error) {
		return struct{}{}, witnessed(ctx, rdb, c.Info, c.Args)
	}))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err == nil {
		faulttest.Emit("works")
		err = ex.Work(ctx, rexecutor.WithConcurrency(6), rexecutor.WithTaskConcurrency(note, 4))
	}
	if err = errors.Join(err, c.Close()); err != nil {
		panic(err)
	}
}

// witnessed is a run of a task of which a witness outside is told.
func witnessed(ctx context.Context, rdb *redis.Client, info rexecutor.Info, o order) error {
	tell := func(what string) error {
		line := fmt.Sprintf("%s %s %d %d %s", what, info.ID, info.Token, os.Getpid(), o.Group)
		return rdb.RPush(context.WithoutCancel(ctx), witnessKey, line).Err()
	}
	if err := tell("begins"); err != nil {
		return err
	}
	select {
	case <-time.After(rand.N(6 * time.Millisecond)):
	case <-ctx.Done():
	}
	switch {
	case ctx.Err() != nil:
		return errors.Join(tell("loses"), context.Cause(ctx))
	case o.How == fails && info.Attempt == 1:
		return errors.Join(tell("fails"), errors.New("again"))
	case o.How == rejects:
		return errors.Join(tell("rejects"), rexecutor.Reject(errors.New("no")))
	}
	return tell("ends")
}

// taskHistory is what happens to tasks while something harms them.
type taskHistory struct {
	witness *redistest.Server
	rdb     *redis.Client // of the witness

	mu     sync.Mutex // guards all below
	sent   []string   // ids of tasks without a result
	future map[string]fate
	killed map[string]bool // by process: it was killed, or stood still for longer than its claims last
}

// fate is what became of a task, as its caller saw it.
type fate struct {
	order
	result    receipt
	err       error
	cancelled string // how Cancel ended, if it was called: yes, no, ?; early if it was done before the task was due
}

func newTaskHistory(t *testing.T) *taskHistory {
	t.Helper()
	s := redistest.Start(t)
	return &taskHistory{witness: s, rdb: s.Client(t), future: map[string]fate{}, killed: map[string]bool{}}
}

// worker starts a process that works on tasks.
func (h *taskHistory) worker(t *testing.T, url string) *faulttest.Child {
	t.Helper()
	child := faulttest.StartChild(t, "task worker", url, h.witness.Addr())
	child.WaitFor("works")
	return child
}

// fault tells of a process that is about to be killed, or to stand still.
func (h *taskHistory) fault(child *faulttest.Child) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killed[strconv.Itoa(child.Pid())] = true
	h.rdb.RPush(context.Background(), witnessKey, fmt.Sprint("faults - 0 ", child.Pid(), " "))
}

// use submits n tasks, one after the other, cancels some, and waits for the results of a few at a time.
func (h *taskHistory) use(t *testing.T, ex *rexecutor.Executor, name string, n int) {
	t.Helper()
	var waits sync.WaitGroup
	free := make(chan struct{}, 8)
	for i := range n {
		free <- struct{}{}
		id, o := fmt.Sprint(name, "-", i), order{Group: []string{"", "a", "b"}[rand.N(3)], How: []string{"", "", fails, rejects}[rand.N(4)]}
		delay := time.Duration(rand.N(2)) * rand.N(20*time.Millisecond)
		opts := []rexecutor.SubmitOption{rexecutor.WithID(id), rexecutor.WithDelay(delay), rexecutor.WithPriority(rand.N(3))}
		if o.Group != "" {
			opts = append(opts, rexecutor.WithGroup(o.Group))
		}
		if rand.N(4) == 0 {
			if o.How == rejects {
				o.How = ""
			}
			h.persist(t, func() error { return note.Send(t.Context(), ex, o, opts...) })
			h.mu.Lock()
			h.sent = append(h.sent, id)
			h.mu.Unlock()
			<-free
			continue
		}
		submitted := time.Now()
		var f *rexecutor.Future[receipt]
		h.persist(t, func() (err error) {
			f, err = deliver.Submit(t.Context(), ex, o, opts...)
			return err
		})
		waits.Go(func() {
			h.await(t, f, o, submitted.Add(delay))
			<-free
		})
	}
	waits.Wait()
}

// persist makes a call that may be repeated until it is known to have taken effect.
func (h *taskHistory) persist(t *testing.T, call func() error) {
	t.Helper()
	redistest.Eventually(t, patience, "it is submitted", call)
}

// await cancels some tasks, and waits for the end of all.
func (h *taskHistory) await(t *testing.T, f *rexecutor.Future[receipt], o order, due time.Time) {
	t.Helper()
	was := fate{order: o}
	if rand.N(5) == 0 {
		<-time.After(rand.N(10 * time.Millisecond))
		ok, err := f.Cancel(t.Context())
		switch {
		case err != nil:
			was.cancelled = "?"
		case !ok:
			was.cancelled = "no"
		case time.Now().Before(due.Add(-time.Millisecond)):
			was.cancelled = "early"
		default:
			was.cancelled = "yes"
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	was.result, was.err = f.Get(ctx)
	assert.NoError(t, h.rdb.RPush(t.Context(), witnessKey, fmt.Sprint("got ", f.ID(), " 0 - ")).Err())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.future[f.ID()] = was
}

// drained waits until nothing is left to do.
func (h *taskHistory) drained(t *testing.T, ex *rexecutor.Executor) {
	t.Helper()
	redistest.Eventually(t, patience, "all tasks have ended", func() error {
		s, err := ex.Stats(t.Context())
		if err == nil && s.Delayed+s.Ready+s.InFlight > 0 {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

// run is a run of a task, as the witness saw it.
type run struct {
	id, process, group string
	token              int64
	over               string // how it ended; empty if its process was killed
}

// line is something that the witness was told.
type line struct {
	what, id, process, group, text string
	token                          int64
}

// told returns all that the witness was told, in order, and the runs by task.
func (h *taskHistory) told(t *testing.T) (all []line, runs map[string][]*run) {
	t.Helper()
	texts, err := h.rdb.LRange(t.Context(), witnessKey, 0, -1).Result()
	require.NoError(t, err)
	runs = map[string][]*run{}
	for _, text := range texts {
		word := strings.SplitN(text, " ", 5)
		require.Len(t, word, 5, text)
		token, err := strconv.ParseInt(word[2], 10, 64)
		require.NoError(t, err, text)
		l := line{what: word[0], id: word[1], process: word[3], group: word[4], text: text, token: token}
		all = append(all, l)
		if l.what == "begins" {
			runs[l.id] = append(runs[l.id], &run{id: l.id, process: l.process, group: l.group, token: token})
		} else if r := runOf(runs[l.id], token); r != nil {
			r.over = l.what
		}
	}
	return all, runs
}

func runOf(runs []*run, token int64) *run {
	for _, r := range runs {
		if r.token == token {
			return r
		}
	}
	return nil
}

// judge requires that what the callers saw agrees with what the witness saw.
func (h *taskHistory) judge(t *testing.T) {
	t.Helper()
	all, runs := h.told(t)
	got, again := map[string]bool{}, 0
	live, faulted := map[*run]bool{}, map[string]bool{} // those that certainly have their claims, which a process has not that is harmed
	for _, l := range all {
		r := runOf(runs[l.id], l.token)
		switch l.what {
		case "got":
			got[l.id] = true
		case "faults":
			faulted[l.process] = true
			maps.DeleteFunc(live, func(r *run, _ bool) bool { return r.process == l.process })
		case "begins":
			if first := r == runs[l.id][0]; !first {
				again++
			}
			h.mayBegin(t, l, runs[l.id], got[l.id])
			if r.over != "loses" && !faulted[l.process] {
				live[r] = true
			}
			inside := 0
			for other := range live {
				if other.group == l.group {
					inside++
				}
			}
			if l.group != "" {
				assert.LessOrEqual(t, inside, historyLimit, "%s: of its group there are too many", l.text)
			}
		default:
			delete(live, r)
		}
	}
	for _, id := range h.sent {
		assert.True(t, endedAs(runs[id], 0, "ends"), "%s was sent and not done", id)
	}
	seen := map[string]int{}
	for id, f := range h.future {
		seen[h.check(t, id, f, runs[id])]++
	}
	t.Logf("%d tasks with results: %v; %d without; %d runs began again", len(h.future), seen, len(h.sent), again)
}

// mayBegin requires of a run that it may begin, after others of its task, and when its caller may have got an end.
func (h *taskHistory) mayBegin(t *testing.T, l line, runs []*run, got bool) {
	t.Helper()
	if h.killed[l.process] { // it may not have found out that it has lost the claim
		return
	}
	if got {
		assert.NotEmpty(t, h.future[l.id].cancelled, "%s: it had ended", l.text)
	}
	for _, r := range runs {
		if r.token == l.token {
			return
		}
		assert.True(t, r.over == "fails" || r.over == "loses" || h.killed[r.process], "%s: it is begun again after %+v", l.text, *r)
	}
}

// endedAs reports whether a run of a task ended like this, that of the token if it is not 0.
func endedAs(runs []*run, token int64, how string) bool {
	for _, r := range runs {
		if r.over == how && (token == 0 || r.token == token) {
			return true
		}
	}
	return false
}

// check requires that a future had the end of its task, and returns what that was.
func (h *taskHistory) check(t *testing.T, id string, f fate, runs []*run) string {
	t.Helper()
	var failed *rexecutor.TaskError
	switch {
	case errors.Is(f.err, rexecutor.ErrCancelled):
		assert.Contains(t, []string{"yes", "early", "?"}, f.cancelled, "%s is cancelled", id)
		if f.cancelled == "early" {
			assert.Empty(t, runs, "%s was cancelled before it was due", id)
		}
		return "cancelled " + f.cancelled
	case errors.As(f.err, &failed):
		assert.Equal(t, rejects, f.How, "%s failed: %v", id, failed)
		assert.True(t, endedAs(runs, 0, "rejects"), "%s: %v", id, runs)
	default:
		if assert.NoError(t, f.err, "%s, cancelled: %s", id, f.cancelled) {
			assert.True(t, endedAs(runs, f.result.Token, "ends"), "%s has the result of %d: %v", id, f.result.Token, runs)
		}
	}
	assert.NotContains(t, []string{"yes", "early"}, f.cancelled, "%s was cancelled, and ended: %v", id, f.err)
	if f.err != nil {
		return "failed"
	}
	return "done"
}

// stage is where a history is played.
type stage struct {
	rdb  redis.UniversalClient   // of the server itself
	url  func() string           // for a worker
	open func() *redlatch.Client // for a caller
}

// play has two clients use an executor on which three processes work, while something harms them.
func (h *taskHistory) play(t *testing.T, tasks int, s stage, harm func(workers []*faulttest.Child)) {
	t.Helper()
	var workers []*faulttest.Child
	for range 3 {
		workers = append(workers, h.worker(t, s.url()))
	}
	var users sync.WaitGroup
	for i := range 2 {
		ex := historyExecutor(s.open())
		for j := range 2 {
			users.Go(func() { h.use(t, ex, fmt.Sprint(i, "-", j), tasks) })
		}
	}
	harm(workers)
	users.Wait()
	h.drained(t, historyExecutor(s.open()))
	h.judge(t)
	left, err := s.rdb.ZRange(t.Context(), "redlatch_dq:{history}:tasks:groups", 0, -1).Result()
	require.NoError(t, err)
	assert.Empty(t, left, "places of groups that nobody has any more")
}

// disturbed plays on a server that is reached through proxies which lose replies of all calls, and cut connections.
func (h *taskHistory) disturbed(t *testing.T, tasks int, harm func(url func() string, workers []*faulttest.Child)) {
	t.Helper()
	server := redistest.Start(t)
	through := func() string {
		p := faulttest.NewProxy(t, server.Addr())
		p.Disturb()
		return p.Addr()
	}
	url := func() string { return "redis://" + through() }
	on := stage{server.Client(t), url, func() *redlatch.Client { return connect(t, through()) }}
	h.play(t, tasks, on, func(workers []*faulttest.Child) { harm(url, workers) })
}

// F2, F8: workers are killed, and replies of all calls lost.
func TestTaskHistoryUnderFaults(t *testing.T) {
	t.Parallel()
	for range faulttest.Rounds(t, 1, 8) {
		h := newTaskHistory(t)
		h.disturbed(t, 60, func(url func() string, workers []*faulttest.Child) {
			for _, victim := range workers[:2] {
				<-time.After(150 * time.Millisecond) // what is done meanwhile is no event here
				h.fault(victim)
				victim.Kill()
				h.worker(t, url())
			}
		})
	}
}

// F1, F2, F8: workers stand still for longer than their claims last, and go on.
func TestTaskHistoryOfStoppedWorkers(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for range faulttest.Rounds(t, 1, 8) {
		h := newTaskHistory(t)
		h.disturbed(t, 300, func(_ func() string, workers []*faulttest.Child) {
			for _, victim := range workers[:2] {
				<-time.After(300 * time.Millisecond) // as above
				h.fault(victim)
				victim.Stop()
				<-time.After(historyVisibility * 3 / 2)
				victim.Cont()
			}
		})
	}
}

// F2, F8, F24: a slot of a cluster moves to and fro, key by key, and a worker is killed meanwhile.
func TestTaskHistoryWhileASlotMoves(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const slot = "{history}"
	cluster := redistest.StartCluster(t, 3)
	h := newTaskHistory(t)
	open := func() *redlatch.Client {
		c, err := redlatch.New(cluster.Client(t), redlatch.WithCloseGrace(100*time.Millisecond), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	h.play(t, 300, stage{cluster.Client(t), cluster.URL, open}, func(workers []*faulttest.Child) {
		for i := range faulttest.Rounds(t, 6, 40) {
			m := cluster.Migrate(t, slot, cluster.Other(t, slot))
			<-time.After(100 * time.Millisecond) // for which all keys are on the old node
			keys := m.Left(t)
			require.NotEmpty(t, keys)
			rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for _, key := range keys[:rand.N(len(keys)+1)] {
				m.Move(t, key)
				<-time.After(rand.N(20 * time.Millisecond)) // as above
			}
			if i == 1 {
				h.fault(workers[0])
				workers[0].Kill()
			}
			m.Finish(t)
			<-time.After(100 * time.Millisecond)
		}
	})
}
