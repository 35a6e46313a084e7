package settle_test

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/settle"
	"github.com/redlatch/redlatch/internal/timer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attempts records when a job was tried.
type attempts struct {
	start time.Time

	mu     sync.Mutex // guards all below
	at     []time.Duration
	report func(bool)
	done   int
}

func (a *attempts) attempt(report func(bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Since(a.start))
	a.report = report
}

func (a *attempts) last(settled bool) {
	a.mu.Lock()
	report := a.report
	a.mu.Unlock()
	report(settled)
}

func (a *attempts) ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done++
}

func setup(t *testing.T) (*settle.Settler, *attempts) {
	t.Helper()
	c := clock.New()
	w := timer.New(c.Now)
	t.Cleanup(w.Close)
	return settle.New(w, c, nil, slog.New(slog.DiscardHandler)), &attempts{start: time.Now()}
}

func near(t *testing.T, want []time.Duration, got []time.Duration) {
	t.Helper()
	if assert.Len(t, got, len(want), "%v", got) {
		for i := range want {
			assert.InDelta(t, want[i].Seconds(), got[i].Seconds(), 0.01, "%v", got)
		}
	}
}

func TestUnansweredJobIsTriedUntilItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := setup(t)
		s.AddWithin(a.attempt, a.ended, 12*time.Second, time.Minute)
		assert.Equal(t, 1, s.Len())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		near(t, []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 10 * time.Second}, a.at)
		assert.Equal(t, 1, a.done)
		assert.Zero(t, s.Len())
	})
}

func TestJobThatCallersWaitForIsTriedMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := setup(t)
		s.AddWithin(a.attempt, a.ended, 4*time.Second, time.Second)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		near(t, []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond, 3500 * time.Millisecond}, a.at)
		assert.Equal(t, 1, a.done)
	})
}

func TestAnswerSettlesAJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := setup(t)
		j := s.AddWithin(a.attempt, a.ended, time.Minute, time.Minute)
		synctest.Wait()
		a.last(false)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, a.at, 2, "a job that is not settled goes on")
		a.last(true)
		a.last(true)
		j.Settled()
		j.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, a.at, 2)
		assert.Equal(t, 1, a.done)
	})
}

func TestNowTriesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := setup(t)
		j := s.Add(a.attempt, time.Minute)
		j.Now()
		assert.Len(t, a.at, 2)
		a.last(true)
	})
}

func TestCloseMakesOneLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := setup(t)
		answered := &attempts{start: time.Now()}
		s.Add(a.attempt, time.Minute)
		s.Add(func(report func(bool)) { answered.attempt(report); report(false) }, time.Minute)
		start := time.Now()
		s.Close(2 * time.Second)
		assert.Equal(t, 2*time.Second, time.Since(start), "one of the two is never answered")
		assert.Len(t, a.at, 2)
		assert.Len(t, answered.at, 2)
		assert.Zero(t, s.Len())
		late := &attempts{start: time.Now()}
		s.Add(late.attempt, time.Minute)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, late.at, 1, "after Close a job has one chance")
	})
}

func TestJobsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := setup(t)
		tried := 0
		for range 10_001 {
			s.Add(func(func(bool)) { tried++ }, time.Minute)
		}
		assert.Equal(t, 10_001, tried, "the one beyond the bound has one attempt")
		assert.Equal(t, 10_000, s.Len())
		j := s.AddWithin(a.attempt, a.ended, time.Minute, time.Second)
		assert.Len(t, a.at, 1, "what callers wait for is taken all the same")
		assert.Zero(t, a.done)
		j.Settled()
		assert.Equal(t, 1, a.done)
		s.Close(time.Millisecond)
	})
}
