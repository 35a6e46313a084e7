package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// nodes is how many independent servers a RedLock has here.
const nodes = 5

// redlock measures pairs of Lock and Unlock per second of a lock on five servers, where nobody else wants it.
func redlock(ctx context.Context, b *bench) (rows []row, err error) {
	var servers []*server
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.stop())
		}
	}()
	for range nodes {
		s, err := startServer(ctx, b.config.redis)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	ours, err := openRedlatchNodes(servers)
	if err != nil {
		return nil, err
	}
	open := []opened{
		{contestant{name: redlatchName}, ours},
		{contestant{name: redsyncName}, openRedsyncNodes(servers)},
	}
	defer closeAll(open)
	for _, l := range []level{{1, false, "1 goroutine"}, {16, false, "16 goroutines"}, {64, false, "64 goroutines"}} {
		found, err := l.measure(ctx, b, open)
		if err != nil {
			return nil, err
		}
		progress("RedLock, %s: redlatch %s, redsync %s pairs/s", l.label, figure(median(found[redlatchName])), figure(median(found[redsyncName])))
		r := row{Measure: fmt.Sprintf("RedLock on %d servers, %s: pairs/s", nodes, l.label), Cells: found.cells(), Rounds: found}
		if l.goroutines == 16 {
			r.Targets = []target{atLeast("× redsync", 1.5, found.ratio(redlatchName, redsyncName))}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// redlatchNodes are clients of independent servers.
type redlatchNodes struct {
	pools   []*redis.Client
	clients []*redlatch.Client
}

func openRedlatchNodes(servers []*server) (*redlatchNodes, error) {
	n := &redlatchNodes{}
	for _, s := range servers {
		rdb := newGoRedis(setup{Addr: s.addr})
		n.pools = append(n.pools, rdb)
		client, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease))
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.clients = append(n.clients, client)
	}
	return n, nil
}

func (n *redlatchNodes) handle(key string) handle {
	var locks []rlock.Locker
	for _, c := range n.clients {
		locks = append(locks, c.GetLock(key))
	}
	return &redlatchHandle{lock: n.clients[0].GetRedLock(locks...)}
}

func (n *redlatchNodes) close() error {
	var err error
	for _, c := range n.clients {
		err = errors.Join(err, c.Close())
	}
	for _, rdb := range n.pools {
		err = errors.Join(err, rdb.Close())
	}
	return err
}

// redsyncNodes is redsync over independent servers.
type redsyncNodes struct {
	pools []*redis.Client
	sync  *redsync.Redsync
}

func openRedsyncNodes(servers []*server) *redsyncNodes {
	n := &redsyncNodes{}
	var pools []redsyncredis.Pool
	for _, s := range servers {
		rdb := newGoRedis(setup{Addr: s.addr})
		n.pools = append(n.pools, rdb)
		pools = append(pools, goredis.NewPool(rdb))
	}
	n.sync = redsync.New(pools...)
	return n
}

func (n *redsyncNodes) handle(key string) handle {
	return &redsyncHandle{mutex: n.sync.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt32))}
}

func (n *redsyncNodes) close() error {
	var err error
	for _, rdb := range n.pools {
		err = errors.Join(err, rdb.Close())
	}
	return err
}
