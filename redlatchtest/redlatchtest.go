// Package redlatchtest breaks things on purpose, in tests of programs that use redlatch: it loses locks, cuts clients off,
// swallows replies and restarts the server. All of it is in memory, and needs nothing installed.
//
//	synctest.Test(t, func(t *testing.T) { // so that time passes at once
//		server := redlatchtest.Start(t)
//		client := server.Client()
//		hold, err := client.GetLock("orders").Lock(t.Context())
//		...
//		server.Lose(hold)
//		// Does the program stop what it does under the lock?
//	})
//
// In a bubble of testing/synctest the server, the clients and the leases share its fake clock. Without one they work as
// well, and time takes its time.
//
// Clients log to their test. What go-redis writes to standard error of connections to these servers is left out: the
// package sets a logger for that, which passes on the rest, and which redis.SetLogger replaces.
package redlatchtest

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/wires"
)

// Server is a server in memory, for the clients of one test. It is safe for concurrent use.
type Server struct {
	tb   testing.TB
	mini *miniredis.Miniredis
	log  *testLog

	dials sync.RWMutex // no dial is under way when the server stops

	mu      sync.Mutex // guards clients
	clients map[*redlatch.Client]*wires.Wires
}

// Start starts a server, which stops when the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{tb: tb, mini: miniredis.NewMiniRedis(), log: &testLog{tb: tb}, clients: map[*redlatch.Client]*wires.Wires{}}
	s.mini.ClockTTL(true)
	tb.Cleanup(func() {
		s.dials.Lock()
		s.mini.Close()
		s.dials.Unlock()
		s.log.end()
	})
	return s
}

// dial returns a new connection. A client that was not closed may ask for one as the test ends.
func (s *Server) dial() (net.Conn, error) {
	s.dials.RLock()
	defer s.dials.RUnlock()
	return s.mini.Dial()
}

// Client returns a new client of the server, as another process would have it. It logs to the test, and is closed when the
// test ends, without a grace for what is still held; options may say otherwise. Bad options end the test.
func (s *Server) Client(opts ...redlatch.Option) *redlatch.Client {
	s.tb.Helper()
	w := wires.New(s.dial)
	rdb := pipe.Client(w.Dial)
	c, err := redlatch.New(rdb, append([]redlatch.Option{redlatch.WithCloseGrace(0), redlatch.WithLogger(s.log.logger())}, opts...)...)
	if err != nil {
		_ = rdb.Close() // err says more
		s.tb.Fatalf("redlatchtest: %v", err)
	}
	s.mu.Lock()
	s.clients[c] = w
	s.mu.Unlock()
	s.tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.tb.Errorf("redlatchtest: close: %v", err)
		}
		_ = rdb.Close() // a test may have broken it
		w.Cut()
		if w.Refused() {
			time.Sleep(2 * time.Second) // go-redis goes on dialing for so long, and a bubble has to be left empty
		}
	})
	return c
}

// Partition cuts a client off: nothing passes between it and the server any more, and its connections stay open. Its calls
// block, and what it holds is lost when the lease ends.
func (s *Server) Partition(c *redlatch.Client) { s.tb.Helper(); s.wiresOf(c).Blackhole(true) }

// Heal ends what Partition has begun. What was on its way is lost, and the connections are new ones.
func (s *Server) Heal(c *redlatch.Client) { s.tb.Helper(); s.wiresOf(c).Blackhole(false) }

// Kill does to a client what kill -9 does to its process, as far as others can see: it releases nothing, its connections
// end, and nothing is heard of it any more. The goroutines of the test that use it go on; to them the server is gone.
func (s *Server) Kill(c *redlatch.Client) {
	s.tb.Helper()
	w := s.wiresOf(c)
	w.Refuse(true)
	w.Cut()
}

// DropReplies has the server carry out the next n calls of a client, and ends their connections instead of answering: the
// client does not know what became of them.
func (s *Server) DropReplies(c *redlatch.Client, n int) { s.tb.Helper(); s.wiresOf(c).LoseResults(n) }

func (s *Server) wiresOf(c *redlatch.Client) *wires.Wires {
	s.tb.Helper()
	s.mu.Lock()
	w := s.clients[c]
	s.mu.Unlock()
	if w == nil {
		s.tb.Fatal("redlatchtest: the client is not one of this server's")
	}
	return w
}

// Data says what a server has after a restart.
type Data int

const (
	// Kept is for a server that has all that it had.
	Kept Data = iota
	// Empty is for a server that has lost everything.
	Empty
)

// Restart stops the server and starts it again: all connections end, and clients connect anew. Who held something that is
// not there any more is told at the next renewal.
func (s *Server) Restart(data Data) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.clients {
		w.Down(true)
	}
	if data == Empty {
		s.mini.FlushAll()
	}
	admin := pipe.Client(s.dial)
	defer admin.Close()
	if err := admin.ScriptFlush(context.WithoutCancel(s.tb.Context())).Err(); err != nil {
		s.tb.Errorf("redlatchtest: restart: %v", err)
	}
	for _, w := range s.clients {
		w.Down(false)
	}
}

// Held is a hold of a lock, a leased permit, or a leadership.
type Held interface {
	// Context is that of the hold.
	Context() context.Context
}

// Lose takes a lock, a leased permit or a leadership away from its holder, as an operator or a server that is full does, and
// returns when the holder has been told: at the next renewal, which comes after up to a third of the lease, or else at the
// end of the lease. Somebody else can have it at once. A multi-lock is lost with one of its parts: lose that.
func (s *Server) Lose(held Held) {
	s.tb.Helper()
	if held.Context().Err() != nil {
		s.tb.Fatal("redlatchtest: lose: the hold has ended")
	}
	found := false
	switch h := held.(type) {
	case interface{ ID() string }:
		found = s.losePermit(h.ID()) || s.loseLock(h.ID())
	case interface{ Owner() string }:
		found = s.loseLock(h.Owner())
	}
	if !found {
		s.tb.Fatalf("redlatchtest: lose: the server has nothing of this %T", held)
	}
	<-held.Context().Done()
}

func (s *Server) loseLock(owner string) (found bool) {
	for _, key := range s.mini.Keys() {
		if s.mini.Type(key) != "hash" {
			continue
		}
		fields, _ := s.mini.HKeys(key) // none if it has just expired
		rest := slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
			return field == owner || field == owner+":write" || field == "mode"
		})
		switch {
		case !slices.Contains(fields, owner) && !slices.Contains(fields, owner+":write"):
			continue
		case len(rest) == 0:
			s.mini.Del(key)
		default: // other readers
			s.mini.HDel(key, owner)
		}
		found = true
	}
	return found
}

func (s *Server) losePermit(id string) bool {
	member, err := hex.DecodeString(id)
	if err != nil {
		return false
	}
	for _, key := range s.mini.Keys() {
		name, ok := strings.CutSuffix(key, ":timeout")
		if !ok || s.mini.Type(key) != "zset" {
			continue
		}
		if out, _ := s.mini.ZRem(key, string(member)); out {
			if strings.LastIndexByte(name, '{') == 0 && strings.HasSuffix(name, "}") && !s.mini.Exists(name) { // the pool is not named in braces
				name = name[1 : len(name)-1]
			}
			_, err := s.mini.Incr(name, 1)
			return err == nil
		}
	}
	return false
}

// Advance lets d pass. In a bubble of testing/synctest that takes no time.
func (s *Server) Advance(d time.Duration) { time.Sleep(d) }
