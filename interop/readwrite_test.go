package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestWriteLockPassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, write, write) })
}

func TestReadersWaitForTheWriterOfTheOtherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, write, reading) })
}

func TestWritersWaitForTheReaderOfTheOtherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, reading, write) })
}

func TestReadersOfBothSidesShareTheLock(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		g, j, lag := p.goSide(t), p.javaSide(), faulttest.MeasureLag(t, p.addrs[0])
		for _, writer := range []side{g, j} {
			name := unused("read")
			inGo, inJava := hold(t, g, reading, name), hold(t, j, reading, name)
			waiting := writer.acquire(write, name)
			write.waits(t, p, writer, name)
			require.NoError(t, inJava.release())
			got, err := j.try(write, name, 0)
			require.NoError(t, err)
			assert.False(t, got, "one reader is left")
			require.NoError(t, inGo.release())
			waiting.soon(t, lag)
			require.NoError(t, waiting.release())
		}
	})
}

func TestReadWriteLockIsForcedFromEitherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		forced(t, p, write)
		forced(t, p, reading)
	})
}

func TestWriteLockLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, write, 150) })
}

func TestReadersSeeNoWriteOfTheOtherSide(t *testing.T) {
	const writes, reads = 50, 200
	everywhere(t, func(t *testing.T, p *place) {
		g, j := p.goSide(t), p.javaSide()
		name, counter := unused("write"), unused("counter")
		pending := []<-chan error{g.add(write, name, counter, writes), j.add(write, name, counter, writes)}
		readers := make(chan error, 2)
		go func() { readers <- g.watch(name, counter, reads) }()
		reply := p.java.send(p.java.thread(), "watch", "read", name, counter, strconv.Itoa(reads))
		go func() { readers <- (<-reply).err }()
		for _, done := range append(pending, readers) {
			for range cap(done) {
				select {
				case err := <-done:
					require.NoError(t, err)
				case <-time.After(2 * limit):
					require.Fail(t, "no end")
				}
			}
		}
		n, err := p.rdb().Get(t.Context(), counter).Int()
		require.NoError(t, err)
		assert.Equal(t, 4*writes, n)
	})
}

// watch reads a counter twice under the read lock, so often: nobody may write meanwhile.
func (g *goSide) watch(name, counter string, times int) error {
	lock := g.clients[0].GetReadWriteLock(name)
	for range times {
		err := lock.RDo(context.Background(), func(ctx context.Context) error {
			before, err := g.rdbs[0].Get(ctx, counter).Result()
			after, err2 := g.rdbs[0].Get(ctx, counter).Result()
			if before != after {
				return fmt.Errorf("changed from %q to %q", before, after)
			}
			if errors.Is(err, redis.Nil) && errors.Is(err2, redis.Nil) {
				return nil
			}
			return errors.Join(err, err2)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestJavaReaderIsWokenByADowngradeInGo(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		g, name, lag := p.goSide(t), unused("read"), faulttest.MeasureLag(t, p.addrs[0])
		lock := g.clients[0].GetReadWriteLock(name)
		writer, err := lock.Lock(t.Context())
		require.NoError(t, err)
		reader, err := lock.RLock(writer.Context())
		require.NoError(t, err)
		j := p.javaSide()
		waiting := j.acquire(reading, name)
		reading.waits(t, p, j, name)
		require.NoError(t, writer.Unlock(t.Context()))
		waiting.soon(t, lag)
		require.NoError(t, waiting.release())
		require.NoError(t, reader.Unlock(t.Context()))
	})
}

// stream has four readers of each of two clients follow one another without a gap, each for a moment, until the result is called, which
// returns how often they read. All check that nobody writes meanwhile.
func stream(t *testing.T, p *place, name, counter string) (reads *atomic.Int64, stop func()) {
	t.Helper()
	const each, moment = 4, 20 * time.Millisecond
	reads = &atomic.Int64{}
	over := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		g := p.goSide(t)
		lock := g.clients[0].GetReadWriteLock(name)
		for i := range each {
			readers.Go(func() {
				pause := time.NewTimer(time.Duration(i) * moment / each)
				defer pause.Stop()
				<-pause.C
				for {
					select {
					case <-over:
						return
					default:
					}
					err := lock.RDo(context.Background(), func(ctx context.Context) error {
						before := g.rdbs[0].Get(ctx, counter).Val()
						pause.Reset(moment)
						<-pause.C
						if after := g.rdbs[0].Get(ctx, counter).Val(); after != before {
							return fmt.Errorf("changed from %q to %q", before, after)
						}
						return nil
					})
					if !assert.NoError(t, err) {
						return
					}
					reads.Add(1)
				}
			})
		}
	}
	return reads, sync.OnceFunc(func() { close(over); readers.Wait() })
}

func TestReadersInGoLetAWriterInJavaIn(t *testing.T) {
	const turns, turn, some = 3, 5 * time.Second, 100
	everywhere(t, atOnce(func(t *testing.T, p *place) {
		name, counter, lag := unused("write"), unused("counter"), faulttest.MeasureLag(t, p.addrs[0])
		reads, stop := stream(t, p, name, counter)
		defer stop()
		readOn := func() {
			from := reads.Load()
			redistest.Eventually(t, limit, "readers", func() error {
				if n := reads.Load() - from; n < some {
					return fmt.Errorf("there were %d", n)
				}
				return nil
			})
		}
		var waited []string
		for i := range turns {
			readOn()
			begun, before := time.Now(), reads.Load()
			select {
			case r := <-p.java.send(p.java.thread(), "add", "write", name, counter, "1"):
				require.NoError(t, r.err)
			case <-time.After(limit):
				require.Failf(t, "starved", "turn %d has not come within %v, of %d readers", i, limit, reads.Load()-before)
			}
			took := time.Since(begun)
			assert.Less(t, took, turn+lag.Late(), "turn %d, after %d readers", i, reads.Load()-before)
			waited = append(waited, fmt.Sprintf("%.1f s", took.Seconds()))
		}
		readOn()
		inGo := p.goSide(t).add(write, name, counter, 10)
		_, err := p.java.ask(p.java.thread(), "add", "write", name, counter, "1")
		require.NoError(t, err)
		for range cap(inGo) {
			require.NoError(t, <-inGo)
		}
		readOn()
		stop()
		n, err := p.rdb().Get(t.Context(), counter).Int()
		require.NoError(t, err)
		assert.Equal(t, turns+1+2*10, n, "additions")
		redistest.Eventually(t, limit, "end of every mark", func() error { return marked(t, p, name) })
		t.Logf("a writer in Java waited for %v, beside %d readers in Go", waited, reads.Load())
	}))
}

// marked returns an error if a writer of the lock has left a mark.
func marked(t *testing.T, p *place, name string) error {
	t.Helper()
	marks, err := p.rdb().ZRangeWithScores(t.Context(), "redlatch_rwlock_writers:{"+name+"}", 0, -1).Result()
	require.NoError(t, err)
	if len(marks) > 0 {
		return fmt.Errorf("there are %v", marks)
	}
	return nil
}

func TestReadersInJavaHoldBackNobodyInGo(t *testing.T) {
	everywhere(t, atOnce(func(t *testing.T, p *place) {
		name, counter := unused("read"), unused("counter")
		reads, stop := stream(t, p, name, counter)
		defer stop()
		begun := time.Now()
		reply := p.java.send(p.java.thread(), "watch", "read", name, counter, "1500")
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		for over := false; !over; {
			select {
			case r := <-reply:
				require.NoError(t, r.err)
				over = true
			case <-look.C:
			case <-time.After(limit):
				require.Fail(t, "no end")
			}
			require.NoError(t, marked(t, p, name))
		}
		t.Logf("%.0f readers/s in Go beside 1500 in Java", float64(reads.Load())/time.Since(begun).Seconds())
	}))
}
