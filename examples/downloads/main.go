// Downloads shows leased permits: 20 workers in 4 processes fetch files, and at most 5 of them at a time.
//
//	go run ./examples/downloads
//	go run ./examples/downloads -redis redis://localhost:6379
//
// With a Redis each process is one; without one, a client of its own on a server inside this process.
//
// Watch that never more than 5 permits are out; that process 1 is killed with kill -9 while it downloads; and that its
// permits come back when their leases end, so that the others finish all files. The program ends with an error if a
// file was not fetched or if more than 5 were being fetched at a time. The worker's code is in worker.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

const (
	processes, workers = 4, 5 // workers of each process
	permits, files     = 5, 60
	lease              = time.Second // short, so that the demo is; the default is 30 s
)

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	prefix := flag.String("prefix", "", "set by the program itself for its worker processes")
	number := flag.Int("process", 0, "set by the program itself for its worker processes")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 14*time.Second) // it takes about 6 s
	var err error
	if *prefix != "" {
		err = work(ctx, *url, *prefix, *number)
	} else {
		err = demo(ctx, *url)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "downloads:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, url string) error {
	start := startProcess // kill -9 for the one that dies
	if url == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		url, start = server.URL(), startClient // cut off from Redis for good
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	prefix := "downloads:" + uuid.NewString()[:8] + ":"
	client, err := redlatch.New(rdb, redlatch.WithNamePrefix(prefix))
	if err != nil {
		return err
	}
	defer client.Close()
	slots := client.GetPermitSemaphore("slots")
	if err := slots.SetPermits(ctx, permits); err != nil {
		return err
	}
	defer clean(context.WithoutCancel(ctx), rdb, prefix)

	var crew []*process
	for i := range processes {
		p, err := start(ctx, url, prefix, i+1)
		if err != nil {
			return err
		}
		crew = append(crew, p)
	}
	if err := watch(ctx, rdb, prefix, crew[0]); err != nil {
		return err
	}
	for _, p := range crew[1:] {
		err = errors.Join(err, p.wait())
	}
	return errors.Join(err, compare(ctx, rdb, slots, prefix))
}
