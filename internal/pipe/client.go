package pipe

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a client of a server in this process, over connections that dial makes. It works in a bubble of testing/synctest.
func Client(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:   "embedded",
		Dialer: dial,
		// The server does not know them, and a look-up of the address, for the type of the endpoint, would leave a user's synctest bubble.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
}
