// Package pipe makes an in-memory connection behave like one with socket buffers.
//
// Both ends of a net.Pipe wait for each other with every write. A client that writes a pipeline of commands and a server
// that answers the first of them would wait for ever.
package pipe

import (
	"net"
	"sync"
	"time"
)

// Conn is a connection whose writes never wait. Its errors show at the next read or write.
type Conn struct {
	net.Conn
	more chan struct{} // 1: buf has grown, or the connection was closed
	done chan struct{} // closed when the pump has ended

	mu     sync.Mutex // guards all below
	buf    []byte
	closed bool
	err    error
}

// Buffer returns a view of conn whose writes never wait.
func Buffer(conn net.Conn) *Conn {
	c := &Conn{Conn: conn, more: make(chan struct{}, 1), done: make(chan struct{})}
	go c.pump() // Close ends it and waits for it
	return c
}

// Write takes b to be sent.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	if c.err != nil {
		return 0, c.err
	}
	c.buf = append(c.buf, b...)
	c.signal()
	return len(b), nil
}

func (c *Conn) signal() {
	select {
	case c.more <- struct{}{}:
	default: // a token is there already
	}
}

// pump sends what was written, until the connection is closed or fails.
func (c *Conn) pump() {
	defer close(c.done)
	for range c.more {
		c.mu.Lock()
		buf, closed := c.buf, c.closed
		c.buf = nil
		c.mu.Unlock()
		if closed {
			return
		}
		if _, err := c.Conn.Write(buf); err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

// SetDeadline sets the deadline of reads; writes have none.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes do not wait.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// Close closes the connection. What has not been sent is dropped.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.signal()
	c.mu.Unlock()
	err := c.Conn.Close()
	<-c.done
	return err
}
