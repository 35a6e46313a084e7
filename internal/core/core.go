// Package core is what a client's objects share: one identity, one clock, one way to run scripts, one router of
// wake-ups, one wheel of timers and one place where unsettled operations end.
package core

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/pubsub"
)

// Config is what the client's options settle.
type Config struct {
	Lease           time.Duration
	Prefix          string
	ClientName      *string // nil for that of the host and the process
	ID              string  // of the client, as [Config.NewID] returns it; empty for a new one
	Logger          *slog.Logger
	Wakeups         Wakeups        // the channels that wake waiters
	FairWait        *time.Duration // nil for the default of FairTimeout
	RedissonQueue   bool           // fair locks keep their queue as Redisson does
	HandoffBudget   time.Duration
	TokenTTL        time.Duration
	CloseGrace      time.Duration
	CallTimeout     time.Duration          // of calls without a deadline that do not wait for somebody
	Replicas        *pipeline.Confirmation // by replicas; nil for none
	Durability      *pipeline.Confirmation // by the master's disk; nil for none
	Abandon         bool
	SlowWait        time.Duration // a call that waited as long is logged; 0 for none
	SlowHold        time.Duration // a hold that lasted as long is; 0 for none
	WithoutPresence bool          // the client does not listen to a channel of its own
	CallSites       bool          // holds know where they were acquired
	Hooks           events.Hooks
	RedisHooks      []redis.Hook // of go-redis
}

// Wakeups says through which channels waiters are woken.
type Wakeups uint8

// Sharded channels reach the nodes of one slot alone, plain ones every node of a cluster.
const (
	WakeupsAuto    Wakeups = iota // sharded on a cluster
	WakeupsSharded                // sharded
	WakeupsPlain                  // plain
)

// Router is a [pubsub.Router] or a [pubsub.Shards].
type Router interface {
	Join(channel string, l pubsub.Listener) (m *pubsub.Membership, confirmed bool)
	Stats() pubsub.Stats
	Close()
}

// Confirmations returns what a call waits for that has to be confirmed.
func (c *Config) Confirmations() []pipeline.Confirmation {
	var all []pipeline.Confirmation
	for _, one := range []*pipeline.Confirmation{c.Replicas, c.Durability} {
		if one != nil {
			all = append(all, *one)
		}
	}
	return all
}

// FairTimeout returns how long a waiter of a fair lock keeps its place after it died.
func (c *Config) FairTimeout() time.Duration {
	switch {
	case c.FairWait != nil:
		return *c.FairWait
	case c.RedissonQueue:
		return 5 * time.Minute
	}
	return 5 * time.Second
}

// Core is shared by all objects of one client. It is safe for concurrent use.
type Core struct {
	Config
	Redis   redis.UniversalClient // as it was given
	Clock   *clock.Clock
	Events  *events.Events
	Batch   *pipeline.Batcher
	Router  Router         // of wake-ups
	Topics  *pubsub.Router // of plain channels: Router, unless that subscribes to sharded ones
	Timers  *timer.Wheel   // of leases, messages and waiters
	Workers *timer.Workers // for what their tasks start and may wait
	Answers *timer.Workers // to questions, one at a time and beside the client's own work: of 100,000 holds each takes 0.2 s
	Settler *settle.Settler
	Cluster bool

	OnClosed func() error // closes what the client owns; set before the client is in use, or nil

	Waiting atomic.Int64 // waiters that re-check by themselves, to share the budget of re-checks

	unique   []byte // what the id ends with
	sequence atomic.Uint64
	underWay atomic.Int64  // see Begin
	closing  chan struct{} // closed when Close begins
	freed    chan struct{} // 1: something was released, or has ended, while Close waits
	closed   atomic.Bool
	managers sync.Map // reflect.Type -> a function that returns the manager

	histories failovers

	mu      sync.Mutex // guards the rest
	holders []Holder
}

// Client is a client of the library, as the constructors of objects take it. Only *redlatch.Client implements it.
type Client interface {
	ID() string
	core() *Core
}

// Handle is a [Client], and makes one of what embeds it.
type Handle struct{ shared *Core }

// HandleOf returns the handle of a client with this core.
func HandleOf(c *Core) Handle { return Handle{c} }

// ID returns the id of the client.
func (h Handle) ID() string { return h.shared.ID }

func (h Handle) core() *Core { return h.shared }

// Of returns the core of a client. It panics if the client is nil.
func Of(c Client) *Core {
	if IsNil(c) {
		panic("redlatch: the client is nil")
	}
	return c.core()
}

// Holder is a kind of object whose holds Close has to end.
type Holder interface {
	// Verify has Redis asked at once whether what is renewed is still held.
	Verify()
	// Closing ends the contexts of all holds.
	Closing()
	// Open returns the number of holds that are not released yet.
	Open() int
	// Drain releases what is still held, unless it is to be abandoned, and waits for what is under way, until the limit
	// is over.
	Drain(limit time.Duration)
	// Wait waits until then for goroutines that are left: nothing is sent any more.
	Wait(until time.Time)
}

const maxWorkers = 4

// New returns a core over rdb, a *redis.Client or a *redis.ClusterClient. It does no I/O.
func New(rdb redis.UniversalClient, config Config) *Core {
	c := &Core{Config: config, Redis: rdb, Clock: clock.New(), closing: make(chan struct{}), freed: make(chan struct{}, 1)}
	if c.ID == "" {
		c.ID = config.NewID()
	}
	c.unique, _ = hex.DecodeString(c.ID[max(0, len(c.ID)-2*UniqueSize):]) // as NewID wrote it
	c.Logger = config.Logger.With("client", c.ID)
	cluster, isCluster := rdb.(*redis.ClusterClient)
	c.Cluster = isCluster
	c.Batch = pipeline.New(rdb, config.Lease)
	c.Batch.Hook(config.RedisHooks)
	c.Batch.OnAnswered = c.Freed
	c.Batch.Confirmations = config.Confirmations()
	c.Batch.Observer = config.Hooks.Scripts()
	c.Events = events.New(events.Options{
		Hooks: config.Hooks, Logger: c.Logger, Clock: c.Clock, Node: c.Batch.Node,
		SlowWait: config.SlowWait, SlowHold: config.SlowHold, CallSites: config.CallSites,
	})
	c.Batch.Sharded = config.Wakeups == WakeupsSharded || config.Wakeups == WakeupsAuto && isCluster
	o := pubsub.Options{Logger: c.Logger, Sharded: c.Batch.Sharded, OnFailure: c.Batch.Reload, OnReconnect: oneByOne(config.Hooks.Reconnected)}
	plain := o
	plain.Sharded = false
	c.Topics = pubsub.New(rdb, plain)
	switch {
	case c.Batch.Sharded && isCluster:
		c.Router = pubsub.NewSharded(cluster, o)
	case c.Batch.Sharded:
		c.Router = pubsub.New(rdb, o)
	default:
		c.Router = c.Topics
	}
	c.Timers, c.Workers, c.Answers = timer.New(c.Clock.Now), timer.NewWorkers(maxWorkers), timer.NewWorkers(1)
	c.Settler = settle.New(c.Timers, c.Clock, c.Batch, c.Logger)
	return c
}

// oneByOne returns a function that calls fn, one call at a time, though each router has a goroutine; nil for nil.
func oneByOne(fn func()) func() {
	if fn == nil {
		return nil
	}
	var mu sync.Mutex
	return func() {
		mu.Lock()
		defer mu.Unlock()
		fn()
	}
}

// Subscriptions returns the counts of both routers.
func (c *Core) Subscriptions() pubsub.Stats {
	s := c.Router.Stats()
	if c.Router != Router(c.Topics) {
		topics := c.Topics.Stats()
		s.Channels += topics.Channels
		s.Messages += topics.Messages
		s.Reconnects += topics.Reconnects
	}
	return s
}

// Register adds a kind of object to those that Close asks.
func (c *Core) Register(h Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders = append(c.holders, h)
}

// Holders returns the kinds of object that Close has to ask. After Close has begun none is added that could hold anything.
func (c *Core) Holders() []Holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.holders)
}

// NextOwner returns an owner id that nobody has had before.
func (c *Core) NextOwner() string {
	var digits [20]byte
	n := strconv.AppendUint(digits[:0], c.sequence.Add(1), 10)
	var b strings.Builder
	b.Grow(len(c.ID) + 1 + len(n))
	b.WriteString(c.ID)
	b.WriteByte(':')
	b.Write(n)
	return b.String()
}

// NextNumber returns a number above all that the client used before.
func (c *Core) NextNumber() uint64 { return c.sequence.Add(1) }

// Closing is closed when the client begins to close: waits end, new calls are refused.
func (c *Core) Closing() <-chan struct{} { return c.closing }

// Closed reports whether the client has begun to close.
func (c *Core) Closed() bool { return c.closed.Load() }

// Ready refuses a call before any I/O: [ErrNilContext], the end of ctx, or [errs.ErrClosed].
func (c *Core) Ready(ctx context.Context) error {
	switch {
	case ctx == nil:
		return ErrNilContext
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), script.ErrNoAnswer): // of Bound
		return Conclude(ctx, script.NotDone, script.ErrNotSent)
	case ctx.Err() != nil:
		return ctx.Err()
	case c.Closed():
		return errs.ErrClosed
	}
	return nil
}

// ErrNilContext is returned for a context that is nil.
var ErrNilContext = fmt.Errorf("%w: the context is nil", errs.ErrInvalid)

// IsNil reports whether a user has given nothing, or a nil pointer.
func IsNil(given any) bool {
	v := reflect.ValueOf(given)
	return given == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// EndedContext returns a context that has ended, with that cause: the one of a hold that does not exist.
func EndedContext(cause error) context.Context {
	ctx, end := context.WithCancelCause(context.Background()) //nolint:forbidigo // it ends here
	end(cause)
	return ctx
}
