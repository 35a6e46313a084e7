package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// contestant is a lock library, or a way to use one.
type contestant struct {
	name   string
	open   func(ctx context.Context, s setup) (session, error)
	tuning []setup // settings to try on a contended lock; without a try, the first is used
	shared bool    // holders do not exclude each other
}

// setup says how a contestant connects, and what may be tuned about it. Workers get it as JSON.
type setup struct {
	Addr  string        `json:"addr"`
	Lease time.Duration `json:"lease"`
	Retry time.Duration `json:"retry"` // between two tries, for locks that poll
	// Permits is how many a semaphore has. Semaphores have one name each, whatever key a handle is asked for.
	Permits int `json:"permits"`
	// NoTracking makes rueidislock poll every Retry instead of waiting for the server's invalidation messages.
	NoTracking bool  `json:"no_tracking"`
	Sent       *sent `json:"-"` // counts the commands sent, unless it is nil
}

// session is a contestant's connection to the server.
type session interface {
	// handle returns a lock on key for one goroutine.
	handle(key string) handle
	close() error
}

// handle is one goroutine's view of a lock. It keeps what Unlock needs, so that no contestant pays for a closure.
type handle interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

const (
	redlatchName = "redlatch"
	noBudgetName = "redlatch, budget 0"
	rawName      = "raw floor"
	plainName    = "plain EVALSHA"
	autoName     = "AutoPipeline"
	bsmName      = "bsm/redislock"
	redsyncName  = "redsync"
	rueidisName  = "rueidislock"

	silentName = "without presence"
	sitesName  = "call sites"
	emptyName  = "empty observer"
	promName   = "redlatchprom"
	otelName   = "redlatchotel, 1 %"

	fairName    = "fair"
	readName    = "read"
	writeName   = "write"
	multiName   = "multi-lock of 3"
	readersName = "readers of one lock"

	semaphoreName = "Semaphore"
	permitName    = "PermitSemaphore"
	counterName   = "Lua token counter"
	inProcessName = "x/sync/semaphore"

	limiterName   = "Limiter"
	redisRateName = "redis_rate"
	throttledName = "throttled"

	electionName = "Election"
	onceName     = "Once"
	setNXName    = "SET NX, polling"
	barrierName  = "Barrier"
	countName    = "INCR and PUBLISH"
	idsName      = "IDGenerator"
	timedIDsName = "with a time"
	uuidName     = "uuid v7"
	incrName     = "INCR"
	topicName    = "Topic"
	publishName  = "bare PUBLISH"
	gridName     = "grid"
	goRedisName  = "go-redis"
	redissonName = "Redisson"
	rcacheName   = "rcache"
	goCacheName  = "go-redis/cache, Once"
	goCacheGet   = "go-redis/cache, Get"
	asideName    = "rueidisaside"
	quietName    = "grid, others written"
	ignorantName = "expirable LRU"
)

const lease = 30 * time.Second

func allContestants() []contestant {
	return []contestant{
		{name: redlatchName, open: openRedlatch},
		{name: noBudgetName, open: openRedlatchNoBudget},
		{name: silentName, open: openSilent},
		{name: sitesName, open: openWithSites},
		{name: emptyName, open: openObserved(emptyObserver)},
		{name: promName, open: openObserved(prometheusObserver)},
		{name: otelName, open: openObserved(otelObserver)},
		{name: rawName, open: openRaw, tuning: polling()},
		{name: plainName, open: openPlain, tuning: polling()},
		{name: autoName, open: openAutoPipeline, tuning: polling()},
		{name: bsmName, open: openBSM, tuning: polling()},
		{name: redsyncName, open: openRedsync, tuning: polling()},
		{name: rueidisName, open: openRueidis, tuning: rueidisTuning()},
		{name: fairName, open: openKind(fairLock)},
		{name: readName, open: openKind(readLock), shared: true},
		{name: writeName, open: openKind(writeLock)},
		{name: multiName, open: openKind(multiLock)},
		{name: readersName, open: openKind(readersOfOne), shared: true},
		{name: semaphoreName, open: openSemaphore},
		{name: permitName, open: openPermits},
		{name: counterName, open: openCounter, tuning: polling()},
		{name: inProcessName, open: openInProcess},
		{name: limiterName, open: openLimiter, shared: true},
		{name: redisRateName, open: openRedisRate, shared: true},
		{name: throttledName, open: openThrottled, shared: true},
		{name: electionName, open: openElection},
		{name: topicName, open: openTopic, shared: true},
		{name: publishName, open: openPublish, shared: true},
	}
}

// contestants returns those with the given names, in the order of names.
func contestants(names ...string) []contestant {
	var found []contestant
	for _, name := range names {
		for _, c := range allContestants() {
			if c.name == name {
				found = append(found, c)
			}
		}
	}
	return found
}

// polling ends at 10 ms: beyond, one goroutine has the lock nearly to itself and the others sleep, so that sections/s
// approaches what a single uncontended goroutine reaches (measured at 30 ms: a Jain index of 0.2 to 0.4).
func polling() []setup {
	return []setup{
		{Retry: 3 * time.Millisecond},
		{Retry: 300 * time.Microsecond},
		{Retry: time.Millisecond},
		{Retry: 10 * time.Millisecond},
	}
}

// newGoRedis gives every go-redis client the same pool. The default of 10 connections per CPU costs the plain clients
// up to a fifth of their throughput at 256 goroutines.
func newGoRedis(s setup) *redis.Client {
	options := &redis.Options{Addr: s.Addr, PoolSize: 100}
	if s.Sent != nil {
		options.Dialer = s.Sent.dial
	}
	return redis.NewClient(options)
}

// pause waits between two tries, with a timer that its owner reuses.
type pause struct{ timer *time.Timer }

func (p *pause) wait(ctx context.Context, d time.Duration) error {
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-ctx.Done():
		p.timer.Stop()
		return ctx.Err()
	case <-p.timer.C:
		return nil
	}
}
