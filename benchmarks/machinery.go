package main

import (
	"context"
	"io"
	"log"
	"os"

	"github.com/RichardKnop/machinery/v2"
	"github.com/RichardKnop/machinery/v2/backends/null"
	redisbackend "github.com/RichardKnop/machinery/v2/backends/redis"
	redisbroker "github.com/RichardKnop/machinery/v2/brokers/redis"
	machineryconfig "github.com/RichardKnop/machinery/v2/config"
	"github.com/RichardKnop/machinery/v2/locks/eager"
	machinerylog "github.com/RichardKnop/machinery/v2/log"
	machinerytasks "github.com/RichardKnop/machinery/v2/tasks"
)

const (
	machineryName = "machinery"
	statelessName = "machinery, null backend" // keeps no states and no results
)

// openMachinery returns a server as the example of machinery for go-redis has it.
func openMachinery(addr, library string) *machinery.Server {
	machinerylog.Set(log.New(io.Discard, "", 0)) // it would write to standard output
	machinerylog.SetError(log.New(os.Stderr, "", 0))
	conf := &machineryconfig.Config{
		DefaultQueue: "machinery_tasks", ResultsExpireIn: 3600, NoUnixSignals: true,
		Redis: &machineryconfig.RedisConfig{
			MaxIdle: 3, IdleTimeout: 240, ReadTimeout: 15, WriteTimeout: 15, ConnectTimeout: 15, NormalTasksPollPeriod: 1000, DelayedTasksPollPeriod: 500,
		},
	}
	backend := null.New()
	if library == machineryName {
		backend = redisbackend.NewGR(conf, []string{addr}, 0)
	}
	return machinery.NewServer(conf, redisbroker.NewGR(conf, []string{addr}, 0), backend, eager.New())
}

// serveMachinery handles tasks until ctx ends.
func serveMachinery(ctx context.Context, task workTask, handled func()) error {
	server := openMachinery(task.Addr, task.Library)
	err := server.RegisterTask(nothing.Name(), func([]byte) error {
		handled()
		return nil
	})
	if err != nil {
		return err
	}
	w := server.NewWorker("worker", task.Handlers)
	failed := make(chan error, 1)
	w.LaunchAsync(failed)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		w.Quit()
		return <-failed
	}
}

// machinerySender returns a function that submits a task.
func machinerySender(addr, library string, value []byte) func(ctx context.Context) error {
	server := openMachinery(addr, library)
	return func(ctx context.Context) error {
		_, err := server.SendTaskWithContext(ctx, &machinerytasks.Signature{Name: nothing.Name(), Args: []machinerytasks.Arg{{Type: "[]byte", Value: value}}})
		return err
	}
}
