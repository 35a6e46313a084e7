package pipe_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWriteDoesNotWaitForTheOtherEnd(t *testing.T) {
	near, far := net.Pipe()
	c := pipe.Buffer(near)
	for range 100 {
		_, err := c.Write([]byte("0123456789"))
		require.NoError(t, err)
	}
	got := make([]byte, 1000)
	for n := 0; n < len(got); {
		k, err := far.Read(got[n:])
		require.NoError(t, err)
		n += k
	}
	assert.Equal(t, "01234567890123456789", string(got[980:]))
	require.NoError(t, c.Close())
	_, err := c.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestCloseEndsAPumpThatNobodyReads(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := pipe.Buffer(near)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, c.SetWriteDeadline(time.Now()))
	require.NoError(t, c.Close())
}
