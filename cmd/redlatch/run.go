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
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// runOptions are those of lock run.
type runOptions struct {
	lease, wait, killAfter time.Duration
	noWait                 bool
}

func (a *app) lockRun() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use: "run [flags] NAME -- PROGRAM [ARGUMENTS]", Short: "Run a program while holding a lock",
		Long: `Run a program while holding a lock. The lock is renewed until the program and everything it has started have ended. If the
lock is lost, they get SIGTERM and the exit code is 76. If the lock is not acquired in time, the exit code is 75. A wait of
more than a second says on stderr who holds the lock.

Signals are passed on to the program and everything it has started, but SIGUSR1, SIGUSR2 and SIGALRM to the program alone.
In the foreground of a terminal SIGINT, SIGQUIT, SIGWINCH and SIGCONT are not passed on: the terminal and the shell send them
to the program too. What still runs --kill-after after SIGTERM, or after the loss, gets SIGKILL. Once the program has ended,
SIGINT, SIGHUP and SIGQUIT count as SIGTERM for what is left, also one that the program has ended by.

On Linux this includes daemons, if /proc shows them. On other systems what leaves the program's process group is not seen; on
a terminal only the program itself is: what it has started may outlive the lock. If this command gets SIGKILL, all of it goes
on, and the lock is free once the lease is over.`,
		Example: "  redlatch lock run nightly -- ./report.sh\n  redlatch lock run nightly --no-wait -- ./report.sh",
		Args:    checked(programAfterDash),
		RunE: func(cmd *cobra.Command, args []string) error {
			limited := cmd.Flags().Changed("wait")
			switch {
			case o.noWait && limited:
				return &exit{exitUsage, errors.New("--wait and --no-wait exclude each other")}
			case o.wait < 0:
				return &exit{exitUsage, errors.New("--wait must not be negative")}
			}
			o.noWait = o.noWait || limited && o.wait == 0
			return a.runUnder(cmd.Context(), args[0], args[1:], o)
		},
		ValidArgsFunction: a.nameThenProgram(lockKinds()),
	}
	cmd.Flags().DurationVar(&o.lease, "lease", 30*time.Second, "how long the lock stays held if this command dies")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "how long to wait for the lock (default: as long as it takes)")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "do not wait for the lock")
	killAfterFlag(cmd, &o.killAfter)
	return cmd
}

func killAfterFlag(cmd *cobra.Command, killAfter *time.Duration) {
	cmd.Flags().DurationVar(killAfter, "kill-after", 30*time.Second, "how long after SIGTERM what still runs gets SIGKILL; 0 is never")
}

// programAfterDash wants a name, and a program after --.
func programAfterDash(cmd *cobra.Command, args []string) error {
	switch before := cmd.ArgsLenAtDash(); {
	case before < 0 || before == len(args):
		return errors.New("missing program: write it after --")
	case before == 0:
		return errors.New("missing name: write it before --")
	case before > 1:
		return fmt.Errorf("one name is written before --, and not %d", before)
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
func (a *app) runUnder(ctx context.Context, name string, program []string, o runOptions) (failed error) {
	path, err := programPath(program[0])
	if err != nil {
		return err
	}
	c, closing, err := a.join(o.lease)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, closing()) }()
	lock := c.GetLock(name)
	acquire, opts := lock.TryLock, []rlock.Option{rlock.WithHolder()}
	if o.wait > 0 {
		acquire, opts = lock.Lock, append(opts, rlock.WithWait(o.wait))
	}
	return a.runWhile(ctx, exec.Command(path, program[1:]...), o.killAfter, func(waiting context.Context) (*holding, error) {
		defer a.sayHolder(waiting, lock)()
		hold, err := acquire(waiting, opts...)
		if o.wait == 0 && !o.noWait && errors.Is(err, rlock.ErrNotAcquired) {
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
func (a *app) runWhile(ctx context.Context, program *exec.Cmd, killAfter time.Duration, acquire func(context.Context) (*holding, error)) error {
	if killAfter < 0 {
		return &exit{exitUsage, errors.New("--kill-after must not be negative")}
	}
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
	program.Stdout, program.Stderr = a.out, a.err
	if a.in != nil {
		program.Stdin = a.in
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, h.release(context.WithoutCancel(ctx)))
	}
	r := &running{a: a, h: h, family: newFamily(program, a.tty), killAfter: killAfter}
	defer r.family.close()
	if err := program.Start(); err != nil {
		return errors.Join(&exit{exitCannotRun, err}, h.release(context.WithoutCancel(ctx)))
	}
	status := r.watch(signals)
	why := context.Cause(h.held)
	switch released := h.release(context.WithoutCancel(ctx)); {
	case errors.Is(why, rlock.ErrLost):
		return &exit{exitLost, why}
	case errors.Is(released, rlock.ErrNotHeld):
		return &exit{exitLost, released}
	}
	return childEnded(status)
}

// running is a program that runs while something is held.
type running struct {
	a         *app
	h         *holding
	family    *family
	killAfter time.Duration
	ended     bool             // the program has; what it has started may live
	told      bool             // they got SIGTERM
	kill      <-chan time.Time // says that this has not helped
}

// watch passes signals on, and a loss, until the program and what it has started have ended. It returns how the program ended.
func (r *running) watch(signals <-chan os.Signal) (status error) {
	early := len(signals) // which may have come before there was a program
	ended := make(chan error, 1)
	go func() { ended <- r.family.program.Wait() }() // ends with the program
	var look <-chan time.Time
	waited, killed := false, false // a line said so
	for lost := r.h.held.Done(); r.family.lives() || !r.ended; {
		select {
		case s := <-signals:
			group := 0
			if early--; early < 0 {
				group = toldByTerminal(s, r.a.tty)
			}
			r.pass(s.(syscall.Signal), group)
		case <-lost:
			lost = nil
			if errors.Is(context.Cause(r.h.held), rlock.ErrLost) {
				r.terminate()
			}
		case status = <-ended:
			r.ended, look = true, time.Tick(time.Second)
			if endedByUser(status) {
				r.terminate()
			}
		case <-r.kill:
			if !killed {
				r.a.hint("SIGKILL, %v after SIGTERM, to %s", r.killAfter, r.family.names())
			}
			r.family.signal(syscall.SIGKILL, 0)
			killed, r.kill = true, time.After(time.Second) // for what they were about to start
		case <-look:
			if !waited && !r.told {
				r.a.hint("the program has ended; waiting for what it has started: %s", r.family.names())
			}
			waited = true
		case <-r.family.changed:
		}
	}
	return status
}

// pass passes a signal on to those outside of a process group that has it already. If only what the program has started is left, it is
// to end by any signal that ends programs.
func (r *running) pass(s syscall.Signal, group int) {
	switch s {
	case syscall.SIGTERM:
		if !r.told && r.killAfter > 0 {
			r.kill = time.After(r.killAfter)
		}
		r.told = true
	case syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		if r.ended {
			r.terminate()
			return
		}
	}
	r.family.signal(s, group)
}

// terminate sends SIGTERM, unless that was done before.
func (r *running) terminate() {
	if !r.told {
		r.pass(syscall.SIGTERM, 0)
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
		switch s, err := lock.Info(ctx); {
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

// endedByUser reports whether a program has ended by a signal with which a user ends programs, or says so as shells do.
func endedByUser(status error) bool {
	var e *exit
	if !errors.As(childEnded(status), &e) {
		return false
	}
	return slices.Contains([]syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}, syscall.Signal(e.code-128))
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
