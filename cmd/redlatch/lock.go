package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlock"
)

func (a *app) lock() *cobra.Command {
	lock := &cobra.Command{Use: "lock", Short: "Look at a lock, free it, or run a program under it", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	lock.AddCommand(a.lockInfo(), a.lockForce(), a.lockRun())
	return lock
}

// held is what is shown of a lock.
type held struct {
	rlock.Info
	Queue []rfairlock.Waiter
}

// look asks for the state of a lock; the queue is that of a fair one.
func look(ctx context.Context, c *redlatch.Client, name string) (held, error) {
	info, err := c.GetLock(name).Info(ctx)
	if err != nil {
		return held{}, err
	}
	fair, err := c.GetFairLock(name).Info(ctx)
	return held{Info: info, Queue: fair.Queue}, err
}

func (a *app) lockInfo() *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Who holds a lock, and who waits", Example: "  redlatch lock info orders", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			info, err := look(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			hold := a.ask(cmd.Context(), c, info)
			return a.print(info, func(w io.Writer) error { return describe(w, info, hold) })
		},
	}
}

// ask asks the holder of a lock about it; nil if it does not answer, as Java.
func (a *app) ask(ctx context.Context, c *redlatch.Client, info held) *redlatch.HoldInfo {
	if !info.Locked {
		return nil
	}
	report, err := c.Ask(ctx, info.Client)
	if err != nil {
		return nil
	}
	for _, h := range report.Holds {
		if h.Owner == info.Owner && h.Name == info.Name {
			return &h
		}
	}
	return nil
}

func describe(w io.Writer, info held, hold *redlatch.HoldInfo) error {
	if !info.Locked {
		return errors.Join(row(w, "lock", info.Name), row(w, "held", "no"), row(w, "waiting", info.Waiting))
	}
	err := errors.Join(row(w, "lock", info.Name), row(w, "held by", info.Owner), row(w, "levels", info.Levels),
		row(w, "lease left", info.Left), row(w, "waiting", info.Waiting))
	if info.Token != 0 {
		err = errors.Join(err, row(w, "token", info.Token))
	}
	if hold != nil {
		err = errors.Join(err, row(w, "held for", time.Since(hold.Since)), row(w, "renewed", hold.Renewed))
		if hold.Site != "" {
			err = errors.Join(err, row(w, "acquired at", hold.Site))
		}
	}
	for i, waiter := range info.Queue {
		err = errors.Join(err, row(w, fmt.Sprintf("waiter %d", i+1), waiter.Owner))
	}
	return err
}

func (a *app) lockForce() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "force NAME", Short: "Free a lock, whoever holds it", Args: exactly(1),
		Long: `Free a lock, whoever holds it, and wake its waiters. The holder's work goes on until its next renewal, up to a third of its
lease later: until then two may work at the same time. If the holder's process is dead, wait for the lease instead.`,
		Example: "  redlatch lock force orders",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			info, err := look(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if !info.Locked {
				return &exit{exitFailed, fmt.Errorf("nobody holds %q", args[0])}
			}
			if err := a.confirm(yes, fmt.Sprintf("free %q, which %q holds?", args[0], info.Owner)); err != nil {
				return err
			}
			freed, err := c.GetLock(args[0]).ForceUnlock(cmd.Context())
			if err == nil && !freed {
				err = &exit{exitFailed, fmt.Errorf("nobody holds %q any more", args[0])}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// errNoProgram is the error of a lock run without a program.
var errNoProgram = errors.New("say the program after --")

func (a *app) lockRun() *cobra.Command {
	var lease, wait time.Duration
	noWait := false
	cmd := &cobra.Command{
		Use: "run NAME -- PROGRAM [ARGUMENTS]", Short: "Run a program while holding a lock",
		Long: `Run a program while holding a lock, which is renewed until the program ends. Signals are passed on. If the lock is lost, the
program gets SIGTERM and the exit code is 76. If the lock is not acquired in time, the exit code is 75.`,
		Example: "  redlatch lock run nightly -- ./report.sh\n  redlatch lock run nightly --no-wait -- ./report.sh",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return &exit{exitUsage, errNoProgram}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if noWait && cmd.Flags().Changed("wait") {
				return &exit{exitUsage, errors.New("--wait and --no-wait exclude each other")}
			}
			return a.runUnder(cmd.Context(), args[0], args[1:], lease, wait, noWait)
		},
	}
	cmd.Flags().DurationVar(&lease, "lease", 30*time.Second, "how long the lock stays held if this command dies")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the lock (default: as long as it takes)")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the lock")
	return cmd
}

// runUnder runs a program under a lock.
func (a *app) runUnder(ctx context.Context, name string, program []string, lease, wait time.Duration, noWait bool) error {
	path, err := exec.LookPath(program[0])
	if err != nil {
		return &exit{127, err}
	}
	c, err := a.open(ctx, redlatch.WithWatchdogTimeout(lease))
	if err != nil {
		return err
	}
	lock := c.GetLock(name)
	acquire, opts := lock.Lock, []rlock.Option{rlock.WithHolder()}
	if wait > 0 {
		opts = append(opts, rlock.WithWait(wait))
	}
	if noWait {
		acquire = lock.TryLock
	}
	hold, err := acquire(ctx, opts...)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	child := exec.Command(path, program[1:]...)
	child.Stdin, child.Stdout, child.Stderr = a.in, a.out, a.err
	if err := child.Start(); err != nil {
		return errors.Join(&exit{126, err}, hold.Unlock(context.WithoutCancel(ctx)))
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }() // ends with the child
	lost := hold.Context().Done()
	for {
		select {
		case s := <-signals:
			_ = child.Process.Signal(s) // it may have ended
		case <-lost:
			lost = nil
			if errors.Is(context.Cause(hold.Context()), rlock.ErrLost) {
				_ = child.Process.Signal(syscall.SIGTERM)
			}
		case err := <-ended:
			unlocked := hold.Unlock(context.WithoutCancel(ctx))
			if errors.Is(unlocked, rlock.ErrNotHeld) {
				return &exit{exitLost, fmt.Errorf("the lock was lost: %w", context.Cause(hold.Context()))}
			}
			return childEnded(err)
		}
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
