package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		g, j := p.goSide(t), p.javaSide()
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
			waiting.within(t, promptly)
			require.NoError(t, waiting.release())
		}
	})
}

func TestReadWriteLockIsForcedFromEitherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { forced(t, p, write) })
}

func TestWriteLockLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, write, 300) })
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
		g, name := p.goSide(t), unused("read")
		lock := g.clients[0].GetReadWriteLock(name)
		writer, err := lock.Lock(t.Context())
		require.NoError(t, err)
		reader, err := lock.RLock(writer.Context())
		require.NoError(t, err)
		j := p.javaSide()
		waiting := j.acquire(reading, name)
		reading.waits(t, p, j, name)
		require.NoError(t, writer.Unlock(t.Context()))
		waiting.within(t, promptly)
		require.NoError(t, waiting.release())
		require.NoError(t, reader.Unlock(t.Context()))
	})
}
