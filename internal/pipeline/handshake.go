package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/script"
)

// handshake marks the error of a connection that the server closes before the first call, as one without a place for it: go-redis sends
// the call on a connection whose greeting was answered with an error, and what is known of it then is only that its connection broke.
type handshake struct{}

func (handshake) DialHook(next redis.DialHook) redis.DialHook { return next }

func (handshake) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil || cmd.Name() != "hello" || ctx.Err() != nil || !turnedAway(err) {
			return err
		}
		if reply := redis.Error(nil); errors.As(err, &reply) {
			err = errors.New(err.Error()) // go-redis goes on after an error reply
		}
		err = fmt.Errorf("greeting: %w", fmt.Errorf("%w: %w", script.ErrTurnedAway, err)) // go-redis takes off one layer
		cmd.SetErr(err)
		return err
	}
}

func (handshake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// turnedAway reports whether the server had no place for a connection, or closed it unasked.
func turnedAway(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		return strings.HasPrefix(err.Error(), "ERR max number of clients reached")
	}
	var network net.Error
	return !errors.As(err, &network) || !network.Timeout()
}
