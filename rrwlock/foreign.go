package rrwlock

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	askEvery   = time.Second     // who listens, at most, for a lock
	askPause   = time.Second / 8 // between two questions of a client
	askLater   = time.Minute     // where Redis does not tell
	forgetIdle = 2 * time.Minute // a lock that is not asked for, once there are many
	fewLocks   = 64              // of which none has to be forgotten
)

// foreign has a client's readers let in writers of Redisson, which wait without a word: all that Redis knows of them is a subscription. So
// while readers follow one another the client asks now and then, beside their calls, who listens.
type foreign struct {
	core *core.Core

	mu     sync.Mutex               // guards all below
	due    map[string]time.Duration // when to ask, by the lock's key
	many   int                      // how many of them there have to be to look for idle ones
	asking bool                     // one question at a time
	next   time.Duration            // when the next one may be asked
}

func newForeign(c *core.Core) *foreign {
	return &foreign{core: c, due: map[string]time.Duration{}, many: fewLocks}
}

// mayWait notes that a writer may wait for a lock: a reader of this client has come while others read, or has left while somebody
// listened.
func (f *foreign) mayWait(key string) {
	now := f.core.Clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	due, known := f.due[key]
	if known && (now < due || now < f.next || f.asking) {
		return
	}
	if !known && len(f.due) >= f.many {
		maps.DeleteFunc(f.due, func(_ string, due time.Duration) bool { return now-due >= forgetIdle })
		f.many = max(fewLocks, 2*len(f.due))
	}
	f.due[key] = now + askEvery
	if !known {
		return
	}
	f.asking, f.next = true, now+askPause
	f.core.Workers.Go(func() {
		next := f.ask(key, false)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asking, f.due[key] = false, f.core.Clock.Now()+next
	})
}

// ask asks who listens to a lock's channel, and has Redis judge whether readers are to wait. It returns when to ask next. The first time
// that somebody listens it looks again by itself: the readers may hold the lock for long.
func (f *foreign) ask(key string, again bool) (next time.Duration) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	defer cancel()
	stop := f.core.Batch.AfterWaits(cancel)
	defer stop()
	heard, lacking := presence.ListeningTo(ctx, f.core, key, channelOf(key))
	if lacking {
		return askLater
	}
	if heard <= 0 || !f.core.Batch.Start(holdBack(key), pipeline.Normal, func(*script.Call) {}) || again {
		return askEvery
	}
	time.AfterFunc(noteAge+10*time.Millisecond, func() { f.core.Workers.Go(func() { f.ask(key, true) }) })
	return noteAge + askEvery
}
