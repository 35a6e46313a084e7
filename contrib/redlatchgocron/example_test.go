package redlatchgocron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchgocron"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/relection"
)

func ExampleNewLocker() {
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	scheduler, err := schedule(client, func() { fmt.Println("closed") })
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	fmt.Println("started", len(scheduler.Jobs()))
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output: started 1
}

func schedule(client *redlatch.Client, closeOrders func()) (gocron.Scheduler, error) {
	locker, err := redlatchgocron.NewLocker(client, "billing", time.Minute) // no job ticks more often
	if err != nil {
		return nil, err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(gocron.CronJob("*/5 * * * *", false), gocron.NewTask(closeOrders), gocron.WithName("close-orders"))
	return scheduler, err
}

func ExampleNewElector() {
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())

	elector := redlatchgocron.NewElector(client.GetElection("billing"), relection.WithValue("web-3:8080"))
	fmt.Println(elector.IsLeader(ctx))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	time.AfterFunc(100*time.Millisecond, stop) // a service would go on
	if err := elector.Run(ctx); err != nil {   // beside the scheduler, until the process stops
		log.Fatal(err)
	}
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output: redlatchgocron: this process does not lead
}
