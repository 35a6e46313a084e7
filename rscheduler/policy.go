package rscheduler

import (
	"math/rand/v2"
	"strconv"
	"time"
)

const (
	never   int64 = 0  // stands for no instant
	unknown int64 = -1 // for one that this process cannot tell
)

// text returns an instant as scripts take it.
func text(instant int64) string {
	switch instant {
	case never:
		return ""
	case unknown:
		return "?"
	}
	return strconv.FormatInt(instant, 10)
}

// first returns the first tick of a schedule that a job begins with: a single run also if it is past.
func first(s Schedule, now int64) int64 {
	if shot, once := s.(oneShot); once {
		return shot.at.UnixMicro()
	}
	return next(s, now)
}

// next returns the first instant of a schedule after another.
func next(s Schedule, after int64) int64 {
	if s == nil {
		return never
	}
	t, ok := nextOf(s, time.UnixMicro(after))
	if !ok || t.UnixMicro() <= after {
		return never
	}
	return t.UnixMicro()
}

// follows returns the tick that comes after another by the overlap, of those that are due by now: with QueueAll the next one, within the
// backlog, with Allow the next one, and else the newest. If none is due it is the next one after now.
func (o *jobOptions) follows(s Schedule, after, now int64) int64 {
	switch o.overlap {
	case Allow:
		return next(s, after)
	case QueueAll:
		if newest := newestOf(s, after, now, o.backlog+1); len(newest) > o.backlog {
			return newest[1]
		}
		return next(s, after)
	}
	if newest := newestOf(s, after, now, 1); len(newest) > 0 {
		return newest[0]
	}
	return next(s, max(after, now))
}

// after returns the tick that comes after a run that ends now. What was due up to free did not come during it: it was held up, or missed
// as the process before had died.
func (o *jobOptions) after(s Schedule, tick, free, now int64) int64 {
	soon, late := next(s, tick), o.late().Microseconds()
	switch held := soon != never && soon <= free; {
	case o.overlap == QueueAll || o.overlap == Allow:
		return o.follows(s, tick, now)
	case held && now-soon <= late:
		return soon
	case o.overlap == Queue:
		return o.follows(s, tick, now)
	case held && free-soon > late && o.catchUp > 0: // missed
		return o.follows(s, max(tick, now-o.catchUp.Microseconds()-1), now)
	}
	return next(s, max(tick, now))
}

// instead returns the tick that comes in place of one that does not run, as it is late, or paused until least, or left out.
func (o *jobOptions) instead(s Schedule, answer string, tick, least, now int64) int64 {
	switch {
	case answer == "late":
		return o.follows(s, max(tick, least-1), now)
	case answer == "paused" && least > 0:
		return next(s, max(tick, least-1))
	}
	return next(s, max(tick, now))
}

// late returns how long after its instant a tick is late: a newer one that is due runs instead.
func (o *jobOptions) late() time.Duration { return tooLate + o.jitter }

// later returns how much later than its instant a tick is due, µs: the jitter.
func (o *jobOptions) later() int64 {
	if o.jitter == 0 {
		return 0
	}
	return rand.Int64N(o.jitter.Microseconds() + 1)
}

// newestOf returns the last instants of a schedule after a time and up to now, n at most, the oldest first.
func newestOf(s Schedule, after, now int64, n int) (all []int64) {
	if s == nil {
		return nil
	}
	for back := time.Second.Microseconds(); ; back *= 4 {
		from := max(after, now-back)
		all = all[:0]
		for t := next(s, from); t != never && t <= now; t = next(s, t) {
			if all = append(all, t); len(all) > 2*n+1000 { // no more memory than that
				all = append(all[:0], all[len(all)-n:]...)
			}
		}
		if len(all) >= n || from == after {
			return all[max(0, len(all)-n):]
		}
	}
}
