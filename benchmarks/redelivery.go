package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/rdelayedqueue"
)

const heldJobs = 8 // in the hands of the process that is killed

// jobTask is a process that takes jobs and works on them until it is killed.
type jobTask struct {
	Library    string        `json:"library"`
	Addr       string        `json:"addr"`
	Queue      string        `json:"queue"`
	Visibility time.Duration `json:"visibility"` // redlatch's; 0 for its default
}

func (t jobTask) open() (jobs, error) {
	if t.Visibility == 0 {
		return openQueue(t.Library, setup{Addr: t.Addr}, t.Queue)
	}
	return openQueue(t.Library, setup{Addr: t.Addr}, t.Queue, rdelayedqueue.WithVisibility(t.Visibility))
}

// holdJobs is the task of a worker that is killed. It is ready when it works on all jobs.
func holdJobs(ctx context.Context, task jobTask, ready func() time.Time) (int, error) {
	j, err := task.open()
	if err != nil {
		return 0, err
	}
	taken := make(chan struct{}, heldJobs) // one token a job
	go func() {                            // ends with the process
		_ = j.consume(ctx, func([]byte) {
			taken <- struct{}{}
			<-ctx.Done()
		})
	}()
	for range heldJobs {
		<-taken
	}
	ready()
	return heldJobs, nil
}

// redelivery measures when others get what a worker held that was killed. One of asynq waits for a minute then, and a worker
// of redlatch for its 30 s by default; meanwhile the idle consumers are measured, whose commands are counted by themselves.
func redelivery(ctx context.Context, b *bench) ([]row, error) {
	rounds := 4
	if b.config.quick {
		rounds = 2
	}
	long := map[string]*orphans{}
	defer func() {
		for _, o := range long {
			_ = o.end() // a failure has been told by who waited for it
		}
	}()
	for _, name := range []string{redlatchName, asynqName} {
		if b.config.quick {
			break
		}
		o, err := orphan(ctx, jobTask{Library: name, Addr: b.server.addr, Queue: "long"}, 0)
		if err != nil {
			return nil, err
		}
		long[name] = o
	}
	var quick []float64
	for round := range rounds {
		// They are killed at different times since the last renewal.
		held := time.Second + time.Second/3*time.Duration(round)/time.Duration(rounds)
		o, err := orphan(ctx, jobTask{Library: redlatchName, Addr: b.server.addr, Queue: "short", Visibility: time.Second}, held)
		if err != nil {
			return nil, err
		}
		took, err := o.redelivered(ctx)
		if err != nil {
			return nil, err
		}
		quick = append(quick, took.Seconds())
	}
	progress("kill -9 of a worker: redelivered within %s s", figure(slices.Max(quick)))
	rows, err := idleQueue(ctx, b)
	if err != nil {
		return nil, err
	}
	return appendRedelivery(ctx, rows, quick, long)
}

func appendRedelivery(ctx context.Context, rows []row, quick []float64, long map[string]*orphans) ([]row, error) {
	rows = append(rows, row{
		Measure: fmt.Sprintf("delayed, s from the kill -9 of a worker until all %d jobs it held are with another, shortest visibility (1 s): median / worst", heldJobs),
		Cells:   map[string][]float64{redlatchName: {median(quick), slices.Max(quick)}},
		Rounds:  samples{redlatchName: quick},
		Targets: []target{atMost("s (visibility + 1 s), worst", 2, slices.Max(quick))},
	})
	if len(long) == 0 {
		return rows, nil
	}
	r := row{Measure: "delayed, the same, default visibility / lease (30 s in both)", Cells: map[string][]float64{}}
	for name, o := range long {
		took, err := o.redelivered(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r.Cells[name] = []float64{took.Seconds()}
	}
	r.Targets = []target{atMost("s (visibility + 1 s)", 31, r.Cells[redlatchName][0])}
	return append(rows, r), nil
}

// orphans are jobs whose worker was killed, with somebody there to take them.
type orphans struct {
	killed  time.Time
	arrived chan time.Time // one for each delivery
	stop    context.CancelFunc
	ended   chan error // 1: what became of the one who takes them
	once    sync.Once
	err     error
}

// orphan offers jobs, and kills their worker when it has worked on all of them for a time.
func orphan(ctx context.Context, task jobTask, held time.Duration) (*orphans, error) {
	j, err := task.open()
	if err != nil {
		return nil, err
	}
	w, err := startWorker(ctx, "jobs", task)
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	for range heldJobs {
		err = errors.Join(err, j.offer(ctx, []byte(payload), 0))
	}
	if err = errors.Join(err, w.awaitReady()); err != nil {
		w.end()
		return nil, errors.Join(err, j.close())
	}
	working, stop := context.WithCancel(ctx)
	o := &orphans{arrived: make(chan time.Time, 2*heldJobs), stop: stop, ended: make(chan error, 1)}
	take := func() { // ends with working; end waits for it
		err := j.consume(working, func([]byte) {
			select {
			case o.arrived <- time.Now():
			default: // more than enough came
			}
		})
		o.ended <- errors.Join(err, j.close())
	}
	if task.Library == asynqName {
		w.end()
		o.killed = time.Now()
		// It looks once a minute, from its start on, for leases that ended more than 30 s ago, as this one will have by its second
		// look: at any other moment of the minute the kill would cost it up to a minute more.
		time.AfterFunc(time.Second, take)
		return o, nil
	}
	go take()
	time.Sleep(held)
	o.killed = time.Now()
	w.end()
	return o, nil
}

// redelivered waits until all have been delivered again, and returns how long after the kill the last one was.
func (o *orphans) redelivered(ctx context.Context) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for range heldJobs {
		select {
		case at := <-o.arrived:
			took = at.Sub(o.killed)
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), o.end())
		}
		if took < 0 {
			return 0, errors.Join(errors.New("a job was delivered twice before its worker was killed"), o.end())
		}
	}
	return took, o.end()
}

// end stops the one who takes them. It may be called again.
func (o *orphans) end() error {
	o.once.Do(func() {
		o.stop()
		o.err = <-o.ended
	})
	return o.err
}
