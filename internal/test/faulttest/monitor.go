package faulttest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// monitorLimit bounds the wait until a monitor has seen what went before.
const monitorLimit = 10 * time.Second

// Monitor collects the commands that a server executes on some keys, those inside scripts included.
//
// A monitor is safe for concurrent use.
type Monitor struct {
	tb   testing.TB
	ctx  context.Context //nolint:containedctx // It stands for the test, whose cleanups may still ask.
	keys []string
	conn net.Conn
	rdb  *redis.Client
	wg   sync.WaitGroup

	mu       sync.Mutex // guards all below
	commands []Command
	marks    map[string]chan struct{} // closed when the mark was seen
	err      error                    // why collecting ended
}

// Command is one that a [Monitor] saw.
type Command struct {
	At     time.Time // by the server's clock
	Source string    // address of the client, or "lua"
	Args   []string  // the command's name first, as it was sent
}

// Name is the command's name in capitals.
func (c Command) Name() string { return strings.ToUpper(c.Args[0]) }

// On reports whether one of the keys is among the arguments.
func (c Command) On(keys ...string) bool {
	return slices.ContainsFunc(c.Args[1:], func(arg string) bool { return slices.Contains(keys, arg) })
}

// MonitorWrites begins to collect the commands that have one of the keys among their arguments, on the server at addr. It ends
// with the test.
func MonitorWrites(tb testing.TB, addr string, keys ...string) *Monitor {
	tb.Helper()
	conn, err := net.DialTimeout("tcp", addr, monitorLimit)
	if err != nil {
		tb.Fatalf("faulttest: monitor: %v", err)
	}
	m := &Monitor{
		tb: tb, ctx: context.WithoutCancel(tb.Context()), keys: keys,
		conn: conn, rdb: direct(addr), marks: map[string]chan struct{}{},
	}
	tb.Cleanup(m.close)
	p := newParser(conn)
	if _, err = conn.Write([]byte("MONITOR\r\n")); err == nil {
		var ok frame
		if ok, err = p.reply(); err == nil && ok.kind != '+' {
			err = fmt.Errorf("server says %q", ok.raw)
		}
	}
	if err != nil {
		tb.Fatalf("faulttest: monitor: %v", err)
	}
	m.wg.Go(func() { m.collect(p) }) // close waits for it
	return m
}

func (m *Monitor) close() {
	_, _ = m.conn.Close(), m.rdb.Close() // Nothing was written here that could be lost.
	m.wg.Wait()
}

func (m *Monitor) collect(p *parser) {
	for {
		f, err := p.reply()
		var c Command
		if err == nil {
			c, err = parseMonitor(strings.TrimSpace(string(f.raw[1:])))
		}
		m.mu.Lock()
		if err != nil {
			m.err = err
			m.mu.Unlock()
			return
		}
		if mark, ok := m.marks[c.Args[len(c.Args)-1]]; ok && c.Name() == "ECHO" {
			close(mark)
		}
		if c.On(m.keys...) {
			m.commands = append(m.commands, c)
		}
		m.mu.Unlock()
	}
}

// parseMonitor reads a line such as 1700000000.123456 [0 127.0.0.1:4711] "SET" "key" "value".
func parseMonitor(line string) (Command, error) {
	stamp, rest, ok := strings.Cut(line, " [")
	source, args, ok2 := strings.Cut(rest, "] ")
	seconds, micros, ok3 := strings.Cut(stamp, ".")
	if !ok || !ok2 || !ok3 {
		return Command{}, fmt.Errorf("%w: %q", errFrame, line)
	}
	at, err := timestamp(seconds, micros)
	if err != nil {
		return Command{}, err
	}
	_, source, _ = strings.Cut(source, " ")
	c := Command{At: at, Source: source}
	for args = strings.TrimSpace(args); args != ""; args = strings.TrimSpace(args) {
		quoted, err := strconv.QuotedPrefix(args)
		if err != nil {
			return c, fmt.Errorf("%w: %q", errFrame, line)
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return c, fmt.Errorf("%w: %q", errFrame, line)
		}
		c.Args, args = append(c.Args, arg), args[len(quoted):]
	}
	if len(c.Args) == 0 {
		return c, fmt.Errorf("%w: %q", errFrame, line)
	}
	return c, nil
}

// Commands are all that the server has executed on the keys so far, oldest first.
func (m *Monitor) Commands() []Command {
	m.tb.Helper()
	m.sync()
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.commands)
}

// Since are the commands of these names, all if there are none, that the server has executed on the keys at t of its
// clock or later.
func (m *Monitor) Since(t time.Time, names ...string) []Command {
	m.tb.Helper()
	return slices.DeleteFunc(m.Commands(), func(c Command) bool {
		return c.At.Before(t) || len(names) > 0 && !Named(names...)(c.Args)
	})
}

// sync waits until all that the server has executed by now has been collected.
func (m *Monitor) sync() {
	m.tb.Helper()
	seen := make(chan struct{})
	m.mu.Lock()
	mark := fmt.Sprintf("faulttest:mark:%p:%d", m, len(m.marks))
	m.marks[mark] = seen
	m.mu.Unlock()
	err := m.rdb.Echo(m.ctx, mark).Err()
	if err == nil {
		select {
		case <-seen:
			return
		case <-time.After(monitorLimit):
			err = context.DeadlineExceeded
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tb.Errorf("faulttest: monitor: %v, %v", err, m.err)
}
