// Package once has callers of one key run one at a time, over all processes, and those who wait for a run get its result. It is
// what ronce and rcache share: a key has a claim of one owner, who runs, and a result, which answers all who wait.
package once

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	// MaxValue is the longest encoded value, in bytes.
	MaxValue = 1 << 20

	maxText = 4 << 10 // of an error that is kept
	ended   = "1"     // the message of a run that has ended, with a result or without
)

// ErrLost is [errs.ErrLost] in the words of claims.
var ErrLost = errs.Of("claim", errs.ErrLost)

// Names say how keys and channels begin, with a colon at the end.
type Names struct{ Keys, Channels string }

// Kind is a kind of claims: its name, see package kinds, its keys and its scripts.
type Kind struct {
	Name string
	Names

	// Claim asks for the claim of a key. Its reply is an array: -2 for one that was granted, -3 and a [Result], or for how many
	// ms somebody else has it, -1 for ever.
	Claim func(a locker.AcquireArgs) *script.Call
	// Release takes the key, the owner and the channel, Renew some keys, the lease, and their owners.
	Release, Renew *script.Script
}

// Claims are the claims of a kind in a client. They are safe for concurrent use.
type Claims struct {
	*locker.Manager
	core *core.Core
	kind Kind
}

// New returns the claims of a client. A claim is, as package locker sees it, a leased permit of which there is one, until there is a
// result. No level of it nests and none is extended, so that it has no Keep.
func New(c *core.Core, k Kind) *Claims {
	held := lease.Kind{
		Name: k.Name, Noun: "claim", Named: k.nameIn, Channel: k.Channel, Acquired: claimed, Release: k.release, Renew: k.renew,
	}
	kind := &locker.Kind{
		Kind: held, Acquire: k.Claim,
		Sharing: locker.Pool, Permits: permits,
		NewOwner: func(c *core.Core, _ int) any { return c.NextOwner() }, Split: func(owner any) []any { return []any{owner} },
	}
	return &Claims{locker.NewManager(locker.NewNamespace(c), kind), c, k}
}

// KeyOf returns the Redis key of a key of the object with a name.
func (n Names) KeyOf(name, key string) string { return core.Keyed(n.Keys, name, key) }

// nameIn returns the name in such a Redis key.
func (n Names) nameIn(redisKey string) string {
	if name, ok := core.KeyedName(n.Keys, redisKey); ok {
		return name
	}
	return redisKey
}

// Channel returns where the end of the runs for a Redis key is announced.
func (n Names) Channel(redisKey string) string {
	return n.Channels + strings.TrimPrefix(redisKey, n.Keys)
}

// permits returns how many waiters of a client are to ask after a message: the first one, as a result is the answer for all of them.
func permits(payload string) int {
	if payload == ended {
		return 1
	}
	return 0
}

func claimed(c *script.Call) (lease.Reply, error) {
	row := c.Row()
	left := row.Int()
	switch left {
	case -1:
		return lease.Reply{TTL: -1}, row.Err()
	case -2:
		return lease.Reply{Granted: true}, row.Err()
	case -3:
		r := ReadResult(row)
		return lease.Reply{Instead: &r}, row.Err()
	}
	return lease.Reply{TTL: time.Duration(left) * time.Millisecond}, row.Err()
}

func (k *Kind) release(key, owner any) *script.Call {
	redisKey, _ := key.(string)
	return k.Release.Call(1, key, owner, k.Channel(redisKey))
}

func (k *Kind) renew(_ lease.Mode, keys, owners []any, length time.Duration) *script.Call {
	args := append(make([]any, 0, 2*len(keys)+1), keys...)
	args = append(args, script.Millis(length))
	return k.Renew.Call(len(keys), append(args, owners...)...)
}

// The words for a result in Redis.
const (
	Value   = "value"
	Failure = "error"
)

// Result is what a run has left for others. It is the error of a call that waited for a claim, and need not have it any more.
type Result struct {
	Kind string // one of the words
	Data string // the encoded value, or the error's text
}

func (*Result) Error() string { return "a result is kept" }

// Is says that the claim was not acquired, for those who observe it.
func (*Result) Is(target error) bool { return target == errs.ErrNotAcquired }

// ReadResult reads a result from a reply.
func ReadResult(row *script.Row) Result { return Result{Kind: row.Text(), Data: row.Text()} }

// Failed returns the failure of a run as a result.
func Failed(failure error) Result {
	text := fmt.Sprint(failure) // which bears an Error that panics
	return Result{Kind: Failure, Data: strings.ToValidUTF8(text[:min(len(text), maxText)], "")}
}

// CheckSize returns an error if an encoded value is too long.
func CheckSize(data []byte) error {
	if len(data) > MaxValue {
		return fmt.Errorf("the encoded value has %d bytes, more than %d", len(data), MaxValue)
	}
	return nil
}

// Ended returns what the end of a claim means for its run.
func (c *Claims) Ended(claim *lease.Hold, err error) error {
	switch {
	case !errors.Is(err, errs.ErrNotHeld):
		return err
	case c.core.Closed() && !errors.Is(context.Cause(claim.Context()), errs.ErrLost):
		return errs.ErrClosed
	}
	return ErrLost
}

// LogUnreleased logs that a claim was left to its lease, by the error of its end: the caller gets another one, or none.
func (c *Claims) LogUnreleased(claim *lease.Hold, err error) {
	if err != nil && !errors.Is(err, errs.ErrLost) && !errors.Is(err, errs.ErrClosed) {
		c.core.Logger.Warn("redlatch: a claim was not released",
			"kind", c.kind.Name, "name", claim.Name(), "owner", claim.Owner(), "cause", err)
	}
}
