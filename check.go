package redlatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

// Check returns an error that says what the Redis behind a go-redis client lacks for this library: it does not answer,
// it does not know some of the commands, or the user may not run them. Run it once at the start of a program that calls
// [New]; [Open] does the same. Without it a call that needs what is missing fails, and names Check in its error. The
// options are those of New: the name prefix decides which names the user must be allowed.
//
// It waits for Redis until ctx is done, or for the call timeout of 10 s if ctx has no deadline (see [WithCallTimeout]),
// and then returns [ErrUnavailable]. Of a cluster it asks every master for its commands, and each that may have names of this client
// for the rights, since each has its own users; one with a few slots may be left out. A server older than Redis 7.0
// cannot tell the rights of its user, and one that refuses COMMAND does not tell its commands: Check finds nothing
// there. It costs five round trips at most, and three more for each further master.
func Check(ctx context.Context, rdb redis.UniversalClient, opts ...Option) error {
	c, err := New(rdb, opts...)
	if err != nil {
		return err
	}
	if ctx == nil {
		err = core.ErrNilContext
	} else {
		_, err = c.check(ctx, rdb)
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("redlatch: check: %w", err)
	}
	return nil
}

// Ping sends a PING to each master that the client uses, all at the same time, and returns nil when each has answered: for
// readiness probes. It asks neither for commands nor for rights, as [Check] does.
//
// It returns [ErrUnavailable] if a master does not answer, or the error that it replied with, and [ErrClosed] once the client
// closes. It ends with ctx or the call timeout (see [WithCallTimeout]), and costs one round trip to each master.
func (c *Client) Ping(ctx context.Context) error {
	_, err := core.Step(ctx, c.core, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.ping(ctx) })
	if err != nil {
		return fmt.Errorf("redlatch: ping: %w", err)
	}
	return nil
}

func (c *Client) ping(ctx context.Context) error {
	masters, err := c.core.Batch.Masters(ctx)
	pongs := make(chan error, len(masters))
	for _, master := range masters {
		go func() { pongs <- master.Ping(ctx).Err() }()
	}
	for range masters {
		err = cmp.Or(err, <-pongs)
	}
	return err
}

// check is Check for a client that was just made. It returns the eviction policy of Redis.
func (c *Client) check(ctx context.Context, rdb redis.UniversalClient) (policy string, err error) {
	ctx, cancel := c.core.Bound(ctx)
	defer cancel()
	policy, err = greet(ctx, rdb)
	if err != nil {
		return "", fmt.Errorf("ping: %w", core.Conclude(ctx, script.NotDone, err))
	}
	told := make(chan error, 1) // its goroutine ends with go-redis's own time-outs, if it does not with ctx
	go func() { told <- knows(ctx, rdb, c.core.Commands()) }()
	select {
	case err = <-told:
	case <-ctx.Done():
		err = core.Conclude(ctx, script.NotDone, script.ErrNoAnswer)
	}
	if err != nil {
		return "", err
	}
	return policy, c.permitted(ctx, rdb)
}

// permitted returns an error that names the rights that the Redis user lacks, and the master of a cluster that told it.
func (c *Client) permitted(ctx context.Context, rdb redis.UniversalClient) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return c.core.Probe(ctx, "probe")
	}
	asked := map[string]bool{}
	for n := range 1000 { // enough for each master that has at least a hundredth of the slots
		name := fmt.Sprint("probe", n) // without a hash tag, so that the channel's name has the form that users are allowed
		node, err := cluster.MasterForKey(ctx, c.core.Prefix+name)
		if err != nil {
			return core.Conclude(ctx, script.NotDone, err)
		}
		addr := node.Options().Addr
		if asked[addr] {
			continue
		}
		asked[addr] = true
		if err := c.core.Probe(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	return nil
}

// knows returns an error that names those of the commands which a server does not know.
func knows(ctx context.Context, rdb redis.UniversalClient, commands []string) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return knowsAll(ctx, node, commands) })
		if script.Judge(err) == script.Unknown && !errors.Is(err, errLacks) {
			err = core.Conclude(ctx, script.NotDone, err)
		}
		return err
	}
	single, _ := rdb.(*redis.Client)
	return knowsAll(ctx, single, commands)
}

func knowsAll(ctx context.Context, node *redis.Client, commands []string) error {
	args := []any{"command", "info"}
	for _, command := range commands {
		args = append(args, command)
	}
	known, err := node.Do(ctx, args...).Slice()
	if err != nil || len(known) != len(commands) {
		return nil //nolint:nilerr // it does not tell
	}
	var unknown []string
	for i, command := range commands {
		if known[i] == nil {
			unknown = append(unknown, strings.ToUpper(command))
		}
	}
	if unknown == nil {
		return nil
	}
	oldest := "Redis 6.2"
	if slices.Contains(commands, "waitaof") {
		oldest = "Redis 7.2"
	}
	return fmt.Errorf("%w: %s does not know %s; the oldest that do are %s and Valkey 7.2", errLacks, node.Options().Addr, strings.Join(unknown, ", "), oldest)
}

var errLacks = errors.New("the server lacks commands")
