package redlatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/presence"
)

// ClientInfo is a client that listens, see [Client.Clients].
type ClientInfo struct {
	// ID is the client's id, see [Client.ID], and Name what it begins with, see [WithClientName].
	ID, Name string
}

// Clients returns the clients with the name prefix of this one that hold or wait for something, or read a cache, in the order of their
// ids: those that have done so for three seconds, and whose connection Redis has not given up. A host that lost power is among them
// until then; a client with [WithoutPresence], or whose user may not use its channel, never is. It costs a round trip to each node.
//
// It fails if the user may not run PUBSUB, and ends with ctx or the call timeout.
func (c *Client) Clients(ctx context.Context) ([]ClientInfo, error) {
	ids, err := presence.Clients(ctx, c.core)
	if err != nil {
		return nil, fmt.Errorf("redlatch: clients: %w", err)
	}
	all := make([]ClientInfo, 0, len(ids))
	for _, id := range ids {
		all = append(all, ClientInfo{ID: id, Name: id[:strings.LastIndexByte(id, '.')]})
	}
	return all, nil
}

// ClientReport is what a client says of itself, see [Client.Ask]. Nobody can tell who has sent it: whoever may publish on the channels
// of clients can forge one. It has no payload, no argument and nothing of the environment.
type ClientReport struct {
	// ID is the client's id.
	ID string
	// Version is that of this library, and Go that of the Go toolchain, with which the program was built.
	Version, Go string
	// Host and PID are the name of the machine and the number of the process.
	Host string
	PID  int
	// Up is how long there has been the client.
	Up time.Duration
	// Holds are the first 1,000 that it has held longest, and Waits the first 1,000; times are on this machine's clock.
	Holds []HoldInfo
	Waits []WaitInfo
	// HoldCount and WaitCount are how many there are.
	HoldCount, WaitCount int
	// Losses are the last 100 things that it held and has lost, the newest first, and LossCount is how many there were since it was made.
	Losses    []LossInfo
	LossCount int
	// Failovers are the last 100 times that the client found a server that had failed over or restarted, the newest first. What is lost
	// within seconds before or after one was most likely lost by it.
	Failovers []FailoverInfo
	// Caches are what it has counted of its caches, and of maps that keep entries near, the first 1,000 by name.
	Caches []CacheInfo
	// Channels are those that the client listens to, Messages what it has received on them, Reconnects how often it has replaced a
	// lost connection for them, and RoundTrips how often it has sent something to Redis.
	Channels             int
	Messages, Reconnects uint64
	RoundTrips           int64
}

// LossInfo is something that a client held, and that ended although nobody released it.
type LossInfo struct {
	// Kind is that of the object, see [Observer], and Name is its name.
	Kind, Name string
	// Owner is as in [HoldInfo].
	Owner string
	// At is when the client learned of it.
	At time.Time
	// Held is for how long it was held.
	Held time.Duration
	// Site is as in [HoldInfo].
	Site string
	// Cause says how it was lost, as the cause of the hold's context does. It is no text to compare.
	Cause string
}

// FailoverInfo is a server that a client found to have failed over or restarted, as it renewed what it holds.
type FailoverInfo struct {
	// Node is the server's address.
	Node string
	// At is when the client learned of it.
	At time.Time
}

// CacheInfo is what a client has counted, since it was made, of all its caches of a name (rcache), or of its maps of a name that keep
// entries near (rmap.WithNear).
type CacheInfo struct {
	// Kind is cache or map, and Name is its name.
	Kind, Name string
	// NearHits are the reads that the client answered itself, and Hits those that a value in Redis did; 0 for a map.
	NearHits, Hits uint64
	// Misses are the reads of a cache that had to load, or to wait for a load, and those of a map that asked Redis.
	Misses uint64
	// Stale are those among Hits that returned an old value, which somebody refreshes then; see rcache.WithRefresh.
	Stale uint64
	// Loads are the calls of the loader, and Failures those that failed.
	Loads, Failures uint64
	// Near is what the client keeps itself; nil without WithNear.
	Near *NearInfo
}

// NearInfo is what a client keeps of a cache or a map itself.
type NearInfo struct {
	// Entries are how many it keeps, including some that are over.
	Entries int
	// Invalidations are the keys of which messages said that they have changed; 1 for a change of a whole map.
	Invalidations uint64
	// Connected reports whether the client receives the messages of changes: otherwise it keeps nothing, and each read asks Redis.
	// Since is since when that is so.
	Connected bool
	Since     time.Time
	// Heard is when the last message came; zero for none.
	Heard time.Time
	// MaxStale is for how long an entry is returned at the most, from when Redis was asked for it.
	MaxStale time.Duration
}

// Ask asks another client, or this one, what it holds and waits for, and how its caches do. It returns [ErrNotListening] if the client
// is gone, does not listen (see [Client.Clients]), as in its first three seconds of use, or does not answer within three seconds: a
// client answers at most ten questions in a second. Both clients must have the same name prefix. An id that cannot be a client's
// returns [ErrInvalid].
//
// The answer comes over the subscription connection, which Ask opens if there is none. Ask ends with ctx or the call timeout.
func (c *Client) Ask(ctx context.Context, id string) (ClientReport, error) {
	r, err := presence.Ask(ctx, c.core, id, "")
	if err != nil {
		return ClientReport{}, fmt.Errorf("redlatch: ask: %w", err)
	}
	return ClientReport{
		ID: r.ID, Version: r.Library, Go: r.Go, Host: r.Host, PID: r.PID, Up: r.Up,
		Holds:     each(r.Holds, func(h presence.Hold) HoldInfo { return HoldInfo(h) }),
		Waits:     each(r.Waits, func(w presence.Wait) WaitInfo { return WaitInfo(w) }),
		HoldCount: r.HoldCount, WaitCount: r.WaitCount,
		Losses:    each(r.Losses, func(l events.Loss) LossInfo { return LossInfo(l) }),
		LossCount: r.LossCount,
		Failovers: each(r.Failovers, func(f events.Failover) FailoverInfo { return FailoverInfo(f) }),
		Caches:    each(r.Caches, cacheInfo),
		Channels:  r.Channels, Messages: r.Messages, Reconnects: r.Reconnects, RoundTrips: r.RoundTrips,
	}, nil
}

func cacheInfo(c presence.Cache) CacheInfo {
	return CacheInfo{
		Kind: c.Kind, Name: c.Name, NearHits: c.NearHits, Hits: c.Hits, Misses: c.Misses, Stale: c.Stale,
		Loads: c.Loads, Failures: c.Failures, Near: (*NearInfo)(c.Near),
	}
}

// each returns what as makes of each of them.
func each[A, B any](all []A, as func(A) B) (converted []B) {
	for _, one := range all {
		converted = append(converted, as(one))
	}
	return converted
}
