package faulttest

import (
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// dropRule says whose replies are lost: of the requests that match, skip are spared, then drop are hit.
type dropRule struct {
	match      func(cmd []string) bool
	skip, drop int
}

// DropReply loses the reply of one request, the n-th from now on that matches, counted from 1 over all connections: the
// server executes it, and then its client's connection is closed. Replies to requests that went before it on the
// connection are delivered first; requests that were sent along with it are executed too, and their replies lost.
// Further calls add to the first.
func (p *Proxy) DropReply(match func(cmd []string) bool, n int) {
	p.addRule(&dropRule{match: match, skip: n - 1, drop: 1})
}

// DropReplies loses the reply of each of the next n requests that match, as [Proxy.DropReply] does.
func (p *Proxy) DropReplies(match func(cmd []string) bool, n int) {
	p.addRule(&dropRule{match: match, drop: n})
}

// Dropped counts the replies that DropReply and DropReplies have lost.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Named matches commands by name, in capitals or not.
func Named(names ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, cmd[0]) })
	}
}

// Script matches calls of scripts.
func Script(cmd []string) bool { return Named("EVAL", "EVALSHA")(cmd) }

func (p *Proxy) addRule(r *dropRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
}

// drops reports whether the reply to cmd is to be lost.
func (p *Proxy) drops(cmd []string) bool {
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	for _, r := range rules {
		if r.match(cmd) && p.hit(r) {
			return true
		}
	}
	return false
}

func (p *Proxy) hit(r *dropRule) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.skip > 0 {
		r.skip--
		return false
	}
	if r.drop <= 0 {
		return false
	}
	if r.drop--; r.drop == 0 {
		p.rules = slices.DeleteFunc(p.rules, func(other *dropRule) bool { return other == r })
	}
	return true
}

func (p *Proxy) countDropped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped++
	redistest.Injected("reply lost")
}

// expected is a request whose replies are still to come.
type expected struct {
	replies   int // one, except that (un)subscribing is confirmed channel by channel
	subscribe bool
	drop      bool
}

// expect notes that cmd is about to be passed on.
func (l *link) expect(cmd []string, drop bool) {
	e := expected{replies: 1, drop: drop}
	switch strings.ToUpper(cmd[0]) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		e.subscribe, e.replies = true, len(cmd)-1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribed = l.subscribed || e.subscribe
	if e.replies > 0 || drop { // leaving all channels is confirmed as often as there are channels
		l.pending = append(l.pending, e)
	}
}

// answer finds the request that f belongs to, and reports whether f is a message, and whether it is to be dropped.
func (l *link) answer(f frame) (message, drop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	event := ""
	if f.kind == '>' || f.kind == '*' && l.subscribed && f.items >= 3 {
		event = f.head
	}
	switch event {
	case "message", "pmessage", "smessage":
		return true, false
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		if len(l.pending) == 0 || !l.pending[0].subscribe {
			return false, false
		}
		drop = l.pending[0].drop
		if l.pending[0].replies--; l.pending[0].replies > 0 {
			return false, drop
		}
	default:
		if f.kind == '>' || len(l.pending) == 0 {
			return false, false
		}
		drop = l.pending[0].drop
	}
	l.pending = l.pending[1:]
	return false, drop
}
