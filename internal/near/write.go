package near

import (
	"github.com/redlatch/redlatch/internal/highway"
)

// Write is a change of an object by this client, from before its script is sent.
type Write struct {
	trackers *trackers
	topic    Topic
	message  message
}

// Write returns a change of the entries with some encoded keys.
func (c *Cache[K, V]) Write(encodedKeys ...[]byte) *Write {
	w := c.newWrite(invalidate)
	w.message.hashes = make([]hash, len(encodedKeys))
	for i, k := range encodedKeys {
		w.message.hashes[i] = highway.Sum(k)
	}
	return w
}

// Clear returns a change of the whole object.
func (c *Cache[K, V]) Clear() *Write { return c.newWrite(clearAll) }

func (c *Cache[K, V]) newWrite(kind byte) *Write {
	number := c.trackers.core.NextNumber()
	return &Write{c.trackers, c.topic, message{kind: kind, writer: writer{[8]byte(c.trackers.core.Unique()), number}}}
}

// Message returns what the script has to publish on the topic's channel, in the step that writes. Each attempt of a write that is
// sent again publishes the same.
func (w *Write) Message() []byte { return w.message.encode() }

// Answered ends the entries of the keys in all caches of this client for the object. It is to be called with the reply, before
// the caller has it; not if the reply was lost or the write certainly not done: the message does it then, if there is one.
func (w *Write) Answered() {
	if t := w.trackers.find(w.topic); t != nil {
		t.answered(&w.message)
	}
}
