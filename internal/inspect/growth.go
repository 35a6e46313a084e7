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
	growthPart    = 20 // and one in so many of those that were offered
)

// Growth returns how many more messages were offered to a queue than ended in the last ten whole minutes, as acknowledged ones or as dead
// letters, if the queue grows: these are many, it was so in at least eight of the minutes, and most of them wait now. A batch makes no
// queue grow, nor does what is due later or is replaced before it is due. Else it returns 0. Minutes are those of the queue's Series.
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
	waits := s.Ready + s.Failed
	if steady < growthSteady || more < max(growthLeast, offered/growthPart) || 2*waits < more {
		return 0
	}
	return more
}
