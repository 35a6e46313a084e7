package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

// clients asks clients what they hold and wait for, and looks at queues. Without the rights, which looking checks, it finds nothing.
func (d *doctor) clients(ctx context.Context) error {
	c, err := redlatch.New(d.rdb, redlatch.WithClientName("redlatch"), redlatch.WithNamePrefix(d.prefix), redlatch.WithoutPresence(),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	d.allQueues(ctx, c)
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

// maxAlike is how many findings of one check there are at the most.
const maxAlike = 10

// full reports whether there are as many findings of a check as there may be.
func (d *doctor) full(check string) bool { return d.count(check) >= maxAlike }

func (d *doctor) count(check string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.findings {
		if f.Check == check {
			n++
		}
	}
	return n
}

// allQueues looks at the queues that it finds in a second.
func (d *doctor) allQueues(ctx context.Context, c *redlatch.Client) {
	ctx, cancel := context.WithTimeout(ctx, seekFor)
	defer cancel()
	n, seen := 0, ""
	for o, err := range c.Objects(ctx, "", redlatch.WithKinds(kinds.Queue, kinds.Executor)) {
		if err != nil {
			seen = ", of all that were found in time"
			break
		}
		n++
		if d.full("queue") {
			continue
		}
		switch s := o.Info.(type) {
		case rdelayedqueue.Stats:
			d.queue(lookAtQueue(ctx, c, o, s))
		case rexecutor.Stats:
			d.executor(lookAtQueue(ctx, c, o, s.Stats), s)
		}
	}
	d.queues = n > 0
	if n > 0 && d.count("queue") == 0 {
		d.find(finding{Level: good, Check: "queue", Found: "nothing is late, growing, dead, being retried or paused in " + inspect.N(n, "queue", "queues") + seen})
	}
}

// executor judges an executor as a queue, and names the tasks that wait, and that no worker handles.
func (d *doctor) executor(q queueLook, s rexecutor.Stats) {
	all, only := inspect.Orphans(s), inspect.OnlyOrphansWait(s)
	if only { // it lags for no other reason
		q.growth, q.Oldest = 0, 0
	}
	d.queue(q)
	for i, text := range all {
		if only && i == len(all)-1 {
			text += fmt.Sprintf("; the first of all has been due for %v", s.Oldest.Round(time.Second))
		}
		d.find(finding{
			bad, "queue", "", "executor " + q.Name + ": " + text, "No process that has a handler for it has worked for 25 s.",
			"Start one; redlatch exec ls " + quoted(q.Name) + " shows the tasks.",
		})
	}
}

// queueLook is what a look at a queue has found.
type queueLook struct {
	inspect.Object
	rdelayedqueue.Stats
	retried string // the state of messages that are being retried
	growth  int    // see inspect.Growth
	unknown bool   // whether it grows
}

// lookAtQueue asks what the numbers of a queue do not tell. What is not answered is left out.
func lookAtQueue(ctx context.Context, c *redlatch.Client, o redlatch.Object, s rdelayedqueue.Stats) queueLook {
	q := queueLook{Object: inspect.Object{Kind: o.Kind, Name: o.Name}, Stats: s, retried: inspect.StateName(rdelayedqueue.Delayed)}
	if inspect.MayGrow(s) && !s.Paused {
		minutes, err := inspect.MessagesOf(c, q.Object).Series(ctx)
		q.growth, q.unknown = inspect.Growth(minutes, s), err != nil
	}
	if s.Failed == 0 {
		return q
	}
	for _, state := range []rdelayedqueue.State{rdelayedqueue.Delayed, rdelayedqueue.Ready, rdelayedqueue.InFlight} {
		some, _, _ := inspect.MessagesOf(c, q.Object).Page(ctx, state, "", 100)
		if slices.ContainsFunc(some, func(m inspect.Message) bool { return m.Error != "" }) {
			q.retried = inspect.StateName(state)
			break
		}
	}
	return q
}

// queue judges whether a queue falls behind or is paused, and whether its handlers fail.
func (d *doctor) queue(q queueLook) {
	name, full := q.Name, q.Name
	if q.Kind == kinds.Executor {
		name, full = "executor "+q.Name, core.Suffixed(q.Name, queue.TasksSuffix)
	}
	f := finding{Level: note, Check: "queue", Found: name + ": " + inspect.Counts(q.Stats)}
	add := func(means, mend string) {
		f.Means, f.Mend = strings.TrimSpace(f.Means+" "+means), strings.TrimSpace(f.Mend+" "+mend)
	}
	command := func(verb, flags string) string {
		if q.Kind == kinds.Executor && verb != "resume" {
			return "redlatch exec " + verb + " " + quoted(q.Name) + flags
		}
		return "redlatch queue " + verb + " " + quoted(full) + flags
	}
	if q.growth > 0 {
		f.Found += fmt.Sprintf("; %d more came than went in the last %v min", q.growth, inspect.GrowthFor.Minutes())
	}
	lags := q.Oldest > inspect.Lags && !q.Paused
	if lags {
		f.Level = bad
		f.Found += fmt.Sprintf("; one has been due for %v", q.Oldest.Round(time.Second))
	}
	if lags || q.growth > 0 {
		add("More becomes due than is handled, or nobody handles it.", command("stats", "")+`, and docs/operations.md, "A queue grows".`)
	}
	if q.Dead > 0 {
		add("Dead letters have used up their attempts, and are not tried again.", command("ls", " --state dead")+" shows the errors.")
	}
	if q.Failed > 0 {
		add("Handlers fail, and each attempt takes the time of others.", command("ls", " --state "+q.retried)+" shows the errors.")
	}
	if q.unknown {
		add("Redis did not say in time whether it grows.", command("stats", "")+" shows the last hour.")
	}
	if q.Paused {
		add("Somebody has paused it: none of its messages is delivered.", command("resume", "")+", once the reason has gone.")
	}
	if f.Means != "" {
		d.find(f)
	}
}

// The time after which waits and holds are a finding, as for the alerts RedlatchWaitsLong and RedlatchHeldLong.
const (
	longWait = time.Minute
	longHold = time.Hour
)

// long looks for what is held while others wait long for it, or is held for long. A leader leads for long by its nature, and its
// candidates wait; a circle is a finding of its own.
func (d *doctor) long(said *inspect.Census, circles []inspect.Circle) {
	for _, h := range said.Holds {
		if h.Kind == kinds.Election || slices.ContainsFunc(circles, func(c inspect.Circle) bool { return c.Has(h.Name) }) {
			continue
		}
		held, at := time.Since(h.Since), ""
		if h.Site != "" {
			at = " (" + h.Site + ")"
		}
		f := finding{
			note, "long hold", "", fmt.Sprintf("%s has held %s%s for %v", h.Client, h.Name, at, held.Round(time.Second)),
			"A hold that is renewed lasts until it is released, also one that was forgotten.",
			`Look at what that client does; docs/operations.md, "A lock is held for long".`,
		}
		calls := said.WaitsFor(h.Name) // what waits longest first
		switch {
		case inspect.IsLock(h.Kind) && len(calls.Waits) > 0 && time.Since(calls.Waits[0].Since) >= longWait:
			f.Check, f.Mend = "long wait", `Look at what that client does; docs/operations.md, "Nobody gets the lock".`
			f.Found += fmt.Sprintf(", and %s for it, the longest for %v", inspect.N(len(calls.Waits)+calls.MoreWaits, "call waits", "calls wait"),
				time.Since(calls.Waits[0].Since).Round(time.Second))
			if held < longWait {
				f.Means, f.Mend = "More calls want it than it can serve.", "Shorten the work under the lock, or split its name."
			}
		case held < longHold:
			continue
		}
		if !d.full(f.Check) {
			d.find(f)
		}
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
	d.untold(said)
	d.long(said, all)
}

// untold looks for clients that hold, or wait for, more than they tell.
func (d *doctor) untold(said *inspect.Census) {
	for _, id := range slices.Sorted(maps.Keys(said.Reports)) {
		r := said.Reports[id]
		if (r.WaitCount > len(r.Waits) || r.HoldCount > len(r.Holds)) && !d.full("waits") {
			d.find(finding{
				note, "waits", "", fmt.Sprintf("%s holds %d, and %d of its calls wait; it tells the longest %d and %d", id,
					r.HoldCount, r.WaitCount, len(r.Holds), len(r.Waits)),
				"A circle through one of the others is not found.", "If something does not go on, look at the stacks of its goroutines.",
			})
		}
	}
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
		note, "losses", "", fmt.Sprintf("%s%d within an hour, the last one by %s at %s", many, n, last.Client, last.At.UTC().Format("15:04:05Z")),
		"Work went on for a moment without its lock or permit: it may have been done twice.", "redlatch client " + last.Client + " tells which, and why.",
	}
	if last.Failover != "" {
		f.Means = last.Failover + " failed over or restarted at about that time. " + f.Means
	}
	d.find(f)
}
