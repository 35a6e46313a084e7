package redistest

import (
	"testing"
	"time"
)

// Eventually calls cond until it returns nil, every 5 ms for at most limit, and fails the test with its last error
// otherwise. It is for conditions of another process, which sends no event.
func Eventually(tb testing.TB, limit time.Duration, what string, cond func() error) {
	tb.Helper()
	if err := retry(limit, cond); err != nil {
		tb.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

func retry(limit time.Duration, cond func() error) error {
	end := time.Now().Add(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil || time.Now().After(end) {
			return err
		}
		<-tick.C
	}
}
