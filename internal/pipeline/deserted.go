package pipeline

import "github.com/redlatch/redlatch/internal/script"

// Deserted returns how many calls are under way that nobody waits for but a Listener.
func (b *Batcher) Deserted() int64 { return b.deserted.Load() }

// deserted is who cares for a call that nobody waits for any more.
type deserted struct {
	listener Listener
	batcher  *Batcher
}

// Late tells who cares before the call counts as finished.
func (d *deserted) Late(c *script.Call) {
	d.listener.Late(c)
	d.batcher.rejoin()
}

// desert counts a call that its caller is about to leave to the listener, and returns whom to tell in its place.
func (b *Batcher) desert(l Listener) Listener {
	b.deserted.Add(1)
	return &deserted{listener: l, batcher: b}
}

// rejoin takes a call off those that are deserted.
func (b *Batcher) rejoin() {
	b.deserted.Add(-1)
	if tell := b.Told; tell != nil {
		tell()
	}
}
