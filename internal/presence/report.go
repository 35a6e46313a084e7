package presence

import (
	"cmp"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"time"

	"github.com/redlatch/redlatch/internal/events"
)

// Hold is something that the client holds.
type Hold struct {
	Kind    string        `json:"kind"`
	Name    string        `json:"name"`
	Owner   string        `json:"owner"`
	Mode    string        `json:"mode,omitempty"`
	Since   time.Time     `json:"since"`
	Left    time.Duration `json:"left"`
	Levels  int           `json:"levels"`
	Renewed int           `json:"renewed"`
	Site    string        `json:"site,omitempty"`
}

// Wait is a call that waits for somebody else.
type Wait struct {
	Kind  string    `json:"kind"`
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
	Site  string    `json:"site,omitempty"`
}

// Reporter is a kind of object that tells what the client holds and waits for.
type Reporter interface {
	Holds() []Hold
	Waits() []Wait
}

// Add adds a kind of object to those that are asked by Holds and Waits.
func (p *Presence) Add(r Reporter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reporters = append(p.reporters, r)
}

func (p *Presence) reporting() []Reporter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reporters)
}

// Holds returns what the client holds, what it has held longest first.
func (p *Presence) Holds() []Hold {
	var all []Hold
	for _, r := range p.reporting() {
		all = append(all, r.Holds()...)
	}
	sort.Slice(all, func(i, j int) bool { // slices.SortFunc would be 40 kB of code in each program
		return cmp.Or(all[i].Since.Compare(all[j].Since), cmp.Compare(all[i].Owner, all[j].Owner)) < 0
	})
	return all
}

// Waits returns the calls that wait, the one that has waited longest first.
func (p *Presence) Waits() []Wait {
	var all []Wait
	for _, r := range p.reporting() {
		all = append(all, r.Waits()...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Since.Before(all[j].Since) })
	return all
}

// Report is what a client says of itself.
type Report struct {
	Version    int               `json:"v"`
	ID         string            `json:"id"`
	Library    string            `json:"library"`
	Go         string            `json:"go"`
	Host       string            `json:"host"`
	PID        int               `json:"pid"`
	Now        time.Time         `json:"now"` // by which the other times count: the clocks of two machines may differ
	Up         time.Duration     `json:"up"`
	Channels   int               `json:"channels"`
	Messages   uint64            `json:"messages"`
	Reconnects uint64            `json:"reconnects"`
	RoundTrips int64             `json:"round_trips"`
	HoldCount  int               `json:"hold_count"`
	WaitCount  int               `json:"wait_count"`
	Holds      []Hold            `json:"holds"`
	Waits      []Wait            `json:"waits"`
	LossCount  int               `json:"loss_count"`
	Losses     []events.Loss     `json:"losses"`
	Failovers  []events.Failover `json:"failovers,omitempty"`
	Caches     any               `json:"caches,omitempty"` // as [Answer] has them; nil for none
}

// report returns what the client says of itself; with a name that is not empty it lists only holds, waits and caches that have it.
func (p *Presence) report(name string) Report {
	c := p.core
	host, _ := os.Hostname() // empty if it is not known
	stats, now := c.Subscriptions(), c.Clock.Now()
	holds, waits := p.Holds(), p.Waits()
	r := Report{
		Version: reportVersion, ID: c.ID, Library: libraryVersion(), Go: runtime.Version(), Host: host, PID: os.Getpid(),
		Now: c.Clock.Time(now), Up: now,
		Channels: stats.Channels, Messages: stats.Messages, Reconnects: stats.Reconnects, RoundTrips: c.Batch.Flushes(),
		HoldCount: len(holds), WaitCount: len(waits), Failovers: c.Events.Failovers(),
	}
	if name != "" {
		holds = slices.DeleteFunc(holds, func(h Hold) bool { return h.Name != name })
		waits = slices.DeleteFunc(waits, func(w Wait) bool { return w.Name != name })
	}
	r.Holds, r.Waits = holds[:min(answerList, len(holds))], waits[:min(answerList, len(waits))]
	if c := p.cachesNow(); c != nil {
		r.Caches = c.said(name)
	}
	r.Losses, r.LossCount = c.Events.Losses()
	return r
}

// setClock changes the times of a report to those of a machine where it is now.
func (r *Report) setClock(now time.Time) {
	at := func(t *time.Time) { *t = now.Add(t.Sub(r.Now)) }
	for i := range r.Holds {
		at(&r.Holds[i].Since)
	}
	for i := range r.Waits {
		at(&r.Waits[i].Since)
	}
	for i := range r.Losses {
		at(&r.Losses[i].At)
	}
	for i := range r.Failovers {
		at(&r.Failovers[i].At)
	}
	r.Now = now
}

// libraryVersion returns the version of this module that the program was built with; "(devel)" if it was built from a checkout.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == events.ModulePath {
			return m.Version
		}
	}
	return ""
}
