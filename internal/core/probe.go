package core

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed probe.lua
var probeSource string

var probe = script.Embedded("redlatch.probe", &probeSource) //nolint:gochecknoglobals // a constant in all but name

// scriptCommands are the commands that the library's scripts run.
const scriptCommands = "decr decrby del exists get hdel hexists hget hgetall hincrby hlen hmget hscan hset hsetnx incrby lindex llen lpop lpush lrange lrem ltrim mget " +
	"persist pexpire pttl rpush sadd set sismember time zadd zcard zcount zincrby zlexcount zmscore zrange zrangebylex zrangebyscore zrank zrem " +
	"zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore"

// Commands returns the commands that the server has to know.
func (c *Core) Commands() []string {
	all := append(strings.Fields(scriptCommands), "ping", "eval", "evalsha", "publish", "subscribe", "unsubscribe")
	return append(all, c.confirming()...)
}

// confirming returns the commands that wait for confirmations.
func (c *Core) confirming() []string {
	var commands []string
	for _, one := range c.Confirmations() {
		commands = append(commands, one.Command())
	}
	return commands
}

// Probe returns an error that names the rights that this client's Redis user lacks on the node of a name, which no object may have: a
// script that misses one stops half-way. It returns nil where Redis cannot tell, and where the user may use names of another prefix only.
func (c *Core) Probe(ctx context.Context, name string) error {
	name, messaging := c.Prefix+name, "publish subscribe unsubscribe"
	if c.Batch.Sharded {
		messaging = "spublish ssubscribe sunsubscribe"
	}
	reply, err := c.Once(ctx, func() *script.Call {
		return probe.Call(1, name, Prefixed("redisson_lock__channel", name), scriptCommands, messaging, strings.Join(c.confirming(), " "))
	})
	if err != nil {
		if script.Judge(err) == script.Unknown || script.Transient(err) || strings.Contains(err.Error(), "to access") {
			return nil //nolint:nilerr // Redis cannot tell just now, or not of this key
		}
		return err
	}
	refused, err := reply.StringSlice()
	if err != nil || len(refused) == 0 {
		return err
	}
	return fmt.Errorf("the Redis user has no permission for: %s", strings.Join(refused, ", "))
}
