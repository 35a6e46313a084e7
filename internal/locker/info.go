package locker

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
)

// Info is the state of a lock in Redis at one moment. rlock.Info, which says what the fields are, is made of it.
type Info struct {
	Name    string
	Locked  bool
	Owner   string
	Client  string
	Levels  int
	Left    time.Duration
	Waiting int
	Token   int64
}

// ReadInfo reads what a script answers of a lock's holder: the rest of the lease, the owner and its levels.
func ReadInfo(name string, row *script.Row) Info {
	left, owner, levels := row.Int(), row.Text(), row.Int()
	if left == core.Free {
		return Info{Name: name}
	}
	return Info{Name: name, Locked: true, Owner: owner, Client: core.ClientOf(owner), Levels: int(levels), Left: core.Left(left)}
}

// ReadInspected reads the reply to Inspect or InspectAll of a [Kind].
func ReadInspected(name string, c *script.Call) (Info, error) {
	row := c.Row()
	info := ReadInfo(name, row)
	if row.More() {
		info.Token = row.Int()
	}
	return info, row.Err()
}

// Inspect asks Redis who holds the lock, without those who wait. It is for kinds that have Inspect.
func (n *Name) Inspect(ctx context.Context) (Info, error) {
	return n.inspect(ctx, n.manager.kind.Inspect)
}

func (n *Name) inspect(ctx context.Context, call func(key string) *script.Call) (Info, error) {
	answer, err := n.Ask(ctx, call)
	if err != nil {
		return Info{}, err
	}
	return ReadInspected(n.User(), answer)
}

// Ask sends a call that changes nothing, unless the name is a bad one.
func (n *Name) Ask(ctx context.Context, call func(key string) *script.Call) (*script.Call, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	return n.manager.core.Read(ctx, func() *script.Call { return call(n.Key()) })
}

// HoldCount returns how many levels Redis counts for the hold that ctx descends from. It asks nothing if there is none. It is
// for kinds that have Inspect.
func (n *Name) HoldCount(ctx context.Context) (int, error) {
	if ctx == nil {
		return 0, core.ErrNilContext
	}
	hold := n.HoldOf(ctx)
	if hold == nil {
		return 0, n.Check()
	}
	info, err := n.Inspect(ctx)
	if info.Owner != hold.Owner() {
		return 0, err
	}
	return info.Levels, err
}

// Holder asks Redis who holds the lock and how many wait: of several who share it, the one that keeps it longest.
func (n *Name) Holder(ctx context.Context) (Info, error) {
	k, c := n.manager.kind, n.manager.core
	if k.Holder != nil {
		return k.Holder(ctx, n)
	}
	ctx, end := c.Bound(ctx)
	defer end()
	call := k.Inspect
	if k.InspectAll != nil {
		call = k.InspectAll
	}
	info, err := n.inspect(ctx, call)
	if err == nil {
		info.Waiting = presence.Listening(ctx, c, k.Channel(n.Key()))
	}
	return info, err
}

// lookLimit bounds the question of a call that was refused.
const lookLimit = time.Second

// Refused returns the error of a call that was not granted a lock, with its holder if the options ask for that and Redis says it.
func (o *Options) Refused(ctx context.Context, err error, holder func(context.Context) (Info, error)) error {
	if o.Taken == nil || !errors.Is(err, errs.ErrNotAcquired) || errors.Is(err, errs.ErrUnavailable) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	info, lookErr := holder(ctx)
	if lookErr != nil {
		return err
	}
	return o.Taken(info, err)
}
