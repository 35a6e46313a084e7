package timer_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/timer"
)

// label and number tell timers apart.
type (
	label  string
	number int
)

func (label) Due(time.Duration)  {}
func (number) Due(time.Duration) {}

// task notes when it was due, and sets its timer again.
type task struct {
	timer timer.Timer
	wheel *timer.Wheel
	due   []time.Duration
}

func (k *task) Due(now time.Duration) {
	k.due = append(k.due, now)
	if len(k.due) < 3 {
		k.wheel.Set(&k.timer, now+time.Second)
	}
}

func TestTaskIsDueWhenItsTimerFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := timer.New(func() time.Duration { return time.Since(start) })
		defer w.Close()
		k := &task{wheel: w}
		k.timer.Task = k
		w.Set(&k.timer, time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, k.due)
	})
}

func TestFiresNeverEarlyAndLessThanATickLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		firedAt := map[*timer.Timer]time.Duration{}
		b := newBed(t, func(b *bed, due []*timer.Timer) {
			for _, d := range due {
				firedAt[d] = b.now()
			}
		})
		var timers []*timer.Timer
		var times []time.Duration
		for at := time.Millisecond; at <= 24*time.Hour; at = at*9/8 + 137*time.Microsecond {
			timers, times = append(timers, new(timer.Timer)), append(times, at)
		}
		timers, times = append(timers, new(timer.Timer)), append(times, 24*time.Hour)
		for i, at := range times {
			b.Set(timers[i], at)
		}
		time.Sleep(24*time.Hour + time.Millisecond)
		synctest.Wait()
		for i, at := range times {
			late := firedAt[timers[i]] - at
			assert.GreaterOrEqual(t, late, time.Duration(0), "set for %v", at)
			assert.Less(t, late, time.Millisecond, "set for %v", at)
		}
	})
}

func TestPastTimeFiresAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := 0
		b := newBed(t, func(_ *bed, due []*timer.Timer) { fired += len(due) })
		time.Sleep(time.Hour)
		for i, at := range []time.Duration{time.Hour, time.Minute, 0, -time.Hour} {
			b.Set(new(timer.Timer), at)
			synctest.Wait()
			assert.Equal(t, i+1, fired, "set for %v", at)
		}
	})
}

func TestEarlierSetWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type firing struct {
			name string
			at   time.Duration
		}
		var fired []firing
		b := newBed(t, func(b *bed, due []*timer.Timer) {
			for _, d := range due {
				fired = append(fired, firing{string(d.Task.(label)), b.now()})
			}
		})
		late, early, moved := timer.Timer{Task: label("late")}, timer.Timer{Task: label("early")}, timer.Timer{Task: label("moved")}
		b.Set(&late, 900*time.Millisecond)
		b.Set(&moved, time.Hour)
		synctest.Wait()
		b.Set(&early, 5*time.Millisecond)
		b.Set(&moved, 7*time.Millisecond)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []firing{
			{"early", 5 * time.Millisecond}, {"moved", 7 * time.Millisecond}, {"late", 900 * time.Millisecond},
		}, fired)
	})
}

func TestEmptyWheelSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(*bed, []*timer.Timer) {})
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, b.reads.Load(), "nothing runs before the first Set")

		var one timer.Timer
		b.Set(&one, b.now()+time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		afterFire := b.reads.Load()
		assert.Less(t, afterFire, int64(20), "clock readings to fire one timer a second away")
		time.Sleep(time.Hour)
		assert.Equal(t, afterFire, b.reads.Load(), "clock readings of an empty wheel")

		b.Set(&one, b.now()+10*time.Second)
		synctest.Wait()
		require.True(t, b.Stop(&one))
		time.Sleep(time.Minute)
		afterStop := b.reads.Load()
		time.Sleep(time.Hour)
		assert.Equal(t, afterStop, b.reads.Load())
	})
}

func TestLongSleepLooksAtTheClockOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := 0
		b := newBed(t, func(_ *bed, due []*timer.Timer) { fired += len(due) })
		b.Set(new(timer.Timer), 40*24*time.Hour)
		synctest.Wait()
		before := b.reads.Load()
		time.Sleep(1000 * time.Second)
		synctest.Wait()
		assert.InDelta(t, 2000, b.reads.Load()-before, 20, "two readings for each wake-up")

		b.jumps.Add(int64(41 * 24 * time.Hour))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 1, fired, "a jump of the clock is seen within a second")
	})
}

func TestFireMaySetAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period = 10 * time.Millisecond
		var periodic, victim timer.Timer
		fired := map[*timer.Timer]int{}
		b := newBed(t, func(b *bed, due []*timer.Timer) {
			for _, d := range due {
				fired[d]++
				assert.False(t, b.Stop(d), "a timer in a batch is not stopped any more")
				if d == &periodic {
					b.Set(d, b.now()+period)
					b.Stop(&victim)
				}
			}
		})
		b.Set(&periodic, period)
		b.Set(&victim, period+time.Millisecond)
		time.Sleep(100 * period)
		synctest.Wait()
		assert.Equal(t, map[*timer.Timer]int{&periodic: 100}, fired)
	})
}

func TestTimerAlwaysSetInThePastHoldsUpNobody(t *testing.T) {
	var clock atomic.Int64
	var w *timer.Wheel
	var greedy, modest timer.Timer
	rounds, done := 0, make(chan struct{})
	w = timer.NewBatched(func() time.Duration { return time.Duration(clock.Load()) }, func(due []*timer.Timer) {
		for _, d := range due {
			if d == &modest {
				close(done)
				return
			}
		}
		rounds++
		clock.Add(int64(time.Millisecond))
		w.Set(&greedy, 0)
	})
	defer w.Close()
	w.Set(&modest, 300*time.Millisecond)
	w.Set(&greedy, 0)
	<-done
	assert.LessOrEqual(t, rounds, 301)
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		fired, largest := 0, 0
		b := newBed(t, func(_ *bed, due []*timer.Timer) { fired, largest = fired+len(due), max(largest, len(due)) })
		timers := make([]timer.Timer, n)
		for i := range timers {
			b.Set(&timers[i], 3*time.Second)
		}
		assert.Equal(t, n, b.Len())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Equal(t, n, fired)
		assert.Equal(t, 512, largest)
		assert.Zero(t, b.Len())
	})
}

// Every timer ends in exactly one of: stopped, or fired. Stops and the wheel meet in the same instant of the bubble.
func TestStopAgainstFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, workers = 4000, 4
		var fired, stopped [n]atomic.Int32
		b := newBed(t, func(_ *bed, due []*timer.Timer) {
			for _, d := range due {
				fired[d.Task.(number)].Add(1)
			}
		})
		timers := make([]timer.Timer, n)
		for i := range timers {
			timers[i].Task = number(i)
			b.Set(&timers[i], time.Duration(1+i%20)*time.Millisecond)
		}
		var group sync.WaitGroup
		for k := range workers {
			group.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(k), 3))
				for range 20 {
					time.Sleep(time.Millisecond)
					for range n / 40 {
						if i := rng.IntN(n); b.Stop(&timers[i]) {
							stopped[i].Add(1)
						}
					}
				}
			})
		}
		group.Wait()
		synctest.Wait()
		for i := range timers {
			require.EqualValues(t, 1, fired[i].Load()+stopped[i].Load(), "timer %d", i)
		}
		assert.Zero(t, b.Len())
	})
}

func TestConcurrentSetsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired atomic.Int64
		b := newBed(t, func(_ *bed, due []*timer.Timer) { fired.Add(int64(len(due))) })
		timers := make([]timer.Timer, 64)
		var group sync.WaitGroup
		for k := range 4 {
			group.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(k), 5))
				for range 500 {
					one := &timers[rng.IntN(len(timers))]
					b.Set(one, b.now()+span(rng, time.Minute))
					if rng.IntN(2) == 0 {
						b.Stop(one)
					}
					time.Sleep(span(rng, 10*time.Millisecond))
				}
			})
		}
		group.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, b.Len())
		assert.Positive(t, fired.Load())
	})
}

func TestCloseWaitsForFireAndKeepsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Bool
		b := newBed(t, func(*bed, []*timer.Timer) {
			time.Sleep(time.Second)
			over.Store(true)
		})
		var first, second, third timer.Timer
		b.Set(&first, time.Millisecond)
		b.Set(&second, 2*time.Millisecond)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		b.Close()
		assert.True(t, over.Load())

		b.Set(&third, 0)
		b.Set(&second, 0)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, b.Len())
		assert.True(t, b.Stop(&second))
		assert.False(t, b.Stop(&third))
		b.Close()
	})
}

func TestCloseOfAnUnusedWheel(t *testing.T) {
	w := timer.New(func() time.Duration { return 0 })
	w.Close()
	var one timer.Timer
	w.Set(&one, 0)
	assert.Zero(t, w.Len())
}

func TestSetAndStopDoNotAllocate(t *testing.T) {
	w := timer.NewBatched(func() time.Duration { return 0 }, func([]*timer.Timer) {})
	defer w.Close()
	timers := make([]timer.Timer, 100)
	w.Set(&timers[0], time.Hour)
	rng, i := rand.New(rand.NewPCG(1, 1)), 0
	assert.Zero(t, testing.AllocsPerRun(10_000, func() {
		one := &timers[i%len(timers)]
		w.Set(one, time.Second+time.Duration(rng.Int64N(int64(24*time.Hour))))
		if i++; i%3 == 0 {
			w.Stop(one)
		}
	}))
}
