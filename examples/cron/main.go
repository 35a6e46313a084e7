// Cron runs a job each second in three processes, one of which is killed in the middle of a run.
//
//	go run ./examples/cron
//
// Watch that each tick runs once, in whichever process claims it; and that the tick of the process that dies by kill -9 runs again
// in another one, as attempt 2. The program ends with an error if a tick was left out, or was run to its end twice. It takes about 7 s.
// What a process does is in process.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redlatch/redlatch/embedded"
)

const (
	processes = 3
	ticks     = 6
	fatal     = 2           // so-manyth tick, whose process is killed
	lease     = time.Second // short, so that the demo is; the default is 30 s
)

func main() {
	url := flag.String("serve", "", "set by the program itself for its processes")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	var err error
	if *url != "" {
		err = serve(ctx, *url)
	} else {
		err = demo(ctx)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context) error {
	server, err := embedded.Start() // in production: the Redis that all processes have
	if err != nil {
		return err
	}
	defer server.Close()
	events := make(chan event)
	all := map[string]*process{}
	for _, name := range []string{"A", "B", "C"} {
		if all[name], err = start(ctx, name, server.URL(), events); err != nil {
			return err
		}
		defer all[name].end()
	}
	begun, ended := map[int64]int{}, map[int64]int{} // tick -> runs
	var killed int64
	for len(begun) <= ticks || ended[killed] == 0 {
		var e event
		select {
		case e = <-events:
		case <-ctx.Done():
			return ctx.Err()
		}
		fmt.Printf("process %s %s tick %s, attempt %d\n", e.process, e.what, time.Unix(e.tick, 0).Format("15:04:05"), e.attempt)
		if e.what == "ends" {
			ended[e.tick]++
			continue
		}
		if begun[e.tick]++; len(begun) == fatal && killed == 0 {
			killed = e.tick
			all[e.process].end()
			fmt.Printf("process %s is killed\n", e.process)
		}
		if e.tick == killed && e.attempt != begun[killed] {
			return fmt.Errorf("attempt %d is called %d", begun[killed], e.attempt)
		}
	}
	return check(begun, ended, killed)
}

// check looks at the runs of all ticks but the last one, which may not have ended.
func check(begun, ended map[int64]int, killed int64) error {
	first, last := killed, killed
	for tick := range begun {
		first, last = min(first, tick), max(last, tick)
	}
	for tick := first; tick < last; tick++ {
		switch runs := begun[tick]; {
		case runs == 0:
			return errors.New("a tick was left out")
		case ended[tick] != 1 || tick != killed && runs != 1 || tick == killed && runs != 2:
			return fmt.Errorf("tick %d was begun %d times and ended %d times", tick, runs, ended[tick])
		}
	}
	fmt.Printf("%d ticks ran to their end once; one of them was begun twice.\n", last-first)
	return nil
}
