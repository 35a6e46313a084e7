package interop_test

import (
	"context"
	"sync"
	"testing"

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
			reading.waits(t, p, writer, name)
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

func TestJavaWriterEntersBetweenGoReaders(t *testing.T) {
	known(t, "readers in Go are not held back by a writer in Java")
	everywhere(t, func(t *testing.T, p *place) {
		g, name := p.goSide(t), unused("write")
		ctx, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		defer readers.Wait()
		defer stop()
		for range 4 {
			readers.Go(func() { // until stop
				for ctx.Err() == nil {
					_ = g.clients[0].GetReadWriteLock(name).RDo(ctx, func(ctx context.Context) error {
						return p.rdb().Ping(ctx).Err()
					})
				}
			})
		}
		a := p.javaSide().acquire(write, name)
		a.within(t, lease)
		require.NoError(t, a.release())
	})
}

func TestJavaReaderIsToldOfADowngrade(t *testing.T) {
	known(t, "a downgrade is not announced: Java's readers sleep for the TTL that they saw")
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
