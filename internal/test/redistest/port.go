package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are picked below the range that systems hand out by themselves, and so that a port plus busOffset, where a
// cluster node's bus listens, is no other server's port.
const (
	firstPort = 10500
	lastPort  = 20400
	busOffset = 10000
)

// freePort returns a port that is free now, as is its bus port. It is kept from the tests of other processes until the
// test ends, so that none takes it while its server is down for a while; a shared server is never down. Any other
// program may still take it.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		token := reserve(port)
		if token == nil {
			continue
		}
		if free(port) && free(port+busOffset) {
			tb.Cleanup(func() { release(tb, token) })
			return port
		}
		release(tb, token)
	}
	tb.Fatal("redistest: no free port found")
	return 0
}

// reserve returns what says that a port is taken, or nil if it is: the UDP port of the same number, for which no server
// has a use, and which the system takes back when a process ends.
func reserve(port int) net.PacketConn {
	token, err := net.ListenPacket("udp", address(port))
	if err != nil {
		return nil
	}
	return token
}

func release(tb testing.TB, token net.PacketConn) {
	tb.Helper()
	if err := token.Close(); err != nil {
		tb.Errorf("redistest: release a port: %v", err)
	}
}

func free(port int) bool {
	l, err := net.Listen("tcp", address(port))
	return err == nil && l.Close() == nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
