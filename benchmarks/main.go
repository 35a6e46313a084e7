// Command benchmarks measures redlatch and other lock libraries side by side on a private redis-server.
// See README.md for what each row of its table means.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// config is what the flags say.
type config struct {
	sections string
	quick    bool
	million  bool
	holds    int
	jsonPath string
	redis    string
	worker   string
}

func parseFlags() config {
	var c config
	flag.StringVar(&c.sections, "sections", "uncontended,contended,handoff,idle,cost,redlock,kinds,queue,semaphore,latch,crash,delayed,drain,lanes,observe,rate,scheduled,election,once,barrier,ids,topic,grid,redisson,cache,near,gocron", "comma-separated `names` of the sections to run")
	flag.BoolVar(&c.quick, "quick", false, "one or two short rounds and no large numbers of holds: under two minutes, and less exact")
	flag.BoolVar(&c.million, "million", true, "in a full run, include 1,000,000 idle holds (about 50 s)")
	flag.IntVar(&c.holds, "holds", 0, "in the section of idle holds, measure only this `number` of them, of a 30 s lease")
	flag.StringVar(&c.jsonPath, "json", "", "write the results to this `file` too, with the figures of each round")
	flag.StringVar(&c.redis, "redis-server", "redis-server", "the redis-server `binary` to start")
	flag.StringVar(&c.worker, "worker", "", "for the program's own use: run as a worker `process` of this kind")
	flag.Parse()
	return c
}

// section is a part of the run that can be selected by its name.
type section struct {
	name string
	run  func(context.Context, *bench) ([]row, error)
}

func sections() []section {
	return []section{
		{"uncontended", uncontended},
		{"contended", contended},
		{"handoff", handoff},
		{"idle", idle},
		{"cost", cost},
		{"redlock", redlock},
		{"kinds", kinds},
		{"queue", queue},
		{"semaphore", semaphores},
		{"latch", latch},
		{"crash", crash},
		{"delayed", delayed},
		{"drain", drain},
		{"lanes", lanes},
		{"tasks", tasks},
		{"observe", observe},
		{"rate", rates},
		{"scheduled", scheduled},
		{"election", elections},
		{"once", once},
		{"barrier", barriers},
		{"ids", ids},
		{"topic", topics},
		{"grid", grid},
		{"redisson", besideRedisson},
		{"cache", cacheRows},
		{"near", nearHits},
		{"gocron", gocronJobs},
	}
}

// bench is what the sections share.
type bench struct {
	config config
	server *server
	rounds int
	window time.Duration // of one measurement of throughput
}

func run() error {
	c := parseFlags()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	if c.worker != "" {
		return runWorker(ctx, c.worker)
	}
	chosen, err := choose(c.sections)
	if err != nil {
		return err
	}
	s, err := startServer(ctx, c.redis)
	if err != nil {
		return err
	}
	b := &bench{config: c, server: s, rounds: 5, window: 250 * time.Millisecond}
	if c.quick {
		b.rounds, b.window = 2, 120*time.Millisecond
	}
	return errors.Join(b.measure(ctx, chosen), s.stop())
}

func choose(names string) ([]section, error) {
	var chosen []section
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, s := range sections() {
			if s.name == strings.TrimSpace(name) {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no section %q", name)
		}
	}
	return chosen, nil
}

func (b *bench) measure(ctx context.Context, chosen []section) error {
	start := time.Now()
	r := &report{When: start.UTC(), Machine: machine(b.server.version(ctx))}
	for _, s := range chosen {
		began := time.Now()
		rows, err := s.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for _, row := range rows {
			row.Section = s.name
			r.Rows = append(r.Rows, row)
		}
		progress("%s: %s", s.name, time.Since(began).Round(time.Second))
	}
	fmt.Printf("%s. Medians; ratios are medians of the rounds' ratios.\n\n", r.Machine)
	r.tables(os.Stdout, chosen)
	r.summary(os.Stdout)
	fmt.Printf("\nThe run took %s.\n", time.Since(start).Round(time.Second))
	if b.config.jsonPath == "" {
		return nil
	}
	return r.writeJSON(b.config.jsonPath)
}

// progress tells a person who waits what is going on; the report alone goes to standard output.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// rotated returns items beginning with item r, so that no contestant is always first or always after the same one's end.
func rotated[T any](items []T, r int) []T {
	turned := make([]T, 0, len(items))
	for i := range items {
		turned = append(turned, items[(i+r)%len(items)])
	}
	return turned
}
