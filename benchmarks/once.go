package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/ronce"
)

const (
	onceProcesses = 4
	onceCallers   = 16                     // in each process
	onceWork      = 100 * time.Millisecond // of the function
	onceRound     = 250 * time.Millisecond // from one key to the next
	oncePoll      = 10 * time.Millisecond  // of those who poll
	onceKept      = time.Minute
)

// onceTask is what one process does: its goroutines call with one key after the other, at times that all processes share.
type onceTask struct {
	Addr string `json:"addr"`
	Keys int    `json:"keys"` // for each contestant, by turns
}

// onceResult is what a process saw of one key.
type onceResult struct {
	Runs  int       `json:"runs"`  // of the function, here
	Ended time.Time `json:"ended"` // when that returned, zero if it did not run here
	Last  time.Time `json:"last"`  // when the last caller had the value
	Value string    `json:"value"`
}

// doer returns the value of a key, and may run fn for it.
type doer func(ctx context.Context, key string, fn func(context.Context) (string, error)) (string, error)

// onceDoers returns the contestants, in the order of their turns.
func onceDoers(task onceTask) (names []string, doers []doer, err error) {
	s, err := newRedlatch(setup{Addr: task.Addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, nil, err
	}
	once := redlatch.GetOnce[string](s.client, "once", ronce.WithTTL(onceKept))
	byRedlatch := func(ctx context.Context, key string, fn func(context.Context) (string, error)) (string, error) {
		value, _, err := once.Do(ctx, key, fn)
		return value, err
	}
	return []string{onceName, setNXName}, []doer{byRedlatch, doBySetNX(newGoRedis(setup{Addr: task.Addr}))}, nil
}

// doBySetNX is what users write by hand: who sets the claim runs and stores the value, and the others look for it again and again.
func doBySetNX(rdb *redis.Client) doer {
	return func(ctx context.Context, key string, fn func(context.Context) (string, error)) (string, error) {
		var p pause
		for {
			value, err := rdb.Get(ctx, "value:"+key).Result()
			if !errors.Is(err, redis.Nil) {
				return value, err
			}
			claimed, err := rdb.SetNX(ctx, "claim:"+key, "1", lease).Result()
			if err != nil {
				return "", err
			}
			if claimed {
				if value, err = fn(ctx); err != nil {
					return "", err
				}
				return value, rdb.Set(ctx, "value:"+key, value, onceKept).Err()
			}
			if err := p.wait(ctx, oncePoll); err != nil {
				return "", err
			}
		}
	}
}

// callOnce is the task of a worker. It returns what it saw of each key.
func callOnce(ctx context.Context, task onceTask, ready func() time.Time) ([]onceResult, error) {
	_, doers, err := onceDoers(task)
	if err != nil {
		return nil, err
	}
	start := ready()
	results := make([]onceResult, len(doers)*task.Keys)
	for i := range results {
		time.Sleep(time.Until(start.Add(time.Duration(i) * onceRound)))
		if results[i], err = callTogether(ctx, onceCallers, onceWork, doers[i%len(doers)], strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// callTogether has callers call with one key, whose function takes the time of work.
func callTogether(ctx context.Context, callers int, work time.Duration, do doer, key string) (r onceResult, err error) {
	var mu sync.Mutex // guards r and err
	var running sync.WaitGroup
	fn := func(context.Context) (string, error) {
		time.Sleep(work)
		mu.Lock()
		defer mu.Unlock()
		r.Runs++
		r.Ended = time.Now()
		return fmt.Sprint(os.Getpid(), " ", r.Runs), nil
	}
	for range callers {
		running.Go(func() {
			value, failure := do(ctx, key, fn)
			at := time.Now()
			mu.Lock()
			defer mu.Unlock()
			if r.Value == "" {
				r.Value = value
			}
			if at.After(r.Last) {
				r.Last = at
			}
			if failure == nil && value != r.Value {
				failure = fmt.Errorf("%q and %q are values of key %s", r.Value, value, key)
			}
			err = errors.Join(err, failure)
		})
	}
	running.Wait()
	return r, err
}

// once measures how soon all callers of a key have the value that one of them has made.
func once(ctx context.Context, b *bench) ([]row, error) {
	keys := 50
	if b.config.quick {
		keys = 10
	}
	results, err := together[onceTask, []onceResult](ctx, "once", onceProcesses, onceTask{b.server.addr, keys}, nil)
	if err != nil {
		return nil, err
	}
	names := []string{onceName, setNXName}
	late := samples{} // ms
	most := map[string]int{}
	for i := range results[0] {
		name := names[i%len(names)]
		runs, ended, last := 0, time.Time{}, time.Time{}
		for _, process := range results {
			r := process[i]
			if runs += r.Runs; r.Ended.After(ended) {
				ended = r.Ended
			}
			if r.Last.After(last) {
				last = r.Last
			}
			if r.Value != results[0][i].Value && most[name] < 2 {
				return nil, fmt.Errorf("%s: %q and %q are values of one key", name, r.Value, results[0][i].Value)
			}
		}
		most[name] = max(most[name], runs)
		late.add(name, last.Sub(ended).Seconds()*1000)
	}
	return onceRows(late, most), b.server.empty(ctx)
}

func onceRows(late samples, most map[string]int) []row {
	prefix := fmt.Sprintf("once, %d callers in %d processes: ", onceProcesses*onceCallers, onceProcesses)
	runs := row{Measure: prefix + "runs of the function for a key, most", Cells: make(map[string][]float64)}
	values := row{
		Measure: prefix + "from the function's return to the last value, median / p90 / worst, ms",
		Cells:   make(map[string][]float64), Rounds: late,
	}
	for name, took := range late {
		runs.Cells[name] = []float64{float64(most[name])}
		values.Cells[name] = []float64{median(took), percentile(took, 0.90), slices.Max(took)}
	}
	progress("once: the last of 64 has the value after %s ms", figure(median(late[onceName])))
	runs.Targets = []target{{Text: "exactly 1", Got: float64(most[onceName]), Reached: most[onceName] == 1}}
	values.Targets = []target{atMost("ms, worst", 5, slices.Max(late[onceName]))}
	return []row{runs, values}
}
