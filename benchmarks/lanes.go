package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/console"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// lanes compares claims of a queue with priorities, and of one with groups, with those of the same queue without. All have as many
// messages that are due.
func lanes(ctx context.Context, b *bench) ([]row, error) {
	messages, groups, claims := 1_000_000, 100_000, 60_000
	if b.config.quick {
		messages, groups, claims = 50_000, 5_000, 20_000
	}
	value := []byte(payload)
	queues := []struct {
		name string
		item func(n int) rdelayedqueue.Item[[]byte]
	}{
		{"plain", func(int) rdelayedqueue.Item[[]byte] { return rdelayedqueue.Item[[]byte]{Value: value} }},
		{"priorities", func(n int) rdelayedqueue.Item[[]byte] {
			return rdelayedqueue.Item[[]byte]{Value: value, Priority: n % 10}
		}},
		{"groups", func(n int) rdelayedqueue.Item[[]byte] {
			return rdelayedqueue.Item[[]byte]{Value: value, Group: strconv.Itoa(n % groups)}
		}},
	}
	rates, costs := map[string][]float64{}, map[string][]float64{}
	var stats, page, pages time.Duration // the slowest script of Stats and of the page, and the slowest page
	for range b.rounds {
		for _, q := range queues {
			if err := b.server.empty(ctx); err != nil {
				return nil, err
			}
			opened, err := openJobs(redlatchName, setup{Addr: b.server.addr})
			if err != nil {
				return nil, err
			}
			jobs := opened.(*redlatchJobs) //nolint:forcetypeassert // it was asked for
			queue := jobs.queue
			if err := offerItems(ctx, queue, messages, q.item); err != nil {
				return nil, errors.Join(err, opened.close())
			}
			slowest, _, err := slowestOf(ctx, b, func() error {
				_, err := queue.Stats(ctx)
				return err
			})
			if err != nil {
				return nil, errors.Join(err, opened.close())
			}
			stats = max(stats, slowest)
			slowest, took, err := slowestOf(ctx, b, func() error { return openPage(ctx, jobs.client, "/queue?name="+queue.Name()) })
			if err != nil {
				return nil, errors.Join(err, opened.close())
			}
			page, pages = max(page, slowest), max(pages, took)
			cpu, start := serverCPU(ctx, b), time.Now()
			if err := claimItems(ctx, queue, claims); err != nil {
				return nil, errors.Join(err, opened.close())
			}
			rates[q.name] = append(rates[q.name], float64(claims)/time.Since(start).Seconds())
			costs[q.name] = append(costs[q.name], float64((serverCPU(ctx, b)-cpu).Microseconds())/float64(claims))
			if err := opened.close(); err != nil {
				return nil, err
			}
			progress("%s: %s claims/s", q.name, figure(rates[q.name][len(rates[q.name])-1]))
		}
	}
	middle := func(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }
	ratio := func(name string) float64 {
		ratios := make([]float64, b.rounds)
		for i := range ratios {
			ratios[i] = rates[name][i] / rates["plain"][i]
		}
		return middle(ratios)
	}
	cells := func(of map[string][]float64) map[string][]float64 {
		return map[string][]float64{redlatchName: {middle(of["plain"]), middle(of["priorities"]), middle(of["groups"])}}
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	what := fmt.Sprintf("%s messages: plain / 10 priorities / %s groups", figure(float64(messages)), figure(float64(groups)))
	return []row{
		{
			Measure: what + ": claims with their Ack, in batches of 100, /s", Cells: cells(rates),
			Targets: []target{
				atLeast("× plain, priorities", 0.8, ratio("priorities")), atLeast("× plain, groups", 0.6, ratio("groups")),
			},
		},
		{Measure: what + ": µs of the server's CPU for each", Cells: cells(costs)},
		{
			Measure: what + ": ms of the server for Stats, the slowest",
			Cells:   map[string][]float64{redlatchName: {ms(stats)}},
			Targets: []target{atMost("ms", 2, ms(stats))},
		},
		{
			Measure: what + ": the queue's page of the console, ms / its slowest script at the server, ms; the slowest of all",
			Cells:   map[string][]float64{redlatchName: {ms(pages), ms(page)}},
			Targets: []target{atMost("ms", 100, ms(pages)), atMost("ms", 2, ms(page))},
		},
	}, b.server.empty(ctx)
}

// slowestOf returns the longest script that the server runs for a call, and the time that the call takes.
func slowestOf(ctx context.Context, b *bench, call func() error) (slowest, took time.Duration, err error) {
	if err := watchScripts(ctx, b.server.admin); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	err = call()
	took = time.Since(start)
	slowest, watched := slowestScript(ctx, b.server.admin)
	return slowest, took, errors.Join(err, watched)
}

// openPage has a console of its own, which knows nothing yet, make a page.
func openPage(ctx context.Context, client *redlatch.Client, path string) error {
	said := httptest.NewRecorder()
	console.Handler(client).ServeHTTP(said, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	if text := said.Body.String(); said.Code != http.StatusOK || !strings.Contains(text, "</html>") || strings.Contains(text, `role="alert"`) {
		return fmt.Errorf("console: %s: status %d: %.200q", path, said.Code, text)
	}
	return nil
}

// offerItems offers n messages from four goroutines, in batches of 1,000.
func offerItems(ctx context.Context, q *rdelayedqueue.Queue[[]byte], n int, item func(int) rdelayedqueue.Item[[]byte]) error {
	return fourTimes(func(next *atomic.Int64) error {
		items := make([]rdelayedqueue.Item[[]byte], 1000)
		for first := int(next.Add(1000)) - 1000; first < n; first = int(next.Add(1000)) - 1000 {
			for i := range items {
				items[i] = item(first + i)
			}
			if _, err := q.OfferBatch(ctx, items); err != nil {
				return err
			}
		}
		return nil
	})
}

// claimItems claims and acknowledges n messages from four goroutines.
func claimItems(ctx context.Context, q *rdelayedqueue.Queue[[]byte], n int) error {
	return fourTimes(func(next *atomic.Int64) error {
		for int(next.Load()) < n {
			messages, err := q.TakeBatch(ctx, 100)
			if err != nil {
				return err
			}
			next.Add(int64(len(messages)))
			var acks sync.WaitGroup
			failed := make(chan error, len(messages))
			for _, m := range messages {
				acks.Go(func() { failed <- m.Ack(ctx) })
			}
			acks.Wait()
			for range messages {
				if err := <-failed; err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// fourTimes runs a function in four goroutines that share a counter.
func fourTimes(run func(next *atomic.Int64) error) error {
	var next atomic.Int64
	failed := make(chan error, 4)
	for range cap(failed) {
		go func() { failed <- run(&next) }()
	}
	var all error
	for range cap(failed) {
		all = errors.Join(all, <-failed)
	}
	return all
}
