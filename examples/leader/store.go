package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// store is what leaders write to. It knows nothing of locks or elections, but refuses a term below the highest that it has seen.
type store struct {
	start  time.Time
	writes chan write // each that was accepted

	mu       sync.Mutex   // guards all below
	term     int64        // the highest
	leader   func() error // what says whether the leadership of the last one has ended
	together bool         // two led at a time
	refused  int
}

// write is one by a leader, with its term.
type write struct {
	leader string
	term   int64
}

var errStale = errors.New("the term is over")

// accept takes a write, unless its term is over.
func (s *store) accept(w write) error {
	// snippet: accept
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.term < s.term {
		s.refused++
		s.say("store", "refuses a write by %s of term %d: the term is %d", w.leader, w.term, s.term)
		return errStale
	}
	s.term = w.term // kept with the data, in one transaction
	return nil
	// end snippet
}

// begin notes that one leads, until ended returns an error.
func (s *store) begin(leader string, term int64, ended func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.together = s.together || s.leader != nil && s.leader() == nil
	s.leader = ended
	s.say(leader, "leads, term %d", term)
}

func (s *store) say(who, format string, args ...any) {
	fmt.Printf("%6.2f s  %-5s  %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

func (s *store) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("\n%d late write was refused; two led at a time: %t\n", s.refused, s.together)
	if s.together || s.refused != 1 {
		return errors.New("that is not what was promised")
	}
	return nil
}
