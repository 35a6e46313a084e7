package main

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"time"
)

// sent counts the commands that clients put on the wire. The server's own counters will not do:
// commandstats and total_commands_processed count what scripts call too.
type sent struct {
	n        atomic.Int64
	recorded atomic.Pointer[bytes.Buffer] // takes what is sent, unless it is nil; for one connection in use at a time
}

// dial connects to addr. With a nil receiver nothing is counted, and the connection is the plain one.
func (s *sent) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil || s == nil {
		return conn, err
	}
	return &countedConn{TCPConn: conn.(*net.TCPConn), sent: s}, nil
}

func (s *sent) count() int64 {
	if s == nil {
		return 0
	}
	return s.n.Load()
}

// countedConn embeds the TCP connection so that go-redis's check of idle connections, which needs the socket, stays.
type countedConn struct {
	*net.TCPConn
	sent   *sent
	parser requestParser
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.sent.n.Add(c.parser.feed(p))
	if r := c.sent.recorded.Load(); r != nil {
		r.Write(p)
	}
	return c.TCPConn.Write(p)
}

// requestParser finds the commands in a stream of requests: arrays of bulk strings, cut anywhere.
type requestParser struct {
	skip   int  // bytes left of a bulk string's body and line end
	kind   byte // of the header being read, 0 between headers
	number int
}

// feed returns the number of commands whose header ended in p.
func (r *requestParser) feed(p []byte) (commands int64) {
	for i := 0; i < len(p); {
		if r.skip > 0 {
			n := min(r.skip, len(p)-i)
			r.skip -= n
			i += n
			continue
		}
		if r.header(p[i]) {
			commands++
		}
		i++
	}
	return commands
}

// header takes a byte of a header and reports whether it ended one that begins a command.
func (r *requestParser) header(b byte) bool {
	switch {
	case r.kind == 0:
		r.kind, r.number = b, 0
	case b >= '0' && b <= '9':
		r.number = r.number*10 + int(b-'0')
	case b == '\n':
		command := r.kind == '*'
		if !command {
			r.skip = r.number + len("\r\n")
		}
		r.kind = 0
		return command
	}
	return false
}
