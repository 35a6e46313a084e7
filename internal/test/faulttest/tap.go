package faulttest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
)

// Tap returns a dialer for clients that has note called with the address of the server and each command, before it is sent. The
// connections are plain ones.
func Tap(note func(addr string, cmd []string)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &tap{Conn: conn, note: func(cmd []string) { note(addr, cmd) }}, nil
	}
}

// tap is a connection whose commands are noted.
type tap struct {
	net.Conn
	note    func(cmd []string)
	partial []byte // of a command
}

// Write notes the commands that are complete now, and sends the bytes.
func (t *tap) Write(b []byte) (int, error) {
	t.partial = append(t.partial, b...)
	for len(t.partial) > 0 {
		raw, cmd, err := newParser(bytes.NewReader(t.partial)).request()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the rest is still to come
			break
		}
		if err != nil {
			return 0, err
		}
		t.note(cmd)
		t.partial = t.partial[len(raw):]
	}
	return t.Conn.Write(b)
}
