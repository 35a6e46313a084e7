package main

import (
	"context"
	_ "embed"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
)

//go:embed doctor_grid.lua
var refusedSource string

// gridShared are the commands that all packages of the grid need, beside EVAL and EVALSHA.
const gridShared = "persist pexpire pttl type unlink"

// gridRight is what a package of the grid needs besides.
type gridRight struct {
	pkg, commands string
	fenced        bool // it has WithFence
}

// gridRights returns what docs/operations.md lists.
func gridRights() []gridRight {
	return []gridRight{
		{"rbucket", "exists get getdel set", true},
		{"ratomic", "del exists get incrby incrbyfloat set", false},
		{"rmap", "get hdel hexists hget hincrby hincrbyfloat hlen hmget hpexpire hpttl hscan hset hsetnx set", true},
		{"rset", "sadd scard sismember smismember smove spop srandmember srem sscan time zadd zcard zcount zrangebyscore zrem zscan zscore", false},
		{"rsortedset", "zadd zcard zcount zincrby zpopmax zpopmin zrange zrangebyscore zrank zrem zrevrange zrevrank zscan zscore", false},
	}
}

// grid looks for rights that the packages of the grid need. Those of commands that the server does not know are not asked for.
func (d *doctor) grid(ctx context.Context, rdb *redis.Client) error {
	addr, name := rdb.Options().Addr, d.prefix+"redlatch_doctor"
	fence, fine := core.Prefixed("redlatch_fence", name), true
	for _, r := range gridRights() {
		lacks, err := refused(ctx, rdb, name, gridShared+" "+r.commands)
		if errors.Is(err, redis.Nil) {
			d.find(finding{note, "grid", addr, "Redis before 7.0 cannot tell the rights of its user", "Calls may be refused.", "docs/operations.md lists the rights."})
			return nil
		}
		if err == nil && r.fenced && len(lacks) == 0 {
			var none []string
			if none, err = refused(ctx, rdb, fence, "get set"); len(none) > 0 {
				lacks = []string{"the key " + fence}
			}
		}
		if err != nil {
			return err
		}
		if len(lacks) > 0 {
			fine = false
			d.find(finding{
				bad, "grid", addr, r.pkg + ": the user lacks " + strings.Join(lacks, " "), "Calls of the package that need it fail.",
				"Allow it if programs use grid/" + r.pkg + "; docs/operations.md has the list" + d.orPrefix(),
			})
		}
	}
	if fine {
		d.find(finding{Level: good, Check: "grid", Node: addr, Found: "the user may run what the packages of the grid need"})
	}
	return nil
}

// refused returns which of the commands the user of a connection may not run on a key, as rights.
func refused(ctx context.Context, rdb *redis.Client, key, commands string) ([]string, error) {
	all, err := rdb.Eval(ctx, refusedSource, nil, key, commands).StringSlice()
	for i := range all {
		all[i] = "+" + all[i]
	}
	return all, err
}
