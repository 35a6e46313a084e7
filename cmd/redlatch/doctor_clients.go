package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// clients asks clients what they hold and wait for, and looks whether there are queues. Without the rights, which looking checks, it
// finds nothing.
func (d *doctor) clients(ctx context.Context) error {
	c, err := redlatch.New(d.rdb, redlatch.WithClientName("redlatch"), redlatch.WithNamePrefix(d.prefix), redlatch.WithoutPresence(),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	some, cancel := context.WithTimeout(ctx, seekFor)
	for o, err := range c.Objects(some, "", redlatch.WithKinds("rdelayedqueue")) {
		if err != nil {
			break
		}
		d.queues = true
		if s, ok := o.Info.(rdelayedqueue.Stats); ok {
			d.queue(o.Name, s)
		}
	}
	cancel()
	if said, err := census(ctx, c); err == nil {
		others := ""
		if len(said.Clients) == 0 {
			others = othersListen(ctx, d.rdb, d.prefix)
		}
		d.waits(&said, others)
		d.losses(&said, others)
	}
	return c.Close()
}

// mostAlike is how many findings of one kind there are at the most.
const mostAlike = 10

// several reports whether there are as many findings of one kind as there should be.
func (d *doctor) several(check string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, f := range d.findings {
		if f.Check == check {
			n++
		}
	}
	return n >= mostAlike
}

// queue looks whether the handlers of a queue fail, and whether it is paused.
func (d *doctor) queue(name string, s rdelayedqueue.Stats) {
	f := finding{Level: note, Check: "queue", Found: name + ": " + inspect.Counts(s)}
	switch {
	case d.several(f.Check):
		return
	case s.Dead > 0:
		f.Means, f.Mend = "Dead letters have used up their attempts, and are not tried again.", "redlatch queue ls "+name+" --state dead shows the errors."
	case s.Failed > 0:
		f.Means, f.Mend = "Handlers fail, and each attempt takes the time of others.", "redlatch queue ls "+name+" shows the errors."
	case s.Paused:
		f.Means, f.Mend = "None of its messages is delivered.", "redlatch queue resume "+name+", once the reason has gone."
	default:
		return
	}
	d.find(f)
}

// longWait is how long calls wait before it is said for whom, as long as for the alert RedlatchWaitsLong.
const longWait = time.Minute

// long looks for locks that others wait long for. A candidate of an election does by its nature, and a circle is a finding of its own.
func (d *doctor) long(said *inspect.Census, circles []inspect.Circle) {
	for _, h := range said.Holds {
		waits := said.WaitsFor(h.Name)
		circular := slices.ContainsFunc(circles, func(c inspect.Circle) bool { return c.Has(h.Name) })
		if len(waits) == 0 || circular || !inspect.IsLock(h.Kind) || h.Kind == "relection" || d.several("wait") {
			continue
		}
		waited, at := time.Since(waits[0].Since).Round(time.Second), ""
		if waited < longWait {
			continue
		}
		if h.Site != "" {
			at = " (" + h.Site + ")"
		}
		d.find(finding{
			note, "wait", "", fmt.Sprintf("%s has held %s%s for %v, and %s for it, the longest for %v", h.Client, h.Name, at,
				time.Since(h.Since).Round(time.Second), inspect.N(len(waits), "call waits", "calls wait"), waited),
			"A hold is renewed until it is released, also one that was forgotten.",
			`Look at what that client does; docs/operations.md, "Nobody gets the lock".`,
		})
	}
}

// waits looks for clients that wait for each other. others says which clients could not be asked, for their prefix; "" for none.
func (d *doctor) waits(said *inspect.Census, others string) {
	all := said.Circles()
	client, n := mostCircles(all)
	for _, one := range all {
		f := finding{
			bad, "circle", "", one.String(), "If in each of them one goroutine holds and waits, they wait for ever.",
			"Restart one of them, and have all take these locks in the same order.",
		}
		if n > 1 && one.IsOf(client) {
			f.Mend = fmt.Sprintf("Restart %s, which ends %d circles, and have all take these locks in the same order.", client, n)
		}
		if len(one) == 1 {
			f.Means = "If the goroutine that holds it is the one that waits, it waits for ever."
			f.Mend = "Restart it, and have each way out of the function release the lock."
		}
		d.find(f)
	}
	if others != "" {
		d.find(finding{note, "prefix", "", others, "What is held and waited for is not known.", "Give that prefix, or set REDLATCH_PREFIX."})
		return
	}
	if len(all) == 0 {
		d.none("waits", "no circle", said)
	}
	d.long(said, all)
}

// none finds that there is nothing of a kind, by what the clients said, which may be nothing.
func (d *doctor) none(check, what string, said *inspect.Census) {
	f := finding{Level: good, Check: check}
	f.Found = fmt.Sprintf("%s, by what %d of %s said", what, len(said.Reports), inspect.N(len(said.Clients), "client", "clients"))
	if len(said.Reports) == 0 && len(said.Clients) > 0 {
		f.Level, f.Means, f.Mend = note, "None of them has answered in time.", "Ask again, and look at one with redlatch client ID."
	}
	d.find(f)
}

// mostCircles returns the client that is in most circles, and in how many.
func mostCircles(all []inspect.Circle) (client string, n int) {
	for _, one := range all {
		for _, l := range one {
			in := 0
			for _, other := range all {
				if other.IsOf(l.Client) {
					in++
				}
			}
			if in > n {
				client, n = l.Client, in
			}
		}
	}
	return client, n
}

// losses looks for holds that were lost of late. others is as for waits.
func (d *doctor) losses(said *inspect.Census, others string) {
	n, many := 0, ""
	for _, l := range said.Losses {
		if time.Since(l.At) < time.Hour {
			n++
		}
	}
	for _, r := range said.Reports {
		if kept := len(r.Losses); kept < r.LossCount && kept > 0 && time.Since(r.Losses[kept-1].At) < time.Hour {
			many = "at least " // it keeps the newest ones
		}
	}
	if n == 0 {
		if others == "" {
			d.none("losses", "none within an hour", said)
		}
		return
	}
	last := said.Losses[0]
	f := finding{
		note, "losses", "", fmt.Sprintf("%s%d within an hour, the last one by %s at %s", many, n, last.Client, last.At.Format(time.TimeOnly)),
		"Work went on for a moment without its lock or permit: it may have been done twice.", "redlatch client " + last.Client + " tells which, and why.",
	}
	if last.Failover != "" {
		f.Means = last.Failover + " failed over or restarted at about that time. " + f.Means
	}
	d.find(f)
}
