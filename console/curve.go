package console

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// The size of a chart of minutes, in its units.
const (
	minuteWidth = 4
	chartHeight = 40
)

// hourChart is what happened in the last hour, minute by minute: bars of some kinds, drawn one over the other.
type hourChart []hourBars

// hourBars are bars, or a line, of one kind.
type hourBars struct{ What, Shape, Text string }

// Text says what is drawn.
func (c hourChart) Text() string {
	var texts []string
	for _, bars := range c {
		texts = append(texts, bars.Text)
	}
	return strings.Join(texts, "; ")
}

// hourOf returns charts of a queue, or of an executor, in which a message has been due for oldest.
func hourOf(kind string, minutes []rdelayedqueue.Minute, oldest time.Duration) []hourChart {
	var offered, done, failed, dead, late []float64
	var sum rdelayedqueue.Minute
	for i, m := range minutes {
		offered, done = append(offered, float64(m.Offered)), append(done, float64(m.Done))
		failed, dead = append(failed, float64(m.Failed)), append(dead, float64(m.Dead))
		waited := oldest - time.Duration(len(minutes)-1-i)*time.Minute // at the end of this minute
		late = append(late, max(m.Lateness, waited).Seconds())
		sum.Offered, sum.Done, sum.Failed, sum.Dead = sum.Offered+m.Offered, sum.Done+m.Done, sum.Failed+m.Failed, sum.Dead+m.Dead
		sum.Lateness = max(sum.Lateness, m.Lateness)
	}
	flow, faults := most(offered, done), most(failed, dead)
	return []hourChart{
		{
			{"offered", barsOf(offered, flow), fmt.Sprintf("%d offered, at most %.0f a minute", sum.Offered, most(offered))},
			{"done", lineOf(done, flow), fmt.Sprintf("%d done, at most %.0f a minute", sum.Done, most(done))},
		},
		{
			{"failed", barsOf(failed, faults), inspect.N(sum.Failed, "attempt", "attempts") + " failed"},
			{"dead", barsOf(dead, faults), counted(kind, sum.Dead) + " became dead"},
		},
		{{"late", barsOf(late, most(late)), "claimed up to " + sum.Lateness.Round(time.Millisecond).String() + " late" + waits(oldest)}},
	}
}

func waits(oldest time.Duration) string {
	if oldest < time.Second {
		return ""
	}
	return ", and one has waited for " + round(oldest).String()
}

// most returns the greatest of some values, and 0 for none.
func most(all ...[]float64) (n float64) {
	for _, values := range all {
		for _, v := range values {
			n = max(n, v)
		}
	}
	return n
}

// barsOf returns the shape of a bar for each value. What is not 0 is seen.
func barsOf(values []float64, top float64) string {
	var shape strings.Builder
	for i, v := range values {
		if height := math.Ceil(chartHeight * v / max(top, 1e-9)); v > 0 {
			fmt.Fprintf(&shape, "M%d %dh%dv%.0fh-%dz", minuteWidth*i, chartHeight, minuteWidth-1, -height, minuteWidth-1)
		}
	}
	return shape.String()
}

// lineOf returns the shape of a line through values.
func lineOf(values []float64, top float64) string {
	var shape strings.Builder
	for i, v := range values {
		letter := 'L'
		if i == 0 {
			letter = 'M'
		}
		fmt.Fprintf(&shape, "%c%d %.1f", letter, minuteWidth*i+minuteWidth/2, chartHeight-chartHeight*v/max(top, 1e-9))
	}
	return shape.String()
}
