package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
)

func (a *app) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls [PATTERN]", Short: "List locks that are held, semaphores, latches, barriers, queues, executors, elections, schedulers and caches",
		Long: `List locks that are held, semaphores, latches, barriers, queues, executors, elections, schedulers and caches. FOR is for how
long a lock, or the first permit, has been held, as its client says; the first 100 clients are asked.`,
		Example: "  redlatch ls 'orders:*'",
		Args:    checked(cobra.MaximumNArgs(1)),
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			pattern := ""
			if len(args) > 0 {
				pattern = args[0]
			}
			said, _ := census(ctx, c) // whoever may not ask clients sees the rest
			ages := said.Ages()
			if a.json {
				for o, err := range c.Objects(ctx, pattern) {
					if err == nil {
						s := inspect.SummaryOf(o)
						s.Learn(ages)
						err = a.print(object{o, s.Since}, nil)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}
			return a.table(a.out, func(w io.Writer) error { return objects(w, c.Objects(ctx, pattern), ages) })
		}),
	}
}

// object is what ls prints as JSON.
type object struct {
	redlatch.Object
	Since time.Time
}

// objects writes a table of objects, a page at a time.
func objects(w io.Writer, all iter.Seq2[redlatch.Object, error], ages inspect.Ages) error {
	err := row(w, "KIND", "NAME", "FOR", "STATE")
	n := 0
	for o, failed := range all {
		if failed != nil {
			return failed
		}
		s := inspect.SummaryOf(o)
		s.Learn(ages)
		if err = errors.Join(err, row(w, kinds.Words(s.Kind), s.Name, age(s.Since), s.State)); err != nil {
			return err
		}
		if n++; n%100 == 0 {
			err = w.(*tabwriter.Writer).Flush()
		}
	}
	return err
}

// age is for how long something has been held, as a table shows it: nothing if that is not known.
func age(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return time.Since(since).Round(time.Second).String()
}

const (
	askFor  = 3 * time.Second // for how long clients are asked
	askMost = 100             // of them
	seekFor = time.Second     // for how long locks are looked at whose holders do not listen
)

// member is a client as clients lists it.
type member struct {
	ID, Name string
	Listens  bool // else it is known as the owner of a lock only
	Answers  bool
	Host     string
	PID      int
	Up       time.Duration
	Holds    int
	Waits    int
	Lost     int
}

func (m member) write(w io.Writer) error {
	switch {
	case m.Answers:
		return row(w, m.Name, m.ID, m.Holds, m.Waits, m.Lost, m.Host, m.PID, m.Up.Round(time.Second))
	case m.Listens:
		return row(w, m.Name, m.ID, "", "", "", "does not answer, or was not asked")
	}
	return row(w, m.Name, m.ID, "", "", "", "holds a lock, and does not listen")
}

func (a *app) clients() *cobra.Command {
	return &cobra.Command{
		Use: "clients", Short: "List the clients that hold or wait for something, or read caches", Example: "  redlatch clients", Args: exactly(0),
		Long: `List the clients that hold or wait for something, or read caches, and how much they hold. The first 100 are asked. A client
listens once it has done so for three seconds, unless it has redlatch.WithoutPresence; one that works
in short turns may be missing. Of others those are listed that hold a lock, if a look of a second at the locks finds it.`,
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, _ []string) error {
			all, err := members(ctx, c)
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) error {
				err := row(w, "NAME", "ID", "HOLDS", "WAITS", "LOST", "HOST", "PID", "UP")
				for _, one := range all {
					err = errors.Join(err, one.write(w))
				}
				return err
			})
		}),
	}
}

// members returns the clients that listen, and those that hold a lock and do not listen.
func members(ctx context.Context, c *redlatch.Client) ([]member, error) {
	said, err := census(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []member
	known := map[string]bool{}
	for _, one := range said.Clients {
		m := member{ID: one.ID, Name: one.Name, Listens: true}
		if r, ok := said.Reports[one.ID]; ok {
			m.Answers, m.Host, m.PID, m.Up, m.Holds, m.Waits, m.Lost = true, r.Host, r.PID, r.Up, r.HoldCount, r.WaitCount, r.LossCount
		}
		all, known[one.ID] = append(all, m), true
	}
	ctx, cancel := context.WithTimeout(ctx, seekFor)
	defer cancel()
	for o, err := range c.Objects(ctx, "", redlatch.WithKinds(append(lockKinds(), kinds.Election)...)) {
		if err != nil {
			break // there are too many, or the user may not look: the clients that listen are known
		}
		for _, id := range inspect.SummaryOf(o).Clients {
			if !known[id] {
				known[id] = true
				all = append(all, member{ID: id, Name: nameOf(id)})
			}
		}
	}
	return all, nil
}

func census(ctx context.Context, c *redlatch.Client) (inspect.Census, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	said := inspect.CensusOf(ctx, c, askMost)
	return said, said.Err
}

// nameOf returns the name in a client's id.
func nameOf(id string) string {
	if i := strings.LastIndexByte(id, '.'); i >= 0 {
		return id[:i]
	}
	return ""
}

func (a *app) aClient() *cobra.Command {
	return &cobra.Command{
		Use: "client ID|NAME", Short: "What a client holds and waits for, what it has lost, and how its caches do", Args: exactly(1),
		Long: `What a client holds and waits for, what it has lost, and how its caches do, see "cache stats". Its name does for its id if there is one client of that name; so
does the id of an owner, or of a permit, that it holds. It lists the 1,000 holds that it has held longest, and the
1,000 calls that have waited longest.`,
		Example: "  redlatch client billing\n  redlatch client billing.31ceeae1b6d81fa3",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, args []string) error {
			id, err := clientID(ctx, c, args[0])
			if err != nil {
				return err
			}
			r, err := c.Ask(ctx, id)
			if errors.Is(err, redlatch.ErrNotListening) {
				err = &exit{exitFailed, fmt.Errorf("%s does not listen: it does not yet (%s), is gone, has done nothing for a while, or has redlatch.WithoutPresence", id, whenListens)}
			}
			if err != nil {
				return err
			}
			return a.print(answer{r, inspect.Losses(r)}, func(w io.Writer) error { return writeClient(w, r) })
		}),
	}
}

// answer is what a client says, as JSON.
type answer struct {
	redlatch.ClientReport
	Losses []inspect.Loss
}

const whenListens = "a client listens after 3 s of use"

// permitID is the length of the id of a leased permit, which begins with the digits that the id of its client ends with.
const permitID = 32

// clientID returns the id of the client that is meant: by its id, an owner id, a permit id, or its name.
func clientID(ctx context.Context, c *redlatch.Client, given string) (string, error) {
	id, _, _ := strings.Cut(given, ":")
	if core.IsClientID(id) {
		return id, nil
	}
	all, err := c.Clients(ctx)
	if err != nil {
		return "", err
	}
	var named, ids []string
	for _, one := range all {
		ids = append(ids, one.ID)
		if one.Name == given || len(given) == permitID && strings.HasSuffix(one.ID, "."+given[:permitID/2]) {
			named = append(named, one.ID)
		}
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) > 1:
		return "", &exit{exitUsage, fmt.Errorf("there are several clients %q:\n%s", given, strings.Join(named, "\n"))}
	case len(ids) == 0:
		return "", &exit{exitFailed, fmt.Errorf("no client %q listens, and no other; %s", given, whenListens)}
	}
	return "", &exit{exitFailed, fmt.Errorf("no client %q listens (%s); there are:\n%s", given, whenListens, strings.Join(ids, "\n"))}
}

// writeClient writes what a client says.
func writeClient(w io.Writer, r redlatch.ClientReport) error {
	err := errors.Join(row(w, "client", r.ID), row(w, "host", r.Host), row(w, "pid", r.PID), row(w, "up", r.Up),
		row(w, "version", r.Version+" "+r.Go), row(w, "holds", r.HoldCount), row(w, "waits", r.WaitCount), row(w, "lost", r.LossCount))
	if len(r.Holds) > 0 {
		err = errors.Join(err, row(w), row(w, "HOLDS", "NAME", "FOR", "LEFT", "RENEWED", "OWNER", "AT"))
	}
	for _, h := range r.Holds {
		owner := strings.TrimPrefix(h.Owner, r.ID)
		err = errors.Join(err, row(w, strings.TrimSpace(kinds.Words(h.Kind)+" "+h.Mode), h.Name, time.Since(h.Since), h.Left, h.Renewed, owner, h.Site))
	}
	err = errors.Join(err, more(w, r.HoldCount-len(r.Holds)))
	if len(r.Waits) > 0 {
		err = errors.Join(err, row(w), row(w, "WAITS FOR", "NAME", "FOR", "AT"))
	}
	for _, one := range r.Waits {
		err = errors.Join(err, row(w, kinds.Words(one.Kind), one.Name, time.Since(one.Since), one.Site))
	}
	err = errors.Join(err, more(w, r.WaitCount-len(r.Waits)), writeClientCaches(w, r))
	if len(r.Losses) > 0 {
		err = errors.Join(err, row(w), row(w, "LOST", "NAME", "NOTICED", "AGO", "HELD FOR", "AT", "CAUSE"))
	}
	for _, l := range inspect.Losses(r) {
		cause := l.Cause
		if l.Failover != "" {
			cause += "; " + l.Failover + " failed over or restarted at about that time"
		}
		err = errors.Join(err, row(w, kinds.Words(l.Kind), l.Name, l.At.UTC().Format(time.RFC3339), time.Since(l.At), l.Held, l.Site, cause))
	}
	return err
}
