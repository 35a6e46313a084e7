package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	pageSize    = 100             // objects on a page
	sortedMost  = 10_000          // objects that are put in order
	overviewFor = time.Second / 4 // for how long the overview looks at objects of some kinds
	overviewTop = 10              // lines of its tables
	chainsMost  = 3               // chains of waits on a page
	reachFor    = time.Second     // for how long a page waits for the first answer of Redis
)

// lists are the pages that list objects: of which kinds, the page of one of them, and the orders there are.
var lists = map[string]struct { //nolint:gochecknoglobals // a constant in all but name
	kinds  []string
	detail string // "" for that of its kind
	sorts  []string
}{
	"locks":      {[]string{kinds.Lock, kinds.FairLock, kinds.RWLock}, "lock", []string{"name", "waiting", "lease"}},
	"semaphores": {[]string{kinds.Semaphore, kinds.Permits}, "semaphore", []string{"name", "waiting", "lease"}},
	"latches":    {[]string{kinds.Latch}, "latch", []string{"name", "waiting", "lease"}},
	"barriers":   {[]string{kinds.Barrier}, "barrier", []string{"name", "waiting"}},
	"queues":     {[]string{kinds.Queue, kinds.Executor}, "", []string{"name", "messages"}},
	"schedulers": {[]string{kinds.Scheduler}, "scheduler", []string{"name"}},
	"elections":  {[]string{kinds.Election}, "election", []string{"name"}},
}

// list is a page of objects.
type list struct {
	Query, Sort string
	Sorts       []string
	Rows        []inspect.Summary
	Detail      string // the page of one object; "" for that of its kind
	Page        int
	Before      string // the address of the page before; "" without one
	After       string
	Cut         bool // only the first sortedMost were put in order
}

// objects lists the objects of some kinds. They are found by SCAN, so a page far behind takes as long as all before it.
func (h *handler) objects(r *request) (any, error) {
	page, _ := strconv.Atoi(r.query.Get("page"))     // 0 is the first
	page = max(0, min(page, math.MaxInt/pageSize-1)) // an address may have any number
	of := lists[r.path]
	l := &list{Query: r.query.Get("q"), Sort: r.query.Get("sort"), Page: page + 1, Sorts: of.sorts, Detail: of.detail}
	sorted := slices.Contains(l.Sorts, l.Sort)
	from, more := page*pageSize, false
	n := 0
	for o, err := range h.client.Objects(r.ctx, pattern(l.Query), redlatch.WithKinds(of.kinds...)) {
		if err != nil {
			return nil, err
		}
		if !sorted && n == from+pageSize {
			more = true
			break
		}
		if sorted && n == sortedMost {
			l.Cut = true
			break
		}
		if n++; sorted || n > from {
			l.Rows = append(l.Rows, inspect.SummaryOf(o))
		}
	}
	if sorted {
		slices.SortFunc(l.Rows, by(l.Sort))
		l.Rows = l.Rows[min(from, len(l.Rows)):]
		if more = len(l.Rows) > pageSize; more {
			l.Rows = l.Rows[:pageSize]
		}
	}
	address := func(page int) string {
		return r.path + "?" + url.Values{"q": {l.Query}, "sort": {l.Sort}, "page": {strconv.Itoa(page)}}.Encode()
	}
	if page > 0 {
		l.Before = address(page - 1)
	}
	if more {
		l.After = address(page + 1)
	}
	return l, nil
}

// pattern returns the pattern of names that a search is for: the names that contain it, unless it is a pattern itself.
func pattern(search string) string {
	if search == "" || strings.ContainsAny(search, "*?[") {
		return search
	}
	return "*" + strings.ReplaceAll(search, `\`, `\\`) + "*"
}

func by(sort string) func(a, b inspect.Summary) int {
	return func(a, b inspect.Summary) int {
		named := inspect.ByName(a, b)
		switch sort {
		case "waiting":
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), named)
		case "lease":
			return cmp.Or(cmp.Compare(b.Left, a.Left), named)
		case "messages":
			return cmp.Or(cmp.Compare(b.Messages, a.Messages), named)
		}
		return named
	}
}

// overview is the first page.
type overview struct {
	Counts         []count
	Cut            bool // there was no time for all objects
	Unjudged       bool // nor whether each queue grows
	Wrong          []trouble
	MoreWrong      int // that are not listed
	Queues         []queueLine
	inspect.Census                  // its losses are those of the last hour
	Waiting        map[string]int   // calls that wait for an object, by its name
	Lost           int              // how many there are of them
	MoreLosses     int              // of them that are not listed
	Circles        []inspect.Circle // in which clients wait for each other
	Chains         []inspect.Chain  // in which they wait in a line
	Hour           []bar            // how many losses, for each five minutes, the oldest first
}

// count is how many objects of a kind there are, drawn as a bar.
type count struct {
	Kind string
	N    int
	Bar  bar
}

// queueLine is a queue or an executor on the overview.
type queueLine struct {
	inspect.Object
	Stats   rexecutor.Stats
	Bars    []bar // how many messages are in each state
	minutes []rdelayedqueue.Minute
	newest  inspect.Survey // of dead letters
}

// bar is a part of a chart, in its units.
type bar struct{ X, Y, Width, Height int }

const chart = 100 // the width, or the height, of a chart

func (h *handler) overview(r *request) (any, error) {
	o := &overview{Waiting: map[string]int{}}
	counts := map[string]int{}
	// What there are most of comes last, so that there is time for the rest.
	for _, some := range [][]string{
		{kinds.Queue, kinds.Executor}, {kinds.Scheduler}, {kinds.Election, kinds.Barrier}, {kinds.Permits}, {kinds.FairLock, kinds.Latch, kinds.Semaphore}, {kinds.Lock, kinds.RWLock},
	} {
		if err := h.tally(r.ctx, o, counts, some); err != nil {
			return nil, err
		}
	}
	if o.Cut && len(counts) == 0 { // perhaps Redis does not answer
		if err := h.reach(r.ctx); err != nil {
			return nil, err
		}
	}
	most := 1
	for _, n := range counts {
		most = max(most, n)
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		o.Counts = append(o.Counts, count{kind, counts[kind], bar{Width: max(1, chart*counts[kind]/most)}})
	}
	o.Unjudged = !h.histories(r.ctx, o.Queues)
	for _, q := range o.Queues {
		o.Wrong = append(o.Wrong, queueTroubles(q)...)
	}
	queueLines(o)
	all := sorted(o.Wrong)
	o.Wrong = first(all, wrongMost)
	drawnFirst(o.Wrong)
	o.MoreWrong = len(all) - len(o.Wrong)
	o.Census = h.crowd.look(r.ctx)
	o.Circles, o.Chains = o.Census.Circles(), first(o.Census.Chains(), chainsMost)
	now := time.Now()
	buckets := make([]int, 12)
	losses := o.Losses
	o.Losses = nil
	for _, l := range losses {
		if age := now.Sub(l.At); age < time.Hour {
			o.Losses = append(o.Losses, l)
			buckets[11-max(0, int(age/(5*time.Minute)))]++
		}
	}
	tallest := max(1, slices.Max(buckets))
	for i, n := range buckets {
		height := chart / 4 * n / tallest
		o.Hour = append(o.Hour, bar{X: i * 8, Y: chart/4 - height, Width: 7, Height: height})
	}
	for _, w := range o.Waits {
		o.Waiting[w.Name]++
	}
	o.Holds, o.Waits = first(o.Holds, overviewTop), first(o.Waits, overviewTop)
	o.Lost, o.Losses = len(o.Losses), first(o.Losses, pageSize)
	o.MoreLosses = o.Lost - len(o.Losses)
	return o, nil
}

// reach returns an error if Redis does not answer soon. It looks at a lock, whether there is one or not.
func (h *handler) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	_, err := h.client.GetLock("redlatch").IsLocked(ctx)
	if !silent(err) {
		return nil // it answers
	}
	return errors.Unwrap(err) // not that of a lock that nobody has asked for
}

// silent reports whether an error says that Redis has not answered.
func silent(err error) bool {
	return errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown) || errors.Is(err, redlatch.ErrClosed)
}

// tally counts the objects of some kinds, as long as there is time.
func (h *handler) tally(ctx context.Context, o *overview, counts map[string]int, kinds []string) error {
	end := time.Now().Add(overviewFor)
	some, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for one, err := range h.client.Objects(some, "", redlatch.WithKinds(kinds...)) {
		if ctx.Err() == nil && !time.Now().Before(end) { // not some.Err: a connection ends at the deadline, perhaps before that says so
			o.Cut = true
			return nil
		}
		if err != nil {
			return err
		}
		counts[one.Kind]++
		of := inspect.Object{Kind: one.Kind, Name: one.Name}
		switch i := one.Info.(type) {
		case rdelayedqueue.Stats:
			o.Queues = append(o.Queues, queueLine{Object: of, Stats: rexecutor.Stats{Stats: i}})
		case rexecutor.Stats:
			o.Queues = append(o.Queues, queueLine{Object: of, Stats: i})
		case []rscheduler.Job:
			o.Wrong = append(o.Wrong, jobTroubles(one.Name, i)...)
		}
	}
	return nil
}

// queueLines completes the lines of the queues that have most to deliver.
func queueLines(o *overview) {
	slices.SortFunc(o.Queues, func(a, b queueLine) int {
		return cmp.Or(cmp.Compare(b.Stats.Ready+b.Stats.Dead, a.Stats.Ready+a.Stats.Dead), cmp.Compare(a.Name, b.Name))
	})
	o.Queues = first(o.Queues, overviewTop)
	for i := range o.Queues {
		q := &o.Queues[i]
		states := []int{q.Stats.Delayed, q.Stats.Ready, q.Stats.InFlight, q.Stats.Dead}
		all := max(1, states[0]+states[1]+states[2]+states[3])
		x := 0
		for _, n := range states {
			q.Bars = append(q.Bars, bar{X: x, Width: chart * n / all})
			x += chart * n / all
		}
	}
}

func first[T any](all []T, n int) []T { return all[:min(n, len(all))] }

// lockPage is the page of a lock.
type lockPage struct {
	inspect.Lock
	Chains []inspect.Chain // that it is in
	Who    string          // what is different if somebody else holds it
}

func (h *handler) lock(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	l, err := inspect.LockOf(r.ctx, h.client, name)
	if err != nil {
		return nil, err
	}
	r.begin()
	said := h.crowd.look(r.ctx)
	p := &lockPage{Lock: l}
	p.Learn(r.ctx, h.client, said)
	p.Chains = said.Chains()
	p.Chains = first(slices.DeleteFunc(p.Chains, func(c inspect.Chain) bool { return !c.Has(name) }), chainsMost)
	for _, holder := range p.Holders {
		p.Who += holder.Owner + " "
	}
	return p, nil
}

func nameOf(r *request) (string, error) {
	name := r.query.Get("name")
	if name == "" {
		return "", fmt.Errorf("%w: the address has no name", redlatch.ErrInvalid)
	}
	return name, nil
}

// semaphorePage is the page of a semaphore.
type semaphorePage struct {
	rsemaphore.PermitSemaphoreInfo
	Leased []leased
	More   int // that are leased and not listed
	inspect.Calls
}

// leased is a permit, and what its client says of it; nil if that does not answer.
type leased struct {
	rsemaphore.Holder
	Said *inspect.Hold
}

func (h *handler) semaphore(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	info, err := inspect.Permits(r.ctx, h.client, name)
	if err != nil {
		return nil, err
	}
	r.begin()
	said := h.crowd.look(r.ctx)
	p := &semaphorePage{
		PermitSemaphoreInfo: info, More: info.Permits - info.Available - len(info.Holders), Calls: said.WaitsFor(name),
	}
	for _, holder := range info.Holders {
		one := leased{Holder: holder}
		if i := slices.IndexFunc(said.Holds, func(h inspect.Hold) bool { return h.Owner == holder.ID && h.Name == name }); i >= 0 {
			one.Said = &said.Holds[i]
		}
		p.Leased = append(p.Leased, one)
	}
	return p, nil
}

// latchPage is the page of a latch.
type latchPage struct {
	rlatch.Info
	inspect.Calls
}

func (h *handler) latch(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	info, err := h.client.GetCountDownLatch(name).Info(r.ctx)
	if err != nil {
		return nil, err
	}
	r.begin()
	return &latchPage{info, h.crowd.waitsFor(r.ctx, name)}, nil
}

// barrierPage is the page of a barrier, and of the double barrier of its name.
type barrierPage struct {
	inspect.Barriers
	inspect.Calls
}

// group is the participants of a barrier who have arrived, are inside or leave.
type group struct {
	rbarrier.Crowd
	What string
	More int // that are not listed
}

func placesOf(what string, c rbarrier.Crowd) group {
	return group{c, what, c.Count - len(c.Places)}
}

func (h *handler) barrier(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	b, err := inspect.BarriersOf(r.ctx, h.client, name)
	if err != nil {
		return nil, err
	}
	r.begin()
	return &barrierPage{b, h.crowd.waitsFor(r.ctx, name)}, nil
}

// stateOf returns the state of a name in an address or a form.
func stateOf(name string) (rdelayedqueue.State, error) {
	state, err := inspect.StateOf(name)
	if err != nil {
		err = fmt.Errorf("%w: %w", redlatch.ErrInvalid, err)
	}
	return state, err
}

// messagePage is the page of a message or a task.
type messagePage struct {
	Of inspect.Object // the queue or the executor
	inspect.Message
	Headers map[string]string
	Shown   string // the payload
	Hidden  bool   // neither it nor what the headers say is to be shown
	timeline
}

func (h *handler) message(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	p := &messagePage{Of: inspect.Object{Kind: kindOf(r.query), Name: name}, Hidden: !h.payloads}
	p.Message, p.Headers, err = inspect.MessagesOf(h.client, p.Of).Get(r.ctx, r.query.Get("id"))
	if errors.Is(err, rdelayedqueue.ErrNotFound) {
		return nil, fmt.Errorf("%w: the %s %q of %q", errAbsent, noun(p.Of.Kind), r.query.Get("id"), name)
	}
	if err != nil {
		return nil, err
	}
	if h.payloads {
		text, err := json.MarshalIndent(p.Payload, "", "  ")
		if err != nil {
			return nil, err
		}
		p.Shown = string(text)
	}
	p.timeline = timelineOf(p.Message, h.holdOf(r, p), time.Now())
	return p, nil
}

// holdOf returns what the client says that has the message of a page in flight; nil if none says that.
func (h *handler) holdOf(r *request, p *messagePage) *inspect.Hold {
	if p.State != inspect.StateName(rdelayedqueue.InFlight) {
		return nil
	}
	r.begin()
	said := h.crowd.look(r.ctx)
	i := slices.IndexFunc(said.Holds, func(o inspect.Hold) bool { return o.Kind == p.Of.Kind && o.Name == p.Of.Name && o.Owner == p.ID })
	if i < 0 {
		return nil
	}
	return &said.Holds[i]
}

// kindOf returns the kind of what has the messages that an address or a form is about.
func kindOf(values url.Values) string {
	if values.Get("kind") == kinds.Executor {
		return kinds.Executor
	}
	return kinds.Queue
}

// electionPage is the page of an election.
type electionPage struct {
	inspect.Election
	Client string // of the leader
}

func (h *handler) election(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	e, err := inspect.ElectionOf(r.ctx, h.client, name)
	p := &electionPage{Election: e}
	if e.Leader != nil {
		p.Client, _, _ = strings.Cut(e.Leader.ID, ":")
	}
	return p, err
}

func (h *handler) clients(r *request) (any, error) {
	c := h.crowd.look(r.ctx)
	return &c, c.Err
}

// cachesPage is the page of all caches, and of near maps.
type cachesPage struct {
	inspect.Census
	Rows []inspect.Cache
	More int // that are not listed
}

func (h *handler) caches(r *request) (any, error) {
	p := &cachesPage{Census: h.crowd.look(r.ctx)}
	all := p.Caches(nil)
	p.Rows = first(all, pageSize)
	p.More = len(all) - len(p.Rows)
	return p, p.Err
}

// cachePage is the page of a cache, and of the near map of its name.
type cachePage struct {
	inspect.Census
	Name  string
	Found []inspect.Cache
}

func (h *handler) cache(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	if err := h.reach(r.ctx); err != nil {
		return nil, err
	}
	r.begin()
	p := &cachePage{Census: h.crowd.look(r.ctx), Name: name}
	for _, one := range p.Caches(nil) {
		if one.Name == name {
			p.Found = append(p.Found, one)
		}
	}
	return p, p.Err
}

// clientPage is the page of a client.
type clientPage struct {
	redlatch.ClientReport
	Lost      []inspect.Loss
	Caches    []inspect.Cache // each with this client alone
	MoreHolds int             // that are not listed
	MoreWaits int             // the same
}

func (h *handler) one(r *request) (any, error) {
	id := r.query.Get("id")
	report, err := h.crowd.ask(r.ctx, id)
	if errors.Is(err, redlatch.ErrNotListening) {
		return nil, fmt.Errorf("%w: %w", errAbsent, err)
	}
	p := &clientPage{ClientReport: report, Lost: inspect.Losses(report), Caches: inspect.CachesOf(report)}
	p.Waits = first(p.Waits, pageSize)
	p.MoreWaits = p.WaitCount - len(p.Waits)
	p.MoreHolds = p.HoldCount - len(p.Holds)
	return p, err
}

// address returns that of the page of an object, or "" if there is none.
func address(kind, name string) string {
	page := kind
	switch kind {
	case kinds.Lock, kinds.FairLock, kinds.RWLock, kinds.MultiLock:
		page = "lock"
	case kinds.Semaphore, kinds.Permits:
		page = "semaphore"
	case kinds.Cache, kinds.Map:
		page = "cache"
	case kinds.Latch, kinds.Barrier, kinds.Queue, kinds.Executor, kinds.Scheduler, kinds.Election:
	default:
		return ""
	}
	return page + "?" + url.Values{"name": {name}}.Encode()
}
