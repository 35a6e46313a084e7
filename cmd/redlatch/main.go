// Command redlatch looks at the locks, semaphores, latches, barriers and queues in Redis, operates them, and runs programs under a lock.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// The exit codes, beside those of the child of lock run.
const (
	exitFailed      = 1  // what was asked for failed, or is not there
	exitUsage       = 2  // wrong arguments
	exitUnavailable = 69 // Redis did not answer, or refuses writes
	exitTaken       = 75 // somebody else has the lock, or a task has not ended yet
	exitLost        = 76 // the lock was lost while the child ran
	exitTaskFailed  = 77 // a task has failed for good
	exitCancelled   = 78 // a task was cancelled
	exitExpired     = 79 // a task was not begun in time
	exitCannotRun   = 126
	exitNotFound    = 127
)

func main() {
	redis.SetLogger(silent{})                               // what it would say of connections, the errors say
	ctx, stop := signal.NotifyContext(context.Background(), //nolint:forbidigo // ends with the command
		os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], &environment{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, tty: "/dev/tty"})
	stop()
	os.Exit(code)
}

// environment is what the command is started with.
type environment struct {
	in       *os.File
	out, err io.Writer
	getenv   func(string) string
	tty      string // the terminal that sends it signals, if there is one
}

// terminal reports whether somebody sits there who can answer.
func (e *environment) terminal() bool { return e.in != nil && term.IsTerminal(int(e.in.Fd())) }

// app is one run of the command.
type app struct {
	*environment
	url    string
	prefix string
	json   bool
	client *redlatch.Client
}

// exit is an error with an exit code. Without a text nothing is printed.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// run runs the command and returns its exit code.
func run(ctx context.Context, args []string, e *environment) int {
	a := &app{environment: e}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(e.in)
	root.SetOut(e.out)
	root.SetErr(e.err)
	refuseArguments(root) // cobra's command keeps the output that there is now
	err := root.ExecuteContext(ctx)
	if a.client != nil {
		err = errors.Join(err, a.client.Close())
	}
	if err == nil {
		return 0
	}
	if text := strings.TrimPrefix(err.Error(), "redlatch: "); text != "" {
		_, _ = fmt.Fprintln(e.err, "redlatch:", safe(text)) // nobody reads what cannot be written
	}
	return codeOf(err)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func codeOf(err error) int {
	var e *exit
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrUnknown):
		return exitUnavailable
	case errors.Is(err, rlock.ErrNotAcquired):
		return exitTaken
	case errors.Is(err, redlatch.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "redlatch",
		Short: "Look at redlatch's locks, semaphores, latches, barriers and queues in Redis, and operate them",
		Long: `Look at redlatch's locks, semaphores, latches, barriers and queues in Redis, and operate them.

The server is that of -u, or else of the variable REDIS_URL, or else redis://localhost:6379. Where the programs have
redlatch.WithNamePrefix, give the same with --prefix, or in REDLATCH_PREFIX: names are then those of the programs, and only
clients of that prefix can be asked what they hold.

Exit codes: 0 done; 1 failed, or not there; 2 wrong arguments; 69 Redis did not answer, or refuses writes; 75 somebody else
has the lock; 76 the lock was lost; those of "exec get" are in its help. "lock run" passes on that of its child, and 128 and the number for a signal;
126 if the program cannot be run, 127 if it is not found. "elect run" does likewise.

With --json, "redlatch ls", "watch" and "tail" print an object on each line, and the others one value, which is an array
where it is a list. Durations are texts such as "1.5s"; a time that is not known is null.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version(),
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	flags := root.PersistentFlags()
	flags.StringVarP(&a.url, "url", "u", "", "the server's URL, as redis://user:password@host:6379/0 (default $REDIS_URL)")
	flags.StringVar(&a.prefix, "prefix", a.getenv("REDLATCH_PREFIX"), "the name prefix of the programs (default $REDLATCH_PREFIX)")
	flags.Lookup("prefix").DefValue = "" // so that the help is the same everywhere
	flags.BoolVar(&a.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exit{exitUsage, err} })
	root.AddCommand(a.ls(), a.lock(), a.sem(), a.latch(), a.barrier(), a.queue(), a.exec(), a.cache(), a.sched(), a.elect(), a.clients(), a.aClient(), a.top(), a.web(), a.doctor())
	return root
}

// group is a command that only has others, whose first arguments are names of objects of some kinds.
func (a *app) group(use, short string, kinds []string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, verb := range verbs {
		if verb.ValidArgsFunction == nil {
			verb.ValidArgsFunction = a.names(kinds)
		}
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// version is that of the module that was built.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// refuseArguments has the completion command, which is cobra's, refuse what it does not know as the others do.
func refuseArguments(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args, cmd.RunE = noSuchCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range cmd.Commands() {
			shell.Args = exactly(0)
		}
	}
}

// noSuchCommand refuses arguments of a command that only has others, and says which of those may have been meant.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		text += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return &exit{exitUsage, errors.New(text)}
}

// server is the URL of the server.
func (a *app) server() (string, error) {
	server := cmp.Or(a.url, a.getenv("REDIS_URL"), "redis://localhost:6379")
	for _, scheme := range []string{"redis:", "rediss:", "unix:"} {
		if strings.HasPrefix(strings.ToLower(server), scheme) {
			return server, nil
		}
	}
	if strings.Contains(server, "://") {
		return "", &exit{exitUsage, errors.New("the URL must begin with redis://, rediss:// or unix://")}
	}
	if strings.ContainsAny(server, "@?/") { // it may have a password
		server = "user:password@host:6379"
	}
	return "", &exit{exitUsage, fmt.Errorf("the URL has no scheme: write redis://%s", server)}
}

// lookQuietly connects without showing up among the clients.
func (a *app) lookQuietly(ctx context.Context) (*redlatch.Client, error) {
	return a.open(ctx, redlatch.WithClientName("redlatch"), redlatch.WithoutPresence(), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
}

// look connects as lookQuietly does, and says so if the prefix may be wrong.
func (a *app) look(ctx context.Context) (*redlatch.Client, error) {
	c, err := a.lookQuietly(ctx)
	if err == nil {
		a.hintAtPrefix(ctx, c)
	}
	return c, err
}

// hint says something beside what the command prints, in one line.
func (a *app) hint(format string, args ...any) {
	_, _ = fmt.Fprintln(a.err, "redlatch:", oneLine(fmt.Sprintf(format, args...))) // nobody reads what cannot be written
}

// looking runs a command that connects by look.
func (a *app) looking(do func(ctx context.Context, c *redlatch.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.look(cmd.Context())
		if err != nil {
			return err
		}
		if a.prefix != "" && len(args) > 0 && strings.HasPrefix(args[0], a.prefix) {
			a.hint("%q begins with the prefix: names are given without it", args[0])
		}
		return do(cmd.Context(), c, args)
	}
}

func (a *app) open(ctx context.Context, opts ...redlatch.Option) (*redlatch.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := append([]redlatch.Option{redlatch.WithNamePrefix(a.prefix)}, opts...)
	server, err := a.server()
	if err != nil {
		return nil, err
	}
	c, err := redlatch.Open(ctx, server, all...)
	a.client = c
	return c, err
}

// checked gives wrong arguments their exit code, and says which are right.
func checked(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &exit{exitUsage, fmt.Errorf("%w\nusage: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

func exactly(n int) cobra.PositionalArgs { return checked(cobra.ExactArgs(n)) }

// confirm asks before something is taken away. Without a terminal it wants yes.
func (a *app) confirm(ctx context.Context, yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !a.terminal():
		return &exit{exitUsage, errors.New("this takes something away: say --yes")}
	}
	if _, err := fmt.Fprintf(a.err, "%s [y/N] ", safe(question)); err != nil {
		return err
	}
	answered := make(chan string, 1)
	go func() { // ends with an answer, or with the process
		var answer string
		_, _ = fmt.Fscanln(a.in, &answer) // an empty line is no
		answered <- answer
	}()
	select {
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		_, _ = fmt.Fprintln(a.err) // after the question; nobody reads what cannot be written
	}
	return &exit{exitFailed, errors.New("nothing was done")}
}
