package timer

import (
	"math"
	"math/bits"
)

const (
	levels    = 4
	slotBits  = 8
	slotCount = 1 << slotBits

	never = math.MaxInt64
)

// slots holds the timers by their ticks, in circular lists whose heads are timers without a task. A head's tick is the
// number of its slot, so that the last timer to leave a list finds the occupancy bit to clear.
//
// Every occupied slot begins after cur: what begins at cur or before has been emptied.
type slots struct {
	cur      int64 // the tick that has been reached
	heads    [levels * slotCount]Timer
	occupied [levels][slotCount / 64]uint64
	due      Timer // head of what fires next
	moving   Timer // head of what has left a coarse slot and waits for its place
}

func (s *slots) init(cur int64) {
	s.cur = cur
	for i := range s.heads {
		s.heads[i].beHead(int64(i))
	}
	s.due.beHead(-1)
	s.moving.beHead(-1)
}

// link puts t where its tick belongs and returns the tick at which the goroutine must look at it.
func (s *slots) link(t *Timer) int64 {
	if t.tick <= s.cur {
		t.insertBefore(&s.due)
		return s.cur
	}
	slot, start := s.place(t.tick)
	t.insertBefore(&s.heads[slot])
	s.occupied[slot/slotCount][slot%slotCount/64] |= 1 << (slot % 64)
	return start
}

// place returns the slot for a tick after cur, and the tick at which that slot begins.
func (s *slots) place(tick int64) (slot int, start int64) {
	level := 0
	for level < levels-1 && tick>>(level*slotBits)-s.cur>>(level*slotBits) >= slotCount {
		level++
	}
	shift := level * slotBits
	n := min(tick>>shift, s.cur>>shift+slotCount-1)
	return level*slotCount + int(n%slotCount), n << shift
}

func (s *slots) unlink(t *Timer) {
	prev, next := t.prev, t.next
	prev.next, next.prev = next, prev
	t.prev, t.next = nil, nil
	if prev == next && prev.tick >= 0 {
		s.vacate(int(prev.tick))
	}
}

func (s *slots) vacate(slot int) {
	s.occupied[slot/slotCount][slot%slotCount/64] &^= 1 << (slot % 64)
}

// open reaches the tick at which an occupied slot begins. With it begin slots of finer levels, all of which are opened: what
// is due at that tick may sit in any of them, by how far away it was when it was set.
func (s *slots) open(start int64) {
	s.cur = start
	to := &s.due // timers become due, or wait to be moved to a finer level
	for level := range levels {
		shift := level * slotBits
		if start>>shift<<shift != start {
			return
		}
		slot := level*slotCount + int(start>>shift%slotCount)
		s.vacate(slot)
		s.heads[slot].spliceBefore(to)
		to = &s.moving
	}
}

// first returns the tick at which the first occupied slot begins: never when all are empty.
func (s *slots) first() (start int64) {
	start = never
	for level := range levels {
		shift := level * slotBits
		after := s.cur>>shift + 1
		if distance, ok := s.nextOccupied(level, uint8(after%slotCount)); ok {
			start = min(start, (after+int64(distance))<<shift)
		}
	}
	return start
}

// nextOccupied returns how far ahead of the index from, going round, the level's next occupied slot is.
func (s *slots) nextOccupied(level int, from uint8) (distance uint8, ok bool) {
	words := &s.occupied[level]
	mask := ^uint64(0) << (from % 64)
	for i := range len(words) + 1 {
		word := (int(from)/64 + i) % len(words)
		if found := words[word] & mask; found != 0 {
			return uint8(word*64+bits.TrailingZeros64(found)) - from, true
		}
		mask = ^uint64(0)
	}
	return 0, false
}

// appendTo appends all timers to list.
func (s *slots) appendTo(list []*Timer) []*Timer {
	list = s.due.appendTo(list)
	list = s.moving.appendTo(list)
	for i := range s.heads {
		list = s.heads[i].appendTo(list)
	}
	return list
}
