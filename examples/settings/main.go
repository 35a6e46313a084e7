// Settings is a service whose settings are one value in Redis: all of its processes read them, and operators change them at
// the same time.
//
//	go run ./examples/settings
//
// Watch that two operators who change different fields at once do not overwrite each other, since Update reads, changes and
// swaps; that an operator who looked at an old value cannot switch the shop off; and that every process reads the result.
// Step 4 does the same with Get and Set, and loses changes. The program ends with an error if Update lost one.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rbucket"
)

const changes = 50 // of each operator

// settings are what the shop can be told without a deployment.
type settings struct {
	MaxOrders int    `json:"max_orders"`
	Discount  int    `json:"discount"`
	Open      bool   `json:"open"`
	By        string `json:"by"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("settings: ", err) //nolint:gocritic // the context ends with the process
	}
}

func run(ctx context.Context) error {
	redis, err := embedded.Start() // in production: the Redis that all processes have
	if err != nil {
		return err
	}
	defer redis.Close()
	var processes []*rbucket.Bucket[settings]
	for range 3 { // as if they were processes: each has a client of its own
		client, err := redlatch.Open(ctx, redis.URL())
		if err != nil {
			return err
		}
		defer client.Close()
		processes = append(processes, rbucket.New[settings](client, "settings"))
	}
	ann, bob, web := processes[0], processes[1], processes[2]

	if _, err := ann.SetIfAbsent(ctx, settings{Open: true, By: "deployment"}); err != nil {
		return err
	}
	first, _, err := web.Get(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("1. the first process to start sets the defaults: %+v\n", first)

	if err := together(update(ctx, ann, addOrder), update(ctx, bob, addDiscount)); err != nil {
		return err
	}
	after, _, err := web.Get(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("2. ann and bob made %d changes each at once:     %+v\n", changes, after)
	if after.MaxOrders != changes || after.Discount != changes {
		return errors.New("a change was lost")
	}

	closed := first
	closed.Open, closed.By = false, "bob"
	swapped, err := bob.CompareAndSwap(ctx, first, closed)
	if err != nil {
		return err
	}
	fmt.Printf("3. bob closes the shop as it was in step 1:       swapped: %v\n", swapped)
	if swapped {
		return errors.New("an old value was taken for the present one")
	}

	if err := ann.Set(ctx, first); err != nil {
		return err
	}
	if err := together(getAndSet(ctx, ann, addOrder), getAndSet(ctx, bob, addDiscount)); err != nil {
		return err
	}
	after, _, err = web.Get(ctx)
	fmt.Printf("4. step 2 with Get and Set:                       %+v\n", after)
	return err
}

func addOrder(s settings) settings    { s.MaxOrders++; s.By = "ann"; return s }
func addDiscount(s settings) settings { s.Discount++; s.By = "bob"; return s }

func update(ctx context.Context, b *rbucket.Bucket[settings], change func(settings) settings) func() error {
	return func() error {
		for range changes {
			_, err := b.Update(ctx, func(s settings, _ bool) (settings, error) { return change(s), nil })
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func getAndSet(ctx context.Context, b *rbucket.Bucket[settings], change func(settings) settings) func() error {
	return func() error {
		for range changes {
			s, _, err := b.Get(ctx)
			if err != nil {
				return err
			}
			if err := b.Set(ctx, change(s)); err != nil {
				return err
			}
		}
		return nil
	}
}

func together(a, b func() error) error {
	done := make(chan error, 1)
	go func() { done <- a() }()
	return errors.Join(b(), <-done)
}
