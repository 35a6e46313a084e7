package near

import (
	"encoding/binary"
	"time"

	"github.com/redlatch/redlatch/internal/highway"
)

// The messages of RLocalCachedMap, by their first byte. Integers are big-endian.
const (
	clearAll   = 0 // writer (16), request (16), flag: the sender waits
	invalidate = 1 // writer, count (4), hashes of keys (16 each)
	update     = 2 // writer, then until the end: length (4) and key, length (4) and value
	disable    = 3 // length (1) and request, time-out in ms (8), flag: all keys, count (4), hashes
	disabled   = 4 // the answer to disable
	enable     = 5 // length (1) and request, flag, count (4), hashes
)

// hash is that of an encoded key.
type hash = [highway.Size]byte

// writer is who published a message: Redisson's excluded id. That of a Java client is random; ours has a number for each write.
type writer struct {
	client [8]byte
	number uint64
}

// message is one that was received.
type message struct {
	kind    byte
	writer  writer        // of clearAll, invalidate and update
	request string        // of clearAll, disable and enable
	waits   bool          // the sender of clearAll waits for a permit
	all     bool          // disable is about all keys
	timeout time.Duration // of disable
	hashes  []hash        // of the keys
}

// count returns how many keys a message says are over; 1 for all keys.
func (m *message) count() uint64 {
	switch {
	case m.kind == clearAll, m.kind == disable && m.all:
		return 1
	case m.kind == enable:
		return 0
	}
	return uint64(len(m.hashes))
}

// maxTimeout is the longest time for which a transaction keeps its keys out of caches.
const maxTimeout = time.Hour

// parse returns the message with the given payload. Who may publish on the channel is not known.
func parse(payload string) (m message, ok bool) {
	p := parser{rest: payload, ok: true}
	m.kind = p.byte()
	switch m.kind {
	case clearAll:
		m.writer = p.writer()
		m.request = p.take(16)
		m.waits = p.byte() != 0
	case invalidate:
		m.writer = p.writer()
		m.hashes = p.hashes()
	case update:
		m.writer = p.writer()
		for p.ok && p.rest != "" {
			m.hashes = append(m.hashes, highway.Sum([]byte(p.sized())))
			p.sized()
		}
	case disable:
		m.request = p.take(int(p.byte()))
		m.timeout = time.Duration(min(p.uint64(), uint64(maxTimeout/time.Millisecond))) * time.Millisecond
		m.all = p.flag()
		m.hashes = p.hashes()
	case enable:
		m.request = p.take(int(p.byte()))
		p.flag()
		m.hashes = p.hashes()
	case disabled:
	default:
		return m, false
	}
	return m, p.ok && p.rest == ""
}

// parser takes a payload from its front. Once something was missing, ok is false, and all that it returns is empty.
type parser struct {
	rest string
	ok   bool
}

func (p *parser) take(n int) string {
	if !p.ok || n > len(p.rest) {
		p.ok, p.rest = false, ""
		return ""
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) byte() byte {
	if s := p.take(1); p.ok {
		return s[0]
	}
	return 0
}

func (p *parser) uint64() uint64 {
	var b [8]byte
	copy(b[:], p.take(8))
	return binary.BigEndian.Uint64(b[:])
}

func (p *parser) length() int {
	var b [4]byte
	copy(b[:], p.take(4))
	return int(binary.BigEndian.Uint32(b[:]))
}

func (p *parser) sized() string { return p.take(p.length()) }

func (p *parser) writer() (w writer) {
	copy(w.client[:], p.take(8))
	w.number = p.uint64()
	return w
}

// flag takes the flag before the hashes, which Redisson before 4.0 does not write.
func (p *parser) flag() bool {
	return len(p.rest)%highway.Size == 5 && p.byte() != 0
}

// hashes takes a count and the hashes, which end the message.
func (p *parser) hashes() []hash {
	n := p.length()
	if !p.ok || len(p.rest)%highway.Size != 0 || n != len(p.rest)/highway.Size {
		p.ok = false
		return nil
	}
	all := make([]hash, n)
	for i := range all {
		copy(all[i][:], p.take(highway.Size))
	}
	return all
}

// encode returns the payload of a message about a write: invalidate, or clearAll, which nobody waits for.
func (m message) encode() []byte {
	b := make([]byte, 0, 1+16+max(16+1, 4+highway.Size*len(m.hashes)))
	b = append(b, m.kind)
	b = append(b, m.writer.client[:]...)
	b = binary.BigEndian.AppendUint64(b, m.writer.number)
	if m.kind == clearAll {
		return append(b, make([]byte, 16+1)...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.hashes))) //nolint:gosec // as many as fit into a call
	for _, h := range m.hashes {
		b = append(b, h[:]...)
	}
	return b
}

// acknowledgement is the payload of the answer to disable.
const acknowledgement = "\x04"
