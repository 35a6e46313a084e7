package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const asynqName = "asynq"

// jobs is a queue library in use.
type jobs interface {
	offer(ctx context.Context, payload []byte, delay time.Duration) error
	// consume hands payloads to 64 handlers at a time until ctx ends.
	consume(ctx context.Context, handle func(payload []byte)) error
	close() error
}

type redlatchJobs struct {
	client *redlatch.Client
	queue  *rdelayedqueue.Queue[[]byte]
	rdb    interface{ Close() error }
}

func openJobs(name string, s setup) (jobs, error) { return openQueue(name, s, "jobs") }

// openQueue opens a queue of its own. The options are for redlatch.
func openQueue(name string, s setup, queue string, opts ...rdelayedqueue.QueueOption) (jobs, error) {
	if name == asynqName {
		return openAsynq(s, queue), nil
	}
	rdb := newGoRedis(s)
	client, err := redlatch.New(rdb)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &redlatchJobs{client, redlatch.GetDelayedQueue[[]byte](client, queue, opts...), rdb}, nil
}

func (j *redlatchJobs) offer(ctx context.Context, payload []byte, delay time.Duration) error {
	_, err := j.queue.Offer(ctx, payload, delay)
	return err
}

func (j *redlatchJobs) offerBatch(ctx context.Context, payload []byte, delay time.Duration, n int) error {
	items := make([]rdelayedqueue.Item[[]byte], n)
	for i := range items {
		items[i] = rdelayedqueue.Item[[]byte]{Value: payload, Delay: delay}
	}
	_, err := j.queue.OfferBatch(ctx, items)
	return err
}

func (j *redlatchJobs) consume(ctx context.Context, handle func([]byte)) error {
	return j.queue.Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[[]byte]) error {
		handle(m.Value)
		return nil
	}, rdelayedqueue.WithConcurrency(64))
}

func (j *redlatchJobs) close() error { return errors.Join(j.client.Close(), j.rdb.Close()) }

// delayed measures queues.
func delayed(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, part := range []func(context.Context, *bench) ([]row, error){offers, endToEnd, lateness, redelivery, million} {
		if err := b.server.empty(ctx); err != nil {
			return nil, err
		}
		found, err := part(ctx, b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	return rows, b.server.empty(ctx)
}

const payload = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// rate calls do from n goroutines for the window and returns what it counts per second.
func rate(ctx context.Context, n int, window time.Duration, do func(context.Context) (int, error)) (float64, error) {
	var count atomic.Int64
	var stop atomic.Bool
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			for !stop.Load() {
				done, err := do(ctx)
				if err != nil {
					failed.Store(&err)
					return
				}
				count.Add(int64(done))
			}
		})
	}
	time.Sleep(window / 4)
	before, start := count.Load(), time.Now()
	time.Sleep(window)
	done, took := count.Load()-before, time.Since(start)
	stop.Store(true)
	running.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(done) / took.Seconds(), nil
}

func offers(ctx context.Context, b *bench) ([]row, error) {
	one, bounded, many, batches := samples{}, samples{}, samples{}, samples{}
	for round := range b.rounds {
		for _, name := range rotated([]string{redlatchName, asynqName}, round) {
			j, err := openJobs(name, setup{Addr: b.server.addr})
			if err != nil {
				return nil, err
			}
			single := func(ctx context.Context) (int, error) { return 1, j.offer(ctx, []byte(payload), time.Hour) }
			for n, found := range map[int]samples{1: one, 64: many} {
				perSecond, err := rate(context.WithoutCancel(ctx), n, b.window, single)
				if err != nil {
					return nil, fmt.Errorf("%s: offer: %w", name, err)
				}
				found.add(name, perSecond)
			}
			perSecond, err := rate(ctx, 1, b.window, single)
			if err != nil {
				return nil, fmt.Errorf("%s: offer: %w", name, err)
			}
			bounded.add(name, perSecond)
			if r, ok := j.(*redlatchJobs); ok {
				perSecond, err := rate(ctx, 4, b.window, func(ctx context.Context) (int, error) { return 100, r.offerBatch(ctx, []byte(payload), time.Hour, 100) })
				if err != nil {
					return nil, err
				}
				batches.add(name, perSecond)
			}
			if err := errors.Join(j.close(), b.server.empty(ctx)); err != nil {
				return nil, err
			}
		}
	}
	batches[asynqName] = many[asynqName]
	return []row{
		{Measure: "delayed, offers/s, 1 goroutine", Cells: one.cells(), Rounds: one, Targets: []target{atLeast("× asynq", 0.9, one.ratio(redlatchName, asynqName))}},
		{Measure: "delayed, offers/s, 1 goroutine, context that can end", Cells: bounded.cells(), Rounds: bounded},
		{Measure: "delayed, offers/s, 64 goroutines", Cells: many.cells(), Rounds: many, Targets: []target{atLeast("× asynq", 1.5, many.ratio(redlatchName, asynqName))}},
		{Measure: "delayed, offers/s, batches of 100 (asynq: one by one)", Cells: batches.cells(), Rounds: batches, Targets: []target{atLeast("× asynq", 4, batches.ratio(redlatchName, asynqName))}},
	}, nil
}

// endToEnd offers jobs for now from 64 goroutines while 64 handlers take them.
func endToEnd(ctx context.Context, b *bench) ([]row, error) {
	found, commands := samples{}, samples{}
	for round := range min(b.rounds, 3) {
		for _, name := range rotated([]string{redlatchName, asynqName}, round) {
			perSecond, perJob, err := throughput(ctx, b, name)
			if err != nil {
				return nil, fmt.Errorf("%s: end to end: %w", name, err)
			}
			found.add(name, perSecond)
			commands.add(name, perJob)
		}
	}
	return []row{
		{Measure: "delayed, jobs/s end to end, delay 0", Cells: found.cells(), Rounds: found, Targets: []target{atLeast("× asynq", 3, found.ratio(redlatchName, asynqName))}},
		{Measure: "delayed, commands sent per job", Cells: commands.cells(), Rounds: commands},
	}, nil
}

func throughput(ctx context.Context, b *bench, name string) (perSecond, perJob float64, err error) {
	const n = 20_000
	wire := &sent{}
	j, err := openJobs(name, setup{Addr: b.server.addr, Sent: wire})
	if err != nil {
		return 0, 0, err
	}
	working, stop := context.WithCancel(ctx)
	ended, done := make(chan error, 1), make(chan struct{})
	var handled atomic.Int64
	go func() {
		ended <- j.consume(working, func([]byte) {
			if handled.Add(1) == n {
				close(done)
			}
		})
	}()
	before, start := wire.count(), time.Now()
	var left atomic.Int64
	left.Store(n)
	var producers sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 64 {
		producers.Go(func() {
			for left.Add(-1) >= 0 {
				if err := j.offer(ctx, []byte(payload), 0); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	producers.Wait()
	if err := failed.Load(); err != nil {
		stop()
		return 0, 0, *err
	}
	<-done
	took, commands := time.Since(start), wire.count()-before
	stop()
	return n / took.Seconds(), float64(commands) / n, errors.Join(<-ended, j.close(), b.server.empty(ctx))
}

// lateness offers 10,000 jobs that are due over 10 s.
func lateness(ctx context.Context, b *bench) ([]row, error) {
	n := 10_000
	if b.config.quick {
		n = 2_000
	}
	r := row{Measure: fmt.Sprintf("delayed, lateness of %d jobs due over 10 s: p50/p99/max ms, early", n), Cells: map[string][]float64{}}
	for _, name := range []string{redlatchName, asynqName} {
		j, err := openJobs(name, setup{Addr: b.server.addr})
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		var late []time.Duration
		done := make(chan struct{})
		working, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- j.consume(working, func(payload []byte) {
				var due int64
				if _, err := fmt.Sscan(string(payload), &due); err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if late = append(late, time.Since(time.UnixMicro(due))); len(late) == n {
					close(done)
				}
			})
		}()
		begin := time.Now().Add(2 * time.Second)
		for i := range n {
			due := begin.Add(10 * time.Second * time.Duration(i) / time.Duration(n))
			if err := j.offer(ctx, fmt.Append(nil, due.UnixMicro()), time.Until(due)); err != nil {
				stop()
				return nil, err
			}
		}
		<-done
		stop()
		if err := errors.Join(<-ended, j.close(), b.server.empty(ctx)); err != nil {
			return nil, err
		}
		slices.Sort(late)
		early := 0
		for early < n && late[early] < 0 {
			early++
		}
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		r.Cells[name] = []float64{ms(late[n/2]), ms(late[n*99/100]), ms(late[n-1]), float64(early)}
	}
	own := r.Cells[redlatchName]
	r.Targets = []target{atMost("ms p50", 2, own[0]), atMost("ms p99", 5, own[1]), atMost("early", 0, own[3])}
	return []row{r}, nil
}

// idleQueue counts what a consumer sends that has nothing to do.
func idleQueue(ctx context.Context, b *bench) ([]row, error) {
	watch := 30 * time.Second
	if b.config.quick {
		watch = 15 * time.Second
	}
	r := row{Measure: "delayed, commands/min of an idle consumer", Cells: map[string][]float64{}}
	for _, name := range []string{redlatchName, asynqName} {
		wire := &sent{}
		j, err := openJobs(name, setup{Addr: b.server.addr, Sent: wire})
		if err != nil {
			return nil, err
		}
		working, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- j.consume(working, func([]byte) {}) }()
		time.Sleep(2 * time.Second)
		before := wire.count()
		time.Sleep(watch)
		r.Cells[name] = []float64{float64(wire.count()-before) * float64(time.Minute) / float64(watch)}
		stop()
		if err := errors.Join(<-ended, j.close()); err != nil {
			return nil, err
		}
	}
	r.Targets = []target{atMost("a minute, 4 of them health checks", 24, r.Cells[redlatchName][0])}
	return []row{r}, nil
}

// million compares the cost of an offer and a claim with a thousand messages waiting and with a million.
func million(ctx context.Context, b *bench) ([]row, error) {
	large := 1_000_000
	if b.config.quick {
		large = 100_000
	}
	opened, err := openJobs(redlatchName, setup{Addr: b.server.addr})
	if err != nil {
		return nil, err
	}
	j := opened.(*redlatchJobs) //nolint:forcetypeassert // it was asked for
	var offer, claim, memory []float64
	waiting := 0
	for _, size := range []int{1000, large} {
		before := usedMemory(ctx, b)
		filled := waiting
		for ; waiting < size; waiting += 1000 {
			if err := j.offerBatch(ctx, []byte(payload), time.Hour, 1000); err != nil {
				return nil, err
			}
		}
		memory = append(memory, (usedMemory(ctx, b)-before)/float64(size-filled))
		const n = 5000
		start := time.Now()
		for range n {
			if err := j.offer(ctx, []byte(payload), 0); err != nil {
				return nil, err
			}
		}
		offer = append(offer, float64(time.Since(start).Microseconds())/n)
		start = time.Now()
		for range n {
			m, err := j.queue.Take(ctx)
			if err != nil {
				return nil, err
			}
			if err := m.Ack(ctx); err != nil {
				return nil, err
			}
		}
		claim = append(claim, float64(time.Since(start).Microseconds())/n)
	}
	rows := []row{
		{
			Measure: fmt.Sprintf("delayed, µs for an offer with 1,000 / %s waiting", figure(float64(large))), Cells: map[string][]float64{redlatchName: offer},
			Targets: []target{atMost("×", 1.5, offer[1]/offer[0])},
		},
		{
			Measure: "delayed, µs for a claim and its ack, likewise", Cells: map[string][]float64{redlatchName: claim},
			Targets: []target{atMost("×", 1.5, claim[1]/claim[0])},
		},
		{Measure: "delayed, bytes of Redis for a message of 100", Cells: map[string][]float64{redlatchName: memory[1:]}},
	}
	return rows, j.close()
}

func usedMemory(ctx context.Context, b *bench) float64 {
	info, err := b.server.admin.Info(ctx, "memory").Result()
	if err != nil {
		return 0
	}
	var used float64
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			_, _ = fmt.Sscan(text, &used) // 0 then
		}
	}
	return used
}
