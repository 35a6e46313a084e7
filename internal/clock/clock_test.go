package clock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// F18
func TestWallClockAheadCountsAsElapsed(t *testing.T) {
	c := New()
	assert.Equal(t, time.Second, c.at(time.Second, time.Second))
	assert.Equal(t, time.Hour+2*time.Second, c.at(2*time.Second, time.Hour+2*time.Second), "a suspension of one hour")
	assert.Equal(t, time.Hour+3*time.Second, c.at(3*time.Second, 3*time.Second), "a step back takes nothing away")
	assert.Equal(t, 2*time.Hour+4*time.Second, c.at(4*time.Second, time.Hour+4*time.Second), "ahead again counts again")
}

func TestReadingThatWasOvertakenCountsNothing(t *testing.T) {
	c := New()
	assert.Equal(t, time.Hour+2*time.Second, c.at(2*time.Second, time.Hour+2*time.Second), "a suspension of one hour")
	c.at(time.Second, time.Second) // read before it, on a goroutine that had no processor until now
	assert.Equal(t, time.Hour+3*time.Second, c.at(3*time.Second, time.Hour+3*time.Second), "the hour has been counted")
}

func TestReadingNoiseDoesNotAccumulate(t *testing.T) {
	c := New()
	for i := range 1000 {
		noise := time.Duration(i%2) * jump
		c.at(time.Duration(i), time.Duration(i)+noise)
	}
	assert.Equal(t, time.Duration(1000), c.at(1000, 1000))
}

func TestTimeIsTheInverseOfNow(t *testing.T) {
	c := New()
	assert.WithinDuration(t, time.Now().Add(time.Minute), c.Time(c.Now()+time.Minute), time.Second)
}
