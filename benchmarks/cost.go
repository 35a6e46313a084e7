package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// cost measures what one uncontended pair of Lock and Unlock takes: commands sent, and allocations.
func cost(ctx context.Context, b *bench) ([]row, error) {
	names := []string{redlatchName, rawName, plainName, autoName, bsmName, redsyncName, rueidisName}
	one := row{Measure: "uncontended, 1 goroutine: commands sent per pair", Cells: make(map[string][]float64)}
	many := row{Measure: "uncontended, 64 goroutines: commands sent per pair", Cells: make(map[string][]float64)}
	for _, c := range contestants(names...) {
		for goroutines, cells := range map[int]map[string][]float64{1: one.Cells, 64: many.Cells} {
			commands, err := commandsPerPair(ctx, b, c, goroutines)
			if err != nil {
				return nil, fmt.Errorf("count the commands of %s: %w", c.name, err)
			}
			cells[c.name] = []float64{commands}
		}
	}
	for _, r := range []*row{&one, &many} {
		sent := r.Cells[redlatchName][0]
		r.Targets = []target{{Text: "exactly 2", Got: sent, Reached: sent == 2}}
	}
	allocations, err := allocationRows(ctx, b, names)
	if err != nil {
		return nil, err
	}
	return append([]row{one, many}, allocations...), b.server.empty(ctx)
}

func commandsPerPair(ctx context.Context, b *bench, c contestant, goroutines int) (float64, error) {
	counter := &sent{}
	s, err := c.open(ctx, setup{Addr: b.server.addr, Lease: lease, Retry: time.Second, NoTracking: true, Permits: enough, Sent: counter})
	if err != nil {
		return 0, err
	}
	defer s.close() //nolint:errcheck // the figure is taken by then
	pairs := 2000 / goroutines
	// The first time around opens the connections, whose handshakes are commands too.
	if err := inParallel(ctx, s, goroutines, pairs); err != nil {
		return 0, err
	}
	before := counter.count()
	if err := inParallel(ctx, s, goroutines, pairs); err != nil {
		return 0, err
	}
	return float64(counter.count()-before) / float64(pairs*goroutines), nil
}

func inParallel(ctx context.Context, s session, goroutines, pairs int) error {
	var running sync.WaitGroup
	errs := make(chan error, goroutines) // one of each goroutine
	for g := range goroutines {
		h := s.handle(fmt.Sprintf("count:%d", g))
		running.Go(func() {
			for range pairs {
				if err := lockUnlock(ctx, h); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(errs)
	return <-errs
}

// allocationRows compares redlatch with two EvalSha calls of go-redis that send the very same commands.
func allocationRows(ctx context.Context, b *bench, names []string) ([]row, error) {
	canEnd, cancel := context.WithCancel(ctx)
	defer cancel()
	var rows []row
	for _, which := range []struct {
		label string
		ctx   context.Context //nolint:containedctx // the two kinds of context are what is compared
	}{{"context that cannot end", context.WithoutCancel(ctx)}, {"context that can end", canEnd}} {
		r := row{Measure: "uncontended, 1 goroutine, " + which.label + ": allocations per pair", Cells: make(map[string][]float64)}
		for _, c := range contestants(names...) {
			n, err := allocationsOf(which.ctx, b, c)
			if err != nil {
				return nil, fmt.Errorf("count the allocations of %s: %w", c.name, err)
			}
			r.Cells[c.name] = []float64{n}
		}
		bare, err := replayAllocations(which.ctx, b, call.send)
		if err != nil {
			return nil, err
		}
		written, err := replayAllocations(which.ctx, b, call.sendAsWritten)
		if err != nil {
			return nil, err
		}
		r.Targets = []target{atMost(fmt.Sprintf("beyond the %s of go-redis", figure(bare)), 10, r.Cells[redlatchName][0]-bare)}
		rows = append(rows, r, row{
			Measure: "the same commands by EvalSha, " + which.label + ": allocations with arguments made before / in the call",
			Cells:   map[string][]float64{plainName: {bare, written}},
		})
	}
	return rows, nil
}

func allocationsOf(ctx context.Context, b *bench, c contestant) (float64, error) {
	s, err := c.open(ctx, setup{Addr: b.server.addr, Lease: lease, Retry: time.Second, NoTracking: true})
	if err != nil {
		return 0, err
	}
	defer s.close() //nolint:errcheck // the figure is taken by then
	h := s.handle("count:0")
	return allocations(func() error { return lockUnlock(ctx, h) })
}

// replayAllocations records the two commands of a pair of redlatch's, and counts what sending them costs plain go-redis.
func replayAllocations(ctx context.Context, b *bench, send func(call, context.Context, *redis.Client) error) (float64, error) {
	calls, err := recordPair(ctx, b)
	if err != nil {
		return 0, err
	}
	rdb := newGoRedis(setup{Addr: b.server.addr})
	defer rdb.Close() // nothing is written through it any more
	return allocations(func() error {
		for _, c := range calls {
			if err := send(c, ctx, rdb); err != nil {
				return err
			}
		}
		return nil
	})
}

func recordPair(ctx context.Context, b *bench) ([]call, error) {
	counter := &sent{}
	s, err := contestants(redlatchName)[0].open(ctx, setup{Addr: b.server.addr, Lease: lease, Sent: counter})
	if err != nil {
		return nil, err
	}
	defer s.close() //nolint:errcheck // what it sends is known by then
	h := s.handle("count:0")
	if err := lockUnlock(ctx, h); err != nil { // connects and loads the scripts
		return nil, err
	}
	var recorded bytes.Buffer
	counter.recorded.Store(&recorded)
	if err := lockUnlock(ctx, h); err != nil {
		return nil, err
	}
	counter.recorded.Store(nil)
	return parseCalls(&recorded)
}

// allocations counts those of one call of pair, as testing.AllocsPerRun does, and takes the median of several counts because
// what a connection does in the background counts too.
func allocations(pair func() error) (float64, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const batches, runs = 5, 400
	var counts []float64
	for range batches + 1 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			if err := pair(); err != nil {
				return 0, err
			}
		}
		runtime.ReadMemStats(&after)
		counts = append(counts, float64((after.Mallocs-before.Mallocs)/runs))
	}
	return median(counts[1:]), nil // the first batch was the warm-up
}

// call is a recorded EVALSHA.
type call struct {
	sha  string
	keys []string
	args []any
}

// send leaves only go-redis's own allocations: the arguments were made before.
func (c call) send(ctx context.Context, rdb *redis.Client) error {
	return rdb.EvalSha(ctx, c.sha, c.keys, c.args...).Err()
}

// sendAsWritten makes the arguments anew, as a caller does who writes them out.
func (c call) sendAsWritten(ctx context.Context, rdb *redis.Client) error {
	args := make([]any, len(c.args))
	for i, arg := range c.args {
		args[i] = arg.(string)[:] // a string that becomes an interface value is allocated
	}
	return rdb.EvalSha(ctx, c.sha, append([]string(nil), c.keys...), args...).Err()
}

// parseCalls reads requests that must be two EVALSHA commands.
func parseCalls(requests *bytes.Buffer) ([]call, error) {
	var calls []call
	for requests.Len() > 0 {
		words, err := parseRequest(requests)
		if err != nil {
			return nil, err
		}
		if len(words) < 3 || !strings.EqualFold(words[0], "evalsha") {
			return nil, fmt.Errorf("a pair sent %.80q, not EVALSHA", words)
		}
		keyCount, err := strconv.Atoi(words[2])
		if err != nil || keyCount < 0 || keyCount > len(words)-3 {
			return nil, fmt.Errorf("a pair sent EVALSHA with %q keys", words[2])
		}
		c := call{sha: words[1], keys: words[3 : 3+keyCount]}
		for _, word := range words[3+keyCount:] {
			c.args = append(c.args, word)
		}
		calls = append(calls, c)
	}
	if len(calls) != 2 {
		return nil, fmt.Errorf("a pair sent %d commands, not 2", len(calls))
	}
	return calls, nil
}

func parseRequest(requests *bytes.Buffer) (words []string, err error) {
	var count, length int
	if _, err := fmt.Fscanf(requests, "*%d\r\n", &count); err != nil {
		return nil, err
	}
	for range count {
		if _, err := fmt.Fscanf(requests, "$%d\r\n", &length); err != nil {
			return nil, err
		}
		word := requests.Next(length + len("\r\n"))
		if len(word) != length+len("\r\n") {
			return nil, io.ErrUnexpectedEOF
		}
		words = append(words, string(word[:length]))
	}
	return words, nil
}
