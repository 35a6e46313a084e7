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

// gridShared are the commands for what is about a whole object.
const gridShared = "persist pexpire pttl type unlink"

// gridRight is what a package of the grid needs, beside EVAL and EVALSHA.
type gridRight struct {
	pkg, commands string
	fenced        bool // it has WithFence
	cache         bool // it has a key for each entry, and nothing that is about all of them
}

func (r gridRight) all() string {
	if r.cache {
		return r.commands
	}
	return gridShared + " " + r.commands
}

// key returns the key of an object, or of an entry.
func (r gridRight) key(name string) string {
	if r.cache {
		return core.Prefixed("redlatch_cache:1", name)
	}
	return name
}

// gridRights returns what docs/operations.md lists.
func gridRights() []gridRight {
	return []gridRight{
		{pkg: "rbucket", commands: "exists get getdel set", fenced: true},
		{pkg: "ratomic", commands: "del exists get incrby incrbyfloat set"},
		{pkg: "rcache", commands: "hdel hget hmget hset pexpire pexpireat pttl time unlink", cache: true},
		{pkg: "rmap", commands: "get hdel hexists hget hincrby hincrbyfloat hlen hmget hpexpire hpttl hscan hset hsetnx set", fenced: true},
		{pkg: "rset", commands: "sadd scard sismember smismember smove spop srandmember srem sscan time zadd zcard zcount zrangebyscore zrem zscan zscore"},
		{pkg: "rsortedset", commands: "zadd zcard zcount zincrby zpopmax zpopmin zrange zrangebyscore zrank zrem zrevrange zrevrank zscan zscore"},
	}
}

// grid looks for rights that the packages of the grid need. Those of commands that the server does not know are not asked for.
func (d *doctor) grid(ctx context.Context, rdb *redis.Client) error {
	addr, name := rdb.Options().Addr, d.prefix+"redlatch_doctor"
	if known, err := rdb.Do(ctx, "command", "info", "hpexpire").Slice(); err == nil && len(known) == 1 && known[0] == nil {
		d.find(finding{
			note, "grid", addr, "the server has no times to live of entries of maps", "Calls of rmap with them return ErrUnsupported.",
			"Redis 7.4 and Valkey 9 have them.",
		})
	}
	fine := true
	for _, r := range gridRights() {
		lacks, err := refused(ctx, rdb, r.key(name), r.all())
		if errors.Is(err, redis.Nil) {
			d.find(finding{note, "grid", addr, "Redis before 7.0 cannot tell the rights of its user", "Calls may be refused.", "docs/operations.md lists the rights."})
			return nil
		}
		if err == nil && r.fenced && len(lacks) == 0 {
			lacks, err = refused(ctx, rdb, core.Prefixed("redlatch_fence", name), "get set")
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

// refused returns which of the commands the user of a connection may not run on a key, as rights; the key if that is all of them.
func refused(ctx context.Context, rdb *redis.Client, key, commands string) ([]string, error) {
	reply, err := rdb.Eval(ctx, refusedSource, nil, key, commands).StringSlice()
	if err != nil || len(reply) == 0 {
		return nil, err
	}
	if reply[0] == "all" {
		return []string{"the key " + key}, nil
	}
	lacks := reply[1:]
	for i := range lacks {
		lacks[i] = "+" + lacks[i]
	}
	return lacks, nil
}
