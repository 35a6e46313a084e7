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

	"github.com/redis/go-redis/v9"
)

const (
	queueLock = "line"
	queueKey  = "redisson_lock_queue:{" + queueLock + "}" // as the wire format has it
)

// queue measures what it takes to stand in the queue of a fair lock and to be served, and whether its order is kept.
func queue(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, waiters := range []int{10, 100, 1000} {
		var served, again turns
		var err error
		if served, err = queueUp(ctx, b, waiters, 1); err != nil {
			return nil, fmt.Errorf("%d waiters: %w", waiters, err)
		}
		if again, err = queueUp(ctx, b, waiters, max(3, 2000/waiters)); err != nil {
			return nil, fmt.Errorf("%d waiters that queue again: %w", waiters, err)
		}
		progress("fair lock, %d waiters: %s commands per hand-off", waiters, figure(served.commands))
		rows = append(rows, turnRows(waiters, served, again)...)
	}
	order, err := order(ctx, b)
	return append(rows, order...), err
}

// turns is what it cost a number of waiters to be served.
type turns struct {
	queueing float64 // commands for each waiter until all stand in the queue
	commands float64 // for each hand-off from then on
	rate     float64 // hand-offs per second
	channels int     // while all wait
	added    int     // channels at the end that were not there then
}

func turnRows(waiters int, served, again turns) []row {
	prefix := fmt.Sprintf("fair lock, %s waiters: ", figure(float64(waiters)))
	cells := func(values ...float64) map[string][]float64 {
		return map[string][]float64{fairName: values}
	}
	return []row{
		{
			Measure: prefix + "commands sent per hand-off, served once / queueing again",
			Cells:   cells(served.commands, again.commands),
			Targets: []target{atMost("served once", 3, served.commands)},
		},
		{
			Measure: prefix + "channels subscribed while all wait / subscribed later, queueing again",
			Cells:   cells(float64(again.channels), float64(again.added)),
			Targets: []target{atMost("channels for each waiter", 3, float64(again.channels)/float64(waiters))},
		},
		{Measure: prefix + "commands sent per waiter to stand in the queue", Cells: cells(served.queueing)},
		{Measure: prefix + "hand-offs/s, served once / queueing again", Cells: cells(served.rate, again.rate)},
	}
}

// queueClients is how many clients the waiters are spread over.
const queueClients = 4

// queueUp holds a fair lock until all stand in its queue, and counts what is sent while it goes through their hands, each
// time once around.
func queueUp(ctx context.Context, b *bench, waiters, rounds int) (t turns, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	counter := &sent{}
	var open []session
	defer func() {
		for _, s := range open {
			err = errors.Join(err, s.close())
		}
		err = errors.Join(err, b.server.empty(ctx))
	}()
	for range queueClients {
		s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease, Sent: counter}, fairLock)
		if err != nil {
			return t, err
		}
		open = append(open, s)
		if err := lockUnlock(ctx, s.handle("warm")); err != nil {
			return t, err
		}
	}
	holder := open[0].handle(queueLock)
	if err := holder.Lock(ctx); err != nil {
		return t, err
	}
	before := counter.count()
	l := &line{counter: counter, rounds: rounds, last: int64(waiters * (rounds - min(rounds-1, 1)))}
	for i := range waiters {
		h := open[i%queueClients].handle(queueLock)
		l.running.Go(func() { l.stand(ctx, h) })
	}
	if err := awaitQueue(ctx, b.server.admin, waiters); err != nil {
		return t, err
	}
	t.queueing = float64(counter.count()-before) / float64(waiters)
	t.channels, err = channelCount(ctx, b.server.admin)
	if err != nil {
		return t, err
	}
	if err := l.serve(ctx, holder, &t); err != nil {
		return t, err
	}
	after, err := channelCount(ctx, b.server.admin)
	t.added = max(after-t.channels, 0)
	return t, err
}

// awaitQueue returns once all stand in the queue and have heard that they may rely on their channels.
func awaitQueue(ctx context.Context, admin *redis.Client, waiters int) error {
	err := within(ctx, 20*time.Second, 5*time.Millisecond, "wait for the queue to fill", func(ctx context.Context) (bool, error) {
		n, err := admin.LLen(ctx, queueKey).Result()
		return int(n) == waiters, err
	})
	time.Sleep(200 * time.Millisecond)
	return err
}

func channelCount(ctx context.Context, admin *redis.Client) (int, error) {
	channels, err := admin.PubSubChannels(ctx, "*").Result()
	return len(channels), err
}

// line is the goroutines that stand in the queue.
type line struct {
	counter *sent
	rounds  int
	running sync.WaitGroup
	served  atomic.Int64
	last    int64        // the hand-off at which counting ends: before the queue gets shorter, if they queue again
	sent    atomic.Int64 // at that hand-off
	at      atomic.Pointer[time.Time]
	failed  atomic.Pointer[error]
}

func (l *line) stand(ctx context.Context, h handle) {
	for range l.rounds {
		err := h.Lock(ctx)
		if err == nil {
			if l.served.Add(1) == l.last {
				now := time.Now()
				l.sent.Store(l.counter.count())
				l.at.Store(&now)
			}
			err = h.Unlock(ctx)
		}
		if err != nil {
			l.failed.Store(&err)
			return
		}
	}
}

// serve lets the holder go and waits until all have been served.
func (l *line) serve(ctx context.Context, holder handle, t *turns) error {
	before, released := l.counter.count(), time.Now()
	if err := holder.Unlock(ctx); err != nil {
		return err
	}
	l.running.Wait()
	if err := l.failed.Load(); err != nil {
		return *err
	}
	t.commands = float64(l.sent.Load()-before) / float64(l.last)
	t.rate = float64(l.last) / l.at.Load().Sub(released).Seconds()
	return nil
}

// order has 64 waiters in four processes queue again and again. Each holder has the server note down whom it holds
// the lock and who waits; from one note to the next that must be the one in front.
func order(ctx context.Context, b *bench) ([]row, error) {
	task := turnTask{Addr: b.server.addr, Goroutines: 16, Turns: 50}
	if b.config.quick {
		task.Turns = 15
	}
	const processes = 4
	if _, err := together[turnTask, int](ctx, "queue", processes, task, nil); err != nil {
		return nil, err
	}
	lines, err := b.server.admin.LRange(ctx, notesKey, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	if want := processes * task.Goroutines * task.Turns; len(lines) != want {
		return nil, fmt.Errorf("%d grants were noted, not %d", len(lines), want)
	}
	wrong, longest := outOfOrder(lines)
	progress("fair lock, 64 waiters: %d grants, %d out of order", len(lines), wrong)
	return []row{{
		Measure: "fair lock, 64 waiters in 4 processes: grants / longest queue / grants out of order",
		Cells:   map[string][]float64{fairName: {float64(len(lines)), float64(longest), float64(wrong)}},
		Targets: []target{atMost("out of order", 0, float64(wrong))},
	}}, b.server.empty(ctx)
}

// outOfOrder counts the grants that did not go to the head of the queue as the note before shows it, or before which those
// behind it changed places. Nobody leaves the queue here but by being served, and who comes stands at its end.
func outOfOrder(notes []string) (wrong, longest int) {
	var expected []string
	for _, note := range notes {
		words := strings.Fields(note) // the holder, then the queue
		if len(words) < len(expected) || !slices.Equal(words[:len(expected)], expected) {
			wrong++
		}
		expected = words[min(1, len(words)):]
		longest = max(longest, len(expected))
	}
	return wrong, longest
}
