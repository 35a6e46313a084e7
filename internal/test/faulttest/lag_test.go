package faulttest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestLagSeesAServerThatStandsStill(t *testing.T) {
	const still = 200 * time.Millisecond
	s := redistest.Start(t)
	lag, own := faulttest.MeasureLag(t, s.Addr()), faulttest.MeasureLag(t, "")
	redistest.Eventually(t, 10*time.Second, "first samples", func() error { return sampled(0, lag, own) })
	s.Pause()
	<-time.After(still) // what is measured is that nothing happens
	s.Resume()
	redistest.Eventually(t, 10*time.Second, "the pause is seen", func() error { return sampled(still/2, lag) })
}

// sampled returns nil once all have seen more than least.
func sampled(least time.Duration, all ...*faulttest.Lag) error {
	for _, l := range all {
		if worst := l.Worst(); worst <= least {
			return fmt.Errorf("%v", worst)
		}
	}
	return nil
}
