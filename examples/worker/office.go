package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/rexecutor"
)

// office is what the handlers work with: a mail server, a bank, a ledger.
type office struct {
	start     time.Time
	reporting chan period // of which a report is being built

	mu       sync.Mutex
	mails    []mail
	busy     int             // how often the mail server refuses a newsletter
	charging map[string]bool // by customer
	charged  map[string][]int
	expired  map[string]bool // cards, by customer
	wrong    error
}

func newOffice() *office {
	return &office{
		start: time.Now(), reporting: make(chan period, 20), busy: 2,
		charging: map[string]bool{}, charged: map[string][]int{}, expired: map[string]bool{"eve": true},
	}
}

func (o *office) say(format string, args ...any) {
	fmt.Printf("%5d ms  %s\n", time.Since(o.start).Milliseconds(), fmt.Sprintf(format, args...))
}

// pause stands for what work costs.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done(): // the task was cancelled, its time is over, or the worker stops and cannot wait
		return context.Cause(ctx)
	}
}

// send is the handler of mails. Its error has the mail sent again later.
func (o *office) send(ctx context.Context, c rexecutor.Call[mail]) (struct{}, error) {
	if err := pause(ctx, 20*time.Millisecond); err != nil {
		return struct{}{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.Args.Subject == "newsletter" && o.busy > 0 {
		o.busy--
		return struct{}{}, errors.New("the mail server is busy")
	}
	o.mails = append(o.mails, c.Args)
	return struct{}{}, nil
}

// charge is the handler of invoices. It rejects what no attempt would change.
func (o *office) charge(ctx context.Context, c rexecutor.Call[invoice]) (struct{}, error) {
	customer := c.Args.Customer
	o.mu.Lock()
	if o.charging[customer] {
		o.wrong = fmt.Errorf("two invoices of %s are charged at a time", customer)
	}
	o.charging[customer] = true
	o.mu.Unlock()
	err := pause(ctx, 100*time.Millisecond)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.charging[customer] = false
	if err != nil {
		return struct{}{}, err
	}
	if c.Args.Number == 5 && o.expired[customer] {
		return struct{}{}, rexecutor.Reject(errors.New("the card has expired"))
	}
	o.charged[customer] = append(o.charged[customer], c.Args.Number)
	return struct{}{}, nil
}

func (o *office) renewCard(customer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expired[customer] = false
}

// build is the handler of reports, and has a result.
func (o *office) build(ctx context.Context, c rexecutor.Call[period]) (report, error) {
	o.reporting <- c.Args
	if err := pause(ctx, 400*time.Millisecond); err != nil {
		return report{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, invoices := range o.charged {
		n += len(invoices)
	}
	return report{n}, nil
}

// check compares what was done with what should be.
func (o *office) check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.wrong != nil:
		return o.wrong
	case len(o.mails) != 4 || o.mails[0] != mail{"bob", "password reset"}:
		return fmt.Errorf("the mails are %v", o.mails)
	}
	for customer, want := range map[string][]int{"ada": {1, 2, 4}, "bob": {3}, "eve": {6, 5}} {
		if !slices.Equal(o.charged[customer], want) {
			return fmt.Errorf("the invoices of %s are charged as %v, not %v", customer, o.charged[customer], want)
		}
	}
	return nil
}
