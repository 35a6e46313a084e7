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

var probe = script.New(probeSource) //nolint:gochecknoglobals // a constant in all but name

// scriptCommands are the commands that the library's scripts run.
const scriptCommands = "decr decrby del exists get hdel hexists hget hgetall hlen hmget hset hsetnx incrby lindex llen lpop lrange lrem mget " +
	"persist pexpire pttl rpush sadd set sismember time zadd zcard zcount zincrby zmscore zrange zrangebyscore zrank zrem " +
	"zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore"

// Commands returns the commands that a server has to know.
func Commands() []string {
	return append(strings.Fields(scriptCommands), "ping", "eval", "evalsha", "publish", "subscribe", "unsubscribe")
}

// Probe returns an error that names the rights that this client's Redis user lacks: a script that misses one stops half-way. It returns nil
// where Redis cannot tell, and where the user may use names of another prefix only.
func (e *Core) Probe(ctx context.Context) error {
	name, messaging := e.Prefix+"probe", "publish subscribe unsubscribe"
	if e.Batch.Sharded {
		messaging = "spublish ssubscribe sunsubscribe"
	}
	c, err := e.Once(ctx, func() *script.Call {
		return probe.Call(1, name, Prefixed("redisson_lock__channel", name), scriptCommands, messaging)
	})
	if err != nil {
		if script.Judge(err) == script.Unknown || script.Transient(err) || strings.Contains(err.Error(), "to access") {
			return nil //nolint:nilerr // Redis cannot tell just now, or not of this key
		}
		return err
	}
	refused, err := c.StringSlice()
	if err != nil || len(refused) == 0 {
		return err
	}
	return fmt.Errorf("the Redis user has no permission for: %s", strings.Join(refused, ", "))
}
