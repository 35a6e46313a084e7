package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// errNoProgram is the error of a lock run without a program.
var errNoProgram = errors.New("say the program after --")

func (a *app) lockRun() *cobra.Command {
	var lease, wait time.Duration
	noWait := false
	cmd := &cobra.Command{
		Use: "run [flags] NAME -- PROGRAM [ARGUMENTS]", Short: "Run a program while holding a lock",
		Long: `Run a program while holding a lock, which is renewed until the program ends. If the lock is lost, the program gets
SIGTERM and the exit code is 76. If the lock is not acquired in time, the exit code is 75. A wait of more than a second says
on stderr who holds the lock.

Signals are passed on. In the foreground of a terminal SIGINT, SIGQUIT, SIGWINCH and SIGCONT are not: the terminal and the
shell send them to the program too. Send SIGTERM to signal this command alone.`,
		Example: "  redlatch lock run nightly -- ./report.sh\n  redlatch lock run nightly --no-wait -- ./report.sh",
		Args:    programAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			limited := cmd.Flags().Changed("wait")
			switch {
			case noWait && limited:
				return &exit{exitUsage, errors.New("--wait and --no-wait exclude each other")}
			case wait < 0:
				return &exit{exitUsage, errors.New("--wait must not be negative")}
			}
			noWait = noWait || limited && wait == 0
			return a.runUnder(cmd.Context(), args[0], args[1:], lease, wait, noWait)
		},
		ValidArgsFunction: a.nameThenProgram(lockKinds()),
	}
	cmd.Flags().DurationVar(&lease, "lease", 30*time.Second, "how long the lock stays held if this command dies")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the lock (default: as long as it takes)")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the lock")
	return cmd
}

// programAfterDash wants a name, and a program after --.
func programAfterDash(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return &exit{exitUsage, errNoProgram}
	}
	return nil
}

// nameThenProgram completes the name of an object of some kinds, and after that a program and what it is given.
func (a *app) nameThenProgram(kinds []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return a.names(kinds)(cmd, args, begun)
	}
}

// programPath returns where a program is. That it is not there, or cannot be run, has the exit code that shells give it.
func programPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &exit{exitNotFound, err}
	case err != nil:
		return "", &exit{exitCannotRun, err}
	}
	return path, nil
}

// runUnder runs a program under a lock.
func (a *app) runUnder(ctx context.Context, name string, program []string, lease, wait time.Duration, noWait bool) (failed error) {
	path, err := programPath(program[0])
	if err != nil {
		return err
	}
	c, closing, err := a.join(lease)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, closing()) }()
	lock := c.GetLock(name)
	acquire, opts := lock.TryLock, []rlock.Option{rlock.WithHolder()}
	if wait > 0 {
		acquire, opts = lock.Lock, append(opts, rlock.WithWait(wait))
	}
	return a.runWhile(ctx, exec.Command(path, program[1:]...), func(waiting context.Context) (*holding, error) {
		defer a.sayHolder(waiting, lock)()
		hold, err := acquire(waiting, opts...)
		if wait == 0 && !noWait && errors.Is(err, rlock.ErrNotAcquired) {
			hold, err = lock.Lock(waiting) // Redis has answered: a wait without a limit would not end where it does not
		}
		if err != nil {
			return nil, err
		}
		return &holding{hold.Context(), hold.Unlock}, nil
	})
}

// join connects as one that acquires, without the check of redlatch.Open: what Redis refuses, its calls say.
func (a *app) join(lease time.Duration) (c *redlatch.Client, closing func() error, err error) {
	rdb, err := a.connect()
	if err != nil {
		return nil, nil, err
	}
	c, err = redlatch.New(rdb, redlatch.WithNamePrefix(a.prefix), redlatch.WithWatchdogTimeout(lease),
		redlatch.WithLogger(slog.New(slog.NewTextHandler(a.err, nil))))
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return c, func() error { return errors.Join(c.Close(), rdb.Close()) }, nil
}

// holding is what a program runs under.
type holding struct {
	held    context.Context //nolint:containedctx // of the hold
	release func(context.Context) error
}

// runWhile acquires something, runs a program while it is held, and releases it. Until the program runs, SIGINT and SIGTERM give up;
// both also end ctx, a little earlier or later. From then on it gets them.
func (a *app) runWhile(ctx context.Context, child *exec.Cmd, acquire func(context.Context) (*holding, error)) error {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM) // the others end this process while it waits
	defer signal.Stop(signals)
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	waits := context.AfterFunc(ctx, giveUp)
	h, err := acquire(waiting)
	waits()
	if err != nil {
		return err
	}
	signal.Notify(signals, passedOn()...)
	child.Stdout, child.Stderr = a.out, a.err
	if a.in != nil {
		child.Stdin = a.in
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, h.release(context.WithoutCancel(ctx)))
	}
	if err := child.Start(); err != nil {
		return errors.Join(&exit{exitCannotRun, err}, h.release(context.WithoutCancel(ctx)))
	}
	early := len(signals) // which may have come before there was a child
	return h.watch(ctx, child, signals, func(s os.Signal) bool {
		early--
		return early >= 0 || !sentToAll(s, child.Process, a.tty)
	})
}

// watch passes signals on to a program, unless they have come to it too, and a loss, until it ends. Then it releases.
func (h *holding) watch(ctx context.Context, child *exec.Cmd, signals <-chan os.Signal, missed func(os.Signal) bool) error {
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }() // ends with the child
	lost := h.held.Done()
	for {
		select {
		case s := <-signals:
			if missed(s) {
				_ = child.Process.Signal(s) // it may have ended
			}
		case <-lost:
			lost = nil
			if errors.Is(context.Cause(h.held), rlock.ErrLost) {
				_ = terminate(child.Process)
			}
		case err := <-ended:
			why := context.Cause(h.held)
			switch released := h.release(context.WithoutCancel(ctx)); {
			case errors.Is(why, rlock.ErrLost):
				return &exit{exitLost, why}
			case errors.Is(released, rlock.ErrNotHeld):
				return &exit{exitLost, released}
			}
			return childEnded(err)
		}
	}
}

// sayHolder says who holds a lock, unless the result is called within a second.
func (a *app) sayHolder(ctx context.Context, lock *rlock.Lock) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
		switch s, err := lock.Holder(ctx); {
		case err != nil: // the wait goes on
		case s.Locked:
			_, _ = fmt.Fprintf(a.err, "redlatch: waiting for %q, held by %s\n", lock.Name(), oneLine(s.Owner)) // nobody reads what cannot be written
		default:
			_, _ = fmt.Fprintf(a.err, "redlatch: waiting for %q\n", lock.Name())
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// childEnded returns the exit code of a child.
func childEnded(err error) error {
	var status *exec.ExitError
	if !errors.As(err, &status) {
		return err
	}
	if w, ok := status.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return &exit{code: 128 + int(w.Signal())}
	}
	return &exit{code: status.ExitCode()}
}
