package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports are picked below the range that systems hand out by themselves, and so that a port plus busOffset, where a
// cluster node's bus listens, is no other server's port.
const (
	firstPort = 10500
	lastPort  = 20400
	busOffset = 10000
)

// freePort returns a port that is free now, as is its bus port. Another process may take it before it is used.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if free(port) && free(port+busOffset) {
			return port
		}
	}
	tb.Fatal("redistest: no free port found")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	return err == nil && l.Close() == nil
}
