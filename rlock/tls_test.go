package rlock_test

import (
	"crypto/tls"
	"log"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// Nothing was sent: nothing may have been granted, and waiting helps nobody.
func TestHandshakeThatFailsIsNoUnknownOutcome(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()
	go func() { // ends with the listener
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("-ERR no TLS is spoken here\r\n")) // it need not be read
			_ = conn.Close()
		}
	}()
	untrusted := httptest.NewUnstartedServer(nil)
	untrusted.Config.ErrorLog = log.New(t.Output(), "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()

	for name, addr := range map[string]string{"no TLS": plain.Addr().String(), "a certificate that nobody trusts": untrusted.Listener.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			c := clientOver(t, &redis.Options{Addr: addr, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}})
			start := time.Now()
			for verb, err := range locktest.Acquiring(t.Context(), c.GetLock("orders")) {
				require.Error(t, err, verb)
				assert.NotErrorIs(t, err, redlatch.ErrUnknown, verb)
				assert.ErrorContains(t, err, "tls: ", verb)
			}
			assert.Less(t, time.Since(start), 10*time.Second, "far from a lease, after which Lock would give up in any case")
		})
	}
}
