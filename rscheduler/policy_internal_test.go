package rscheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func at(seconds ...int64) (all []int64) {
	for _, s := range seconds {
		all = append(all, s*time.Second.Microseconds())
	}
	return all
}

func TestNewestInstantsOfASchedule(t *testing.T) {
	every := Every(10 * time.Second)
	for name, c := range map[string]struct {
		s          Schedule
		after, now int64
		n          int
		want       []int64
	}{
		"the last one":        {every, 0, 35, 1, at(30)},
		"the last two":        {every, 0, 35, 2, at(20, 30)},
		"all there are":       {every, 15, 35, 9, at(20, 30)},
		"itself":              {every, 15, 30, 1, at(30)},
		"none":                {every, 30, 39, 3, []int64{}},
		"of long ago":         {At(time.Unix(5, 0)), 0, 1_000_000, 3, at(5)},
		"a schedule unknown":  {nil, 0, 35, 3, nil},
		"among a lot of them": {Every(10 * time.Millisecond), 0, 100_000, 1, at(100_000)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ElementsMatch(t, c.want, newestOf(c.s, at(c.after)[0], at(c.now)[0], c.n))
		})
	}
}

func TestBacklogOfAnyLengthKeepsTheNewest(t *testing.T) {
	o := &jobOptions{overlap: QueueAll, backlog: 100}
	const now = 20_105
	var ran []int64
	for tick := int64(1_000_000); tick <= now*1_000_000; {
		tick = o.follows(Every(time.Second), tick, now*1_000_000)
		ran = append(ran, tick/1_000_000)
	}
	assert.Len(t, ran, 101, "and the next one")
	assert.EqualValues(t, now-99, ran[0])
	assert.EqualValues(t, now+1, ran[100])
}

// The tick that comes after one of 10 s, by when ticks were held up or missed.
func TestTickAfterARunFollowsTheOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		o         jobOptions
		free, now int64
		want      int64
	}{
		"skip":                        {jobOptions{overlap: Skip, catchUp: time.Hour}, 10, 43, 50},
		"skip, dead until 35 s":       {jobOptions{overlap: Skip, catchUp: time.Hour}, 35, 43, 40},
		"skip, dead, no catch-up":     {jobOptions{overlap: Skip}, 35, 43, 50},
		"skip, dead, small catch-up":  {jobOptions{overlap: Skip, catchUp: 2 * time.Second}, 35, 43, 50},
		"skip, held up a little":      {jobOptions{overlap: Skip}, 22, 23, 20},
		"skip, held up, and slow":     {jobOptions{overlap: Skip, catchUp: time.Hour}, 22, 43, 50},
		"skip, held up by the jitter": {jobOptions{overlap: Skip, jitter: time.Minute}, 42, 43, 20},
		"queue":                       {jobOptions{overlap: Queue}, 10, 43, 40},
		"queue, held up a little":     {jobOptions{overlap: Queue}, 22, 23, 20},
		"queue all":                   {jobOptions{overlap: QueueAll, backlog: 100}, 10, 43, 20},
		"queue all, two of them":      {jobOptions{overlap: QueueAll, backlog: 2}, 10, 43, 30},
		"allow":                       {jobOptions{overlap: Allow}, 10, 43, 20},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, at(c.want)[0], c.o.after(Every(10*time.Second), at(10)[0], at(c.free)[0], at(c.now)[0]))
		})
	}
}
