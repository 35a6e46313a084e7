package pipe

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a client of a server in this process, over connections that dial makes. It works in a bubble of testing/synctest.
func Client(dial func() (net.Conn, error)) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:   "embedded",
		Dialer: Dialer(dial),
		// The server does not know them, and a look-up of the address, for the type of the endpoint, would leave a user's synctest bubble.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
}

// Dialer returns a dialer of go-redis that fails if its context has ended, as a [net.Dialer] does.
func Dialer(dial func() (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return dial()
	}
}
