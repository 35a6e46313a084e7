// Package embedded runs a Redis-compatible server inside the process, for demos, examples, and tests of programs that
// use redlatch. It keeps nothing on disk and needs nothing installed.
//
//	client, err := embedded.Open()
//
// It has the features that redlatch uses, but for times to live of the entries of maps (package rmap), of which EntryTTL says that
// there is none, and for the error of AddScore (package rsortedset) for an infinity less itself, which stores NaN. It is not a
// database: its clock is the process's, its data is lost when it closes, and it is not built for speed. Use a real server in production.
package embedded

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/alicebob/miniredis/v2"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipe"
)

// Server is a server in this process that listens on a loopback address. It is safe for concurrent use.
type Server struct {
	mini *miniredis.Miniredis
	addr string
}

// Start starts a server on a free port of the loopback interface. It runs until Close.
func Start() (*Server, error) {
	m := newServer()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embedded: start: %w", err)
	}
	return &Server{mini: m, addr: m.Addr()}, nil
}

// Addr returns the server's address as host:port, also after Close.
func (s *Server) Addr() string { return s.addr }

// URL returns the server's URL for redlatch.Open.
func (s *Server) URL() string { return "redis://" + s.addr }

// Close stops the server and drops its data. A second Close does nothing.
func (s *Server) Close() { s.mini.Close() }

// Open returns a client on a new server of its own, which stops when the client closes. The server does not listen on
// the network, and the client logs nothing unless it is given redlatch.WithLogger. Bad options return redlatch.ErrInvalid.
func Open(opts ...redlatch.Option) (*redlatch.Client, error) {
	m := newServer()
	rdb := pipe.Client(func() (net.Conn, error) { return dial(m) })
	stop := func() error {
		err := rdb.Close()
		m.Close()
		return err
	}
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	client, err := redlatch.New(rdb, append([]redlatch.Option{quiet}, opts...)...)
	if err != nil {
		_ = stop() // err says more
		return nil, err
	}
	core.Of(client).OnClosed = stop
	return client, nil
}

func dial(m *miniredis.Miniredis) (net.Conn, error) {
	conn, err := m.Dial()
	if err != nil {
		return nil, err
	}
	return pipe.Buffer(conn), nil
}

func newServer() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	return m
}
