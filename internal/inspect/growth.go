package inspect

import (
	"time"

	"github.com/redlatch/redlatch/rdelayedqueue"
)

const (
	// GrowthFor is the time before now by which it is judged whether a queue grows.
	GrowthFor = 10 * time.Minute

	growthMinutes = int(GrowthFor / time.Minute)
	growthSteady  = 8  // minutes of them in which it grew
	growthLeast   = 50 // messages
	growthPart    = 20 // and at least a twentieth of those offered
)

// Growth returns by how much a queue grows: how many more messages were offered in the last ten whole minutes than were acknowledged or
// became dead letters. It returns 0 unless that is at least 50 and a twentieth of those offered, it was so in eight of the minutes, and at
// least half of it is ready or being retried now. So a batch does not count, nor what is due later. Replacements count as offered, and
// cancelled messages as neither. Minutes are those of the queue's Series.
func Growth(minutes []rdelayedqueue.Minute, s rdelayedqueue.Stats) int {
	if len(minutes) <= growthMinutes {
		return 0
	}
	offered, more, steady := 0, 0, 0
	for _, m := range minutes[len(minutes)-1-growthMinutes : len(minutes)-1] { // the last one goes on
		n := m.Offered - m.Done - m.Dead
		if n > 0 {
			steady++
		}
		offered, more = offered+m.Offered, more+n
	}
	if steady < growthSteady || more < max(growthLeast, offered/growthPart) || 2*waiting(s) < more {
		return 0
	}
	return more
}

// MayGrow reports whether as many messages wait as a queue has at least of which Growth says that it grows.
func MayGrow(s rdelayedqueue.Stats) bool { return 2*waiting(s) >= growthLeast }

// waiting returns how many messages are ready, or being retried.
func waiting(s rdelayedqueue.Stats) int { return s.Ready + min(s.Failed, s.Delayed) }
