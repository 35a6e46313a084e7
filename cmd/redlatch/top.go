package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

// mostListed bounds the objects that the screen looks at.
const mostListed = 10_000

func (a *app) top() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top [PATTERN]", Short: "A live screen of locks, semaphores, latches and queues", Args: checked(cobra.MaximumNArgs(1)),
		Long: fmt.Sprintf(`A live screen of what is held, waited for and queued, of %d objects at the most.

Keys: w sorts by who wait, l by what is left of the lease, n by name, q by the length of queues; / filters by a
pattern; the arrows move, Enter shows one lock with its holders and waiters, Esc goes back, x ends.`, mostListed),
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
	byLeft    order = "lease"
	byName    order = "name"
	byLength  order = "queue"
)

func (by order) compare(a, b inspect.Summary) int {
	named := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	switch by {
	case byWaiting:
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), named)
	case byLeft:
		return cmp.Or(cmp.Compare(b.Left, a.Left), named)
	case byLength:
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), named)
	default:
		return named
	}
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
	one     *lockState
	err     error
	at      time.Time
}

// looked is what a look at the server has found.
type looked struct {
	all []inspect.Summary
	cut bool
	one *lockState
	err error
}

type again struct{}

func (s *screen) Init() tea.Cmd { return s.look() }

// look asks the server.
func (s *screen) look() tea.Cmd {
	pattern, name := s.pattern, ""
	if s.one != nil {
		name = s.one.Name
	}
	return func() tea.Msg {
		if name != "" {
			one, err := inspected(s.ctx, s.c, name)
			if err == nil {
				one.Ask(s.ctx, s.c)
			}
			return looked{one: &one, err: err}
		}
		var l looked
		for o, err := range s.c.Objects(s.ctx, pattern) {
			if err != nil {
				return looked{err: err}
			}
			if l.cut = len(l.all) == mostListed; l.cut {
				break
			}
			l.all = append(l.all, inspect.SummaryOf(o))
		}
		return l
	}
}

func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.height = msg.Height
	case looked:
		s.at, s.err = time.Now(), msg.err
		switch {
		case msg.err != nil: // what was seen last stays
		case msg.one == nil:
			s.all, s.cut = msg.all, msg.cut
		case s.one != nil && s.one.Name == msg.one.Name:
			s.one = msg.one
		}
		return s, tea.Tick(s.every, func(time.Time) tea.Msg { return again{} })
	case again:
		return s, s.look()
	case tea.KeyMsg:
		if s.typing {
			s.typed(msg)
			return s, nil
		}
		if key := msg.String(); key == "x" || key == "ctrl+c" {
			return s, tea.Quit
		}
		s.pressed(msg.String())
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

func (s *screen) pressed(key string) {
	switch key {
	case "w":
		s.by = byWaiting
	case "l":
		s.by = byLeft
	case "n":
		s.by = byName
	case "q":
		s.by = byLength
	case "/":
		s.typing = s.one == nil
	case "up", "k":
		s.cursor = max(0, s.cursor-1)
	case "down", "j":
		s.cursor = min(s.cursor+1, max(0, len(s.shown())-1))
	case "esc":
		s.one = nil
	case "enter":
		shown := s.shown()
		if s.cursor < len(shown) && strings.HasSuffix(shown[s.cursor].Kind, "lock") {
			s.one = &lockState{inspect.Lock{Name: shown[s.cursor].Name}}
		}
	}
}

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
		fmt.Fprintf(&b, "\n%s", safe(s.err.Error()))
	}
	b.WriteString("\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	err := s.body(w)
	if err := errors.Join(err, w.Flush()); err != nil {
		return err.Error()
	}
	b.WriteString("\nw waiting  l lease  n name  q queue  / filter  enter one lock  esc back  x end")
	return b.String()
}

func (s *screen) body(w *tabwriter.Writer) error {
	if s.one != nil {
		return s.one.write(w)
	}
	shown := s.shown()
	fit := max(1, s.height-6)
	from := max(0, s.cursor-fit+1)
	err := row(w, "", "KIND", "NAME", "WAITING", "STATE")
	for i, e := range shown[min(from, len(shown)):min(from+fit, len(shown))] {
		mark := " "
		if from+i == s.cursor {
			mark = ">"
		}
		err = errors.Join(err, row(w, mark, e.Kind, e.Name, inspect.Number(e.Waiting), e.State))
	}
	return err
}
