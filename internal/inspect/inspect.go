// Package inspect looks at objects for people: the command and the console show what it returns.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Lock is the state of a lock of any kind.
type Lock struct {
	Name        string
	Locked      bool
	Mode        string // read or write, of a read-write lock
	Left        time.Duration
	Waiting     int
	Token       int64
	Holders     []Holder
	MoreHolders int                // who are not listed
	Queue       []rfairlock.Waiter // of a fair lock
	MoreQueued  int                // who are not listed
	Calls                          // of clients that answered
	Circles     []Circle           // that it is in
}

// Holder is who holds a lock. What only its client knows is there if that answers.
type Holder struct {
	Owner, Client string
	Levels        int
	Left          time.Duration
	Since         time.Time
	Renewed       int
	Site          string
	Host          string // and the process there
	PID           int
}

// LockOf asks for the state of a lock. A name that is no lock's is an error.
func LockOf(ctx context.Context, c *redlatch.Client, name string) (Lock, error) {
	info, err := c.GetFairLock(name).Info(ctx)
	var plain rlock.Info
	if err == nil {
		plain, err = c.GetFencedLock(name).Info(ctx) // its waiters have a channel of their own
	}
	if errors.Is(err, redlatch.ErrWrongType) {
		rw, err := c.GetReadWriteLock(name).Info(ctx)
		return ofReadWrite(rw), err
	}
	if err != nil {
		return Lock{}, err
	}
	l := Lock{
		Name: name, Locked: info.Locked, Left: info.Left, Token: plain.Token, Queue: info.Queue,
		Waiting: info.Waiting + plain.Waiting, // a lock may be used in both ways
	}
	l.MoreQueued = max(info.Waiting-len(info.Queue), 0)
	if plain.Waiting < 0 && info.Waiting > 0 { // the user may not count the plain ones
		l.Waiting = info.Waiting
	}
	if info.Locked {
		l.Holders = []Holder{{Owner: info.Owner, Client: info.Client, Levels: info.Levels, Left: info.Left}}
	}
	return l, nil
}

func ofReadWrite(info rrwlock.Info) Lock {
	l := Lock{Name: info.Name, Locked: info.Locked, Left: info.Left, Waiting: info.Waiting, MoreHolders: info.MoreReaders}
	if info.Locked {
		l.Mode = "read"
	}
	all := info.Readers
	if info.Writer != nil {
		l.Mode, all = "write", append([]rrwlock.Holder{*info.Writer}, all...)
	}
	for _, h := range all {
		l.Holders = append(l.Holders, Holder{Owner: h.Owner, Client: h.Client, Levels: h.Levels, Left: h.Left})
	}
	return l
}

const (
	askFor  = time.Second // for how long clients are asked
	askMost = 50          // of them
)

// Ask asks clients what only they know: since when the lock is held, and who waits. Java does not answer, nor does a client that does
// not listen.
func (l *Lock) Ask(ctx context.Context, c *redlatch.Client) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	said := CensusOf(ctx, c, askMost)
	for _, h := range l.Holders {
		if _, answered := said.Reports[h.Client]; answered {
			continue
		}
		if report, err := c.Ask(ctx, h.Client); err == nil { // there are many, or the user may not list them
			said.Reports[h.Client] = report
		}
	}
	l.Learn(ctx, c, said)
}

// Learn takes what clients have said of the lock. A holder that has said only what it has held longest is asked for this lock.
func (l *Lock) Learn(ctx context.Context, c *redlatch.Client, said Census) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	for i := range l.Holders {
		h := &l.Holders[i]
		report := said.Reports[h.Client]
		holds := report.Holds
		if len(holds) < report.HoldCount && !slices.ContainsFunc(holds, h.has(l.Name)) {
			holds = holdsOf(ctx, c, h.Client, l.Name)
			for _, hold := range holds { // a circle may go through it
				said.Holds = append(slices.Clip(said.Holds), Hold{h.Client, hold})
			}
		}
		if i := slices.IndexFunc(holds, h.has(l.Name)); i >= 0 {
			h.Since, h.Renewed, h.Site, h.Host, h.PID = holds[i].Since, holds[i].Renewed, holds[i].Site, report.Host, report.PID
		}
	}
	l.Calls = said.WaitsFor(l.Name)
	for _, c := range said.Circles() {
		if c.Has(l.Name) {
			l.Circles = append(l.Circles, c)
		}
	}
}

// has reports whether a hold is that of the holder.
func (h *Holder) has(name string) func(redlatch.HoldInfo) bool {
	return func(hold redlatch.HoldInfo) bool { return hold.Owner == h.Owner && hold.Name == name }
}

// holdsOf returns what a client holds of one name; nil if it does not answer.
func holdsOf(ctx context.Context, c *redlatch.Client, id, name string) (all []redlatch.HoldInfo) {
	r, err := presence.Ask(ctx, core.Of(c), id, name)
	if err != nil {
		return nil
	}
	for _, h := range r.Holds {
		all = append(all, redlatch.HoldInfo(h))
	}
	return all
}

// ErrOthers is returned (wrapped) by [Lock.Force] when somebody holds the lock who did not when it was looked at.
var ErrOthers = errors.New("somebody else holds it now")

// Force frees the lock, if nobody holds it but those in Holders. It looks again for that: who acquires the lock between this look and
// the release, which follows at once, loses it. If as many readers were listed as a list has at most, others are freed too.
func (l *Lock) Force(ctx context.Context, c *redlatch.Client) (freed bool, err error) {
	now, err := LockOf(ctx, c, l.Name)
	if err != nil || !now.Locked {
		return false, err
	}
	crowd := now.Mode == "read" && len(l.Holders) >= core.MostListed
	for _, h := range now.Holders {
		if !crowd && !slices.ContainsFunc(l.Holders, func(seen Holder) bool { return seen.Owner == h.Owner }) {
			return false, fmt.Errorf("%w: %q", ErrOthers, h.Owner)
		}
	}
	if now.Mode != "" {
		return c.GetReadWriteLock(l.Name).ForceUnlock(ctx)
	}
	return c.GetFairLock(l.Name).ForceUnlock(ctx) // it wakes waiters of plain locks too
}

// Permits asks for the state of a semaphore, of leased permits or counting.
func Permits(ctx context.Context, c *redlatch.Client, name string) (rsemaphore.PermitSemaphoreInfo, error) {
	info, err := c.GetPermitSemaphore(name).Info(ctx)
	if err != nil {
		return info, err
	}
	counting, err := c.GetSemaphore(name).Info(ctx)
	info.Waiting = max(info.Waiting, counting.Waiting) // on one of their channels nobody waits
	return info, err
}

// Summary is what a list shows of an object.
type Summary struct {
	Kind, Name, State string
	Variant           string // tells objects of one kind and name apart: "double" of a double barrier
	Waiting           int
	Messages          int           // of a queue
	Ready             int           // of them
	Lag               time.Duration // of a queue
	Left              time.Duration // of the lease; 0 where there is none
	Clients           []string      // that hold a lock, or lead
	Owners            []string      // ids of those who hold it, or permits
	Since             time.Time     // since when the first of them has held it; zero if that is not known
}

// ByName compares summaries by name, and those of one name by what they are.
func ByName(a, b Summary) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Variant, b.Variant))
}

// Learn takes from what clients have said since when the object is held.
func (s *Summary) Learn(ages Ages) {
	for _, owner := range s.Owners {
		at, known := ages[held{s.Name, owner}]
		if known && (s.Since.IsZero() || at.Before(s.Since)) {
			s.Since = at
		}
	}
}

// SummaryOf returns the summary of an object.
func SummaryOf(o redlatch.Object) Summary {
	s := Summary{Kind: o.Kind, Name: o.Name}
	switch i := o.Info.(type) {
	case rlock.Info:
		s.held(i, i.Waiting)
	case rfairlock.Info:
		s.held(i.Info, max(i.Waiting, len(i.Queue)))
	case rrwlock.Info:
		s.Waiting, s.Left = i.Waiting, i.Left
		for _, h := range i.Readers {
			s.Clients, s.Owners = append(s.Clients, h.Client), append(s.Owners, h.Owner)
		}
		s.State = N(i.MoreReaders, "reader", "readers")
		if len(i.Readers) > 0 {
			s.State = "read by " + AndMore(i.Readers[0].Owner, len(i.Readers)+i.MoreReaders-1)
		}
		if i.Writer != nil {
			s.State = "written by " + i.Writer.Owner
			s.Clients, s.Owners = append(s.Clients, i.Writer.Client), append(s.Owners, i.Writer.Owner)
		}
		s.State += ", " + N(i.WritersWaiting, "writer waits", "writers wait")
	case rsemaphore.PermitSemaphoreInfo:
		s.Waiting = i.Waiting
		s.State = fmt.Sprintf("%d of %d available, ", i.Available, i.Permits)
		if len(i.Holders) > 0 {
			s.State += "held by " + AndMore(i.Holders[0].ID, max(i.Permits-i.Available, len(i.Holders))-1) + ", "
		}
		s.State += Waiting(i.Waiting)
		for _, h := range i.Holders {
			s.Owners = append(s.Owners, h.ID)
		}
	case rlatch.Info:
		s.Waiting = i.Waiting
		s.State = fmt.Sprintf("count %d, %s", i.Count, Waiting(i.Waiting))
	case rbarrier.Info:
		s.Waiting = i.Arrived.Count + i.Leaving.Count
		s.State = fmt.Sprintf("%d of %d arrived", i.Arrived.Count, i.Participants)
		if i.Double {
			s.Variant = "double"
			s.State = fmt.Sprintf("double, %s, %d inside, %d leaving", s.State, i.Inside.Count, i.Leaving.Count)
		}
	case rsemaphore.SemaphoreInfo:
		s.Waiting = i.Waiting
		s.State = fmt.Sprintf("%d available, %s", i.Available, Waiting(i.Waiting))
	case rdelayedqueue.Stats:
		s.queued(i)
	case rexecutor.Stats:
		s.queued(i.Stats)
		s.State = tasks(i)
	case relection.Leader:
		s.Since, s.Clients = i.Since, []string{core.ClientOf(i.ID)}
		s.State = fmt.Sprintf("term %d, led by %s", i.Term, i.ID)
	case []rscheduler.Job:
		s.State = jobs(i)
	}
	return s
}

func (s *Summary) queued(i rdelayedqueue.Stats) {
	s.Messages, s.Ready = i.Ready+i.Delayed+i.InFlight+i.Dead, i.Ready
	s.Lag = i.Oldest
	s.State = Counts(i)
}

func (s *Summary) held(i rlock.Info, waiting int) {
	s.Waiting, s.Left, s.State = waiting, i.Left, "free"
	if i.Locked {
		s.Clients, s.Owners = []string{i.Client}, []string{i.Owner}
		s.State = fmt.Sprintf("held by %s, %s", i.Owner, Waiting(waiting))
	}
}

// AndMore names one, and says how many more there are.
func AndMore(one string, n int) string {
	if n <= 0 {
		return one
	}
	return fmt.Sprintf("%s and %d more", one, n)
}

// LateMost is how late a run may be before that is shown.
const LateMost = 10 * time.Second

// Late returns for how long a job has been due, if that is long and somebody should run it.
func Late(j rscheduler.Job) time.Duration {
	if j.Late < LateMost || j.Orphaned {
		return 0
	}
	return j.Late
}

// jobs says in a few words how the jobs of a scheduler are.
func jobs(all []rscheduler.Job) string {
	running, paused, failed, late := 0, 0, 0, 0
	for _, j := range all {
		if Late(j) > 0 {
			late++
		}
		running += len(j.Running)
		if j.Paused {
			paused++
		}
		if j.Last.Err != "" {
			failed++
		}
	}
	text := fmt.Sprintf("jobs: %d, running %d, paused %d, failed at last %d", len(all), running, paused, failed)
	if late > 0 {
		text += fmt.Sprintf(", late %d", late)
	}
	return text
}

// More says how many there are beside those that were listed; empty if there are none.
func More(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("… and %d more", n)
}

// N returns a number and what there are so many of.
func N(n int, one, several string) string {
	if n == 1 {
		several = one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// Number is a number in a table; a negative one is not known.
func Number(n int) string {
	if n < 0 {
		return "?"
	}
	return strconv.Itoa(n)
}

// Waiting says how many clients wait; a negative number is not known.
func Waiting(n int) string {
	if n < 0 {
		return "who waits is not known"
	}
	return N(n, "client waits", "clients wait")
}

// Lags is for how long a message has been due when its queue is said to lag.
const Lags = 30 * time.Second

// Counts says in a few words how a queue is.
func Counts(s rdelayedqueue.Stats) string {
	text := fmt.Sprintf("%d delayed, %d ready, %d in flight, %d dead", s.Delayed, s.Ready, s.InFlight, s.Dead)
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d being retried", s.Failed)
	}
	if s.Paused {
		text += ", paused"
	}
	if !s.PausedUntil.IsZero() {
		text += " until " + s.PausedUntil.UTC().Format(time.RFC3339)
	}
	return text
}
