package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
)

const mostListed = 10_000 // objects that the screen looks at

func (a *app) top() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top [PATTERN]", Short: "A live screen of locks, semaphores, latches, barriers, queues and executors", Args: checked(cobra.MaximumNArgs(1)),
		Long: fmt.Sprintf(`A live screen of what is held, waited for and queued, of %d objects at the most.

FOR is for how long a lock or the first permit has been held, as its client says, of the first %d clients; of a queue or an
executor it is for how long the message has been due that has been due longest.

Keys: w sorts by how many wait, h by how long it is held, n by name, l by how far queues lag; / filters by a pattern; the
arrows move, Enter shows one object, such as a lock with its holders and waiters, Esc goes back, q quits.`, mostListed, askMost),
		Example: "  redlatch top 'orders:*'",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !a.terminal():
				return &exit{exitUsage, errors.New("top needs a terminal; ls and --json do not")}
			case every < 100*time.Millisecond:
				return &exit{exitUsage, errors.New("--every must be 100ms or more")}
			}
			c, err := a.look(cmd.Context())
			if err != nil {
				return err
			}
			s := &screen{ctx: cmd.Context(), c: c, every: every, by: byWaiting}
			if len(args) > 0 {
				s.pattern = args[0]
			}
			_, err = tea.NewProgram(s, tea.WithContext(cmd.Context()), tea.WithAltScreen(), tea.WithInput(a.in), tea.WithOutput(a.out)).Run()
			if errors.Is(err, tea.ErrProgramKilled) {
				return nil
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "how often to look")
	return cmd
}

// order is how the screen is sorted.
type order string

const (
	byWaiting order = "waiting"
	byHeld    order = "held for"
	byName    order = "name"
	byLag     order = "lag"
)

func (by order) compare(a, b inspect.Summary) int {
	named := inspect.ByName(a, b)
	switch by {
	case byWaiting:
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), named)
	case byHeld:
		return cmp.Or(unknownLast(a.Since, b.Since), a.Since.Compare(b.Since), named)
	case byLag:
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), cmp.Compare(b.Messages, a.Messages), named)
	default:
		return named
	}
}

// unknownLast puts a time that is not known after one that is.
func unknownLast(a, b time.Time) int {
	switch {
	case a.IsZero() == b.IsZero():
		return 0
	case a.IsZero():
		return 1
	}
	return -1
}

// screen is what top shows.
type screen struct {
	ctx   context.Context //nolint:containedctx // of the command
	c     *redlatch.Client
	every time.Duration

	pattern string // of the names that are asked for
	by      order
	filter  string // a pattern of the names that are shown
	typing  bool   // the filter
	cursor  int
	height  int
	all     []inspect.Summary
	cut     bool // there are more than all
	one     *opened
	above   int // lines of it that are above the screen
	err     error
	at      time.Time
}

// opened is the one object that is shown.
type opened struct {
	kind, name string
	write      func(w io.Writer) error // nil before the first look
}

// looked is what a look at the server has found.
type looked struct {
	all []inspect.Summary // also if some queues did not say how far they lag
	cut bool
	one *opened
	err error

	between bool // the next look is appointed already
}

type again struct{}

func (s *screen) Init() tea.Cmd { return s.look() }

// look asks the server.
func (s *screen) look() tea.Cmd {
	if s.one == nil {
		return func() tea.Msg { return s.lookAtAll() }
	}
	one := *s.one
	return func() tea.Msg {
		write, err := details(s.ctx, s.c, one.kind, one.name)
		one.write = write
		return looked{one: &one, err: err}
	}
}

// lookAtAll asks for all objects, and meanwhile clients since when they hold what they hold.
func (s *screen) lookAtAll() (l looked) {
	ages := make(chan inspect.Ages, 1)
	go func() { // ends within a second
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		said := inspect.CensusOf(ctx, s.c, askMost)
		ages <- said.Ages()
	}()
	for o, err := range s.c.Objects(s.ctx, s.pattern) {
		if err != nil {
			<-ages
			return looked{err: err}
		}
		if l.cut = len(l.all) == mostListed; l.cut {
			break
		}
		l.all = append(l.all, inspect.SummaryOf(o))
	}
	known := <-ages
	for i := range l.all {
		l.all[i].Learn(known)
	}
	return l
}

// details asks for all there is to say of an object, and returns what writes it.
func details(ctx context.Context, c *redlatch.Client, kind, name string) (write func(w io.Writer) error, err error) {
	switch kind {
	case kinds.Semaphore, kinds.Permits:
		info, err := inspect.Permits(ctx, c, name)
		return func(w io.Writer) error { return writeSemaphore(w, info) }, err
	case kinds.Latch:
		info, err := c.GetCountDownLatch(name).Info(ctx)
		return func(w io.Writer) error { return writeLatch(w, info) }, err
	case kinds.Queue, kinds.Executor:
		n, err := numbersOf(ctx, inspect.MessagesOf(c, inspect.Object{Kind: kind, Name: name}))
		return n.write, err
	case kinds.Barrier:
		b, err := inspect.BarriersOf(ctx, c, name)
		return func(w io.Writer) error { return writeBarriers(w, b) }, err
	case kinds.Election:
		s, err := electionOf(ctx, c, name)
		return s.write, err
	case kinds.Cache:
		all, err := cachesOf(ctx, c, []string{name}, 0)
		return func(w io.Writer) error {
			if len(all) == 0 {
				return row(w, kinds.Words(kind), name)
			}
			return writeEach(w, all)
		}, err
	case kinds.Scheduler:
		jobs, err := c.GetScheduler(name).Jobs(ctx)
		return func(w io.Writer) error { return writeJobs(w, jobs) }, err
	}
	l, err := inspected(ctx, c, name)
	if err == nil {
		l.Ask(ctx, c)
	}
	return l.write, err
}

func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.height = msg.Height
	case looked:
		s.at, s.err = time.Now(), msg.err
		switch {
		case msg.err != nil && msg.all == nil: // what was seen last stays
		case msg.one == nil:
			s.all, s.cut = msg.all, msg.cut
		case s.one != nil && s.one.kind == msg.one.kind && s.one.name == msg.one.name:
			s.one = msg.one
		}
		if msg.between {
			return s, nil
		}
		return s, tea.Tick(s.every, func(time.Time) tea.Msg { return again{} })
	case again:
		return s, s.look()
	case tea.KeyMsg:
		switch key := msg.String(); {
		case key == "ctrl+c", key == "q" && !s.typing:
			return s, tea.Quit
		case s.typing:
			s.typed(msg)
		default:
			return s, s.pressed(key)
		}
	}
	return s, nil
}

// typed takes a key of the filter.
func (s *screen) typed(msg tea.KeyMsg) {
	switch msg.Type {
	case tea.KeyEnter:
		s.typing = false
	case tea.KeyEsc:
		s.typing, s.filter = false, ""
	case tea.KeyBackspace:
		if runes := []rune(s.filter); len(runes) > 0 {
			s.filter = string(runes[:len(runes)-1])
		}
	case tea.KeyRunes, tea.KeySpace:
		s.filter += string(msg.Runes)
	}
	s.cursor = 0
}

// pressed takes a key. What is opened is asked for at once.
func (s *screen) pressed(key string) tea.Cmd {
	switch key {
	case "w":
		s.by = byWaiting
	case "h":
		s.by = byHeld
	case "n":
		s.by = byName
	case "l":
		s.by = byLag
	case "/":
		s.typing = s.one == nil
	case "up", "k":
		s.move(-1)
	case "down", "j":
		s.move(1)
	case "esc":
		s.one = nil
	case "enter":
		shown := s.shown()
		if s.one == nil && s.cursor < len(shown) {
			s.one, s.above = &opened{kind: shown[s.cursor].Kind, name: shown[s.cursor].Name}, 0
			look := s.look()
			return func() tea.Msg {
				found, _ := look().(looked)
				found.between = true
				return found
			}
		}
	}
	return nil
}

// move moves the cursor in the list, or what is shown of one object.
func (s *screen) move(by int) {
	if s.one != nil {
		s.above = max(0, min(s.above+by, len(s.lines())-s.fit()))
		return
	}
	s.cursor = max(0, min(s.cursor+by, len(s.shown())-1))
}

// fit returns how many lines there are on the screen for the list with its heading, or for one object.
func (s *screen) fit() int { return max(2, s.height-5) }

// shown returns the entries that the filter lets through, in order.
func (s *screen) shown() []inspect.Summary {
	var some []inspect.Summary
	for _, e := range s.all {
		matches, err := path.Match(s.filter, e.Name)
		if s.filter == "" || err == nil && matches || strings.Contains(e.Name, s.filter) {
			some = append(some, e)
		}
	}
	slices.SortFunc(some, s.by.compare)
	return some
}

func (s *screen) View() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redlatch top  %s  by %s", s.at.Format(time.TimeOnly), s.by)
	if s.filter != "" || s.typing {
		fmt.Fprintf(&b, "  filter: %s", safe(s.filter))
	}
	if s.cut {
		fmt.Fprintf(&b, "  the first %d", mostListed)
	}
	if s.err != nil {
		fmt.Fprintf(&b, "\n%s", inspect.FirstLine(safe(s.err.Error()))) // which is cut to the width, as all lines are
	}
	b.WriteString("\n\n")
	lines, more := s.lines(), ""
	if fit := s.fit(); len(lines) > fit {
		from := min(s.above, len(lines)-fit)
		if below := len(lines) - from - fit; below > 0 {
			fit--
			more = fmt.Sprintf("%s lines\n", inspect.More(below+1))
		}
		lines = lines[from : from+fit]
	}
	b.WriteString(strings.Join(lines, "") + more)
	b.WriteString("\nw waiting  h held for  n name  l lag of queues  / filter  enter one object  esc back  q quit")
	return b.String()
}

// lines returns what there is between the heading and the keys: as much of the list as is shown, or all that there is of one object.
func (s *screen) lines() []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if err := errors.Join(s.body(w), w.Flush()); err != nil {
		return []string{err.Error() + "\n"}
	}
	return slices.Collect(strings.Lines(b.String()))
}

func (s *screen) body(w *tabwriter.Writer) error {
	switch {
	case s.one == nil:
	case s.one.write == nil:
		return row(w, kinds.Words(s.one.kind), s.one.name)
	default:
		return s.one.write(w)
	}
	shown := s.shown()
	fit := s.fit() - 1
	from := max(0, s.cursor-fit+1)
	err := row(w, "", "KIND", "NAME", "WAITING", "FOR", "STATE")
	for i, e := range shown[min(from, len(shown)):min(from+fit, len(shown))] {
		mark := " "
		if from+i == s.cursor {
			mark = ">"
		}
		lasts := age(e.Since)
		if e.Lag > 0 {
			lasts = e.Lag.Round(time.Second).String()
		}
		err = errors.Join(err, row(w, mark, kinds.Words(e.Kind), e.Name, inspect.Number(e.Waiting), lasts, e.State))
	}
	return err
}
