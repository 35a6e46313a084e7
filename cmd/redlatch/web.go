package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/console"
)

func (a *app) web() *cobra.Command {
	addr, actions, payloads := "", false, false
	cmd := &cobra.Command{
		Use: "web", Short: "Serve the console to browsers on this machine", Args: exactly(0),
		Long: `Serve the console to browsers on this machine, and print its URL, until it is interrupted. It has no login: whoever is on
this machine can read it, and with --actions free locks and change queues.`,
		Example: "  redlatch web --addr 127.0.0.1:8080",
		RunE: a.looking(func(ctx context.Context, c *redlatch.Client, _ []string) error {
			var opts []console.Option
			if actions {
				opts = append(opts, console.WithActions(func(*http.Request, console.Action) error { return nil }))
			}
			if payloads {
				opts = append(opts, console.WithPayloads())
			}
			return a.serve(ctx, addr, console.Handler(c, opts...))
		}),
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "a loopback address; port 0 is any that is free")
	cmd.Flags().BoolVar(&actions, "actions", false, "let browsers free locks and change queues")
	payloadFlag(cmd, &payloads)
	return cmd
}

// serve serves a handler on a loopback address until ctx ends.
func (a *app) serve(ctx context.Context, addr string, h http.Handler) error {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &exit{exitUsage, fmt.Errorf("%q is no loopback address with a port, as 127.0.0.1:8080", addr)}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	requests, end := context.WithCancel(ctx)
	defer end()
	s := &http.Server{
		Handler: local(h), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	url := "http://" + l.Addr().String() + "/"
	if err := a.print(struct{ URL string }{url}, func(w io.Writer) error { return row(w, url) }); err != nil {
		return errors.Join(err, l.Close())
	}
	ended := make(chan error, 1) // of Serve
	go func() { ended <- s.Serve(l) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		end() // pages that are open are requests
		err = s.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	return err
}

// local refuses requests for other hosts: a page of the internet may have its own name point at this machine, and would read the
// answers.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this is the console of another host", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
