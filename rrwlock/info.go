package rrwlock

import (
	"context"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
)

// Info is the state of a read-write lock in Redis at one moment.
type Info struct {
	// Name is the lock's name.
	Name string
	// Locked reports whether anyone holds the lock, for writing or reading.
	Locked bool
	// Mode says how the lock is held.
	Mode Mode
	// Left is what [Lock.TTL] returns.
	Left time.Duration
	// Writer is who writes; nil if nobody does.
	Writer *Holder
	// Readers are those who read, in no order: all of up to 100, and some of more. A writer who also reads is both.
	Readers []Holder
	// MoreReaders is how many read besides those in Readers. Those that died may count until the next writer tries.
	MoreReaders int
	// Waiting is the number of clients that wait, readers and writers, however many goroutines of each. Writers of the client
	// that writes, which wait without Redis, do not count, see redlatch.Client.Waits; a client that stopped to wait may
	// count for a second more. It is -1 if it is not known: the user may not run PUBSUB, or a node did not answer within
	// a second.
	Waiting int
	// WritersWaiting is the number of clients of this library that have a writer waiting and hold back readers, and one more while
	// readers are held back for writers of Redisson.
	WritersWaiting int
}

// Mode says how a lock is held.
type Mode string

const (
	// Free is the mode of a lock that nobody holds.
	Free Mode = ""
	// Reading is the mode of a lock that readers share.
	Reading Mode = "read"
	// Writing is the mode of a lock that a writer has alone. It may read too.
	Writing Mode = "write"
)

// Holder is a hold of a read-write lock.
type Holder struct {
	// Owner is the owner id of the hold, see [rlock.Hold.Owner].
	Owner string
	// Client is the id of the client that holds it, see redlatch.Client.ID, or the id of Java's.
	Client string
	// Levels is the number of nested levels.
	Levels int
	// Left is the rest of the lease: negative for one without end.
	Left time.Duration
}

// Info returns who holds the lock and how many wait. It blocks and fails as [rlock.Lock.IsLocked] does, and costs two round
// trips, on a cluster three, one of them to all nodes at once, and time in Redis in proportion to what it lists, which is
// bounded: about a millisecond at most. Where a crowd of readers has died and nobody has tried to write since, it costs
// another round trip for each hundred of them.
func (l *Lock) Info(ctx context.Context) (Info, error) {
	if l.err != nil {
		return Info{}, wrap("info", l.Name(), l.err)
	}
	info, err := infoOf(ctx, l.core, &l.write)
	return info, wrap("info", l.Name(), err)
}

func infoOf(ctx context.Context, c *core.Core, n *locker.Name) (Info, error) {
	ctx, end := c.Bound(ctx)
	defer end()
	info, err := look(ctx, n, inspect, "")
	if err == nil {
		info.Waiting = presence.Listening(ctx, c, channelOf(n.Key()))
	}
	return info, err
}

// holder returns the writer, or of those in Readers the one whose lease is the longest, and otherwise what [Lock.Info] says.
func (k common) holder(ctx context.Context, n *locker.Name) (locker.Info, error) {
	info, err := infoOf(ctx, k.core, n)
	who := locker.Info{Name: info.Name, Locked: info.Locked, Left: info.Left, Waiting: info.Waiting}
	if h := info.holder(); h != nil {
		who.Owner, who.Client, who.Levels = h.Owner, h.Client, h.Levels
	}
	return who, err
}

// holder returns the writer, or the listed reader whose lease is the longest; nil for a free lock.
func (i *Info) holder() *Holder {
	if i.Writer != nil {
		return i.Writer
	}
	var longest *Holder
	for n := range i.Readers {
		if h := &i.Readers[n]; longest == nil || h.outlives(longest.Left) {
			longest = h
		}
	}
	return longest
}

// outlives reports whether a hold lasts longer than what has a time left; a negative one has no end.
func (h *Holder) outlives(left time.Duration) bool { return left >= 0 && (h.Left < 0 || h.Left > left) }

// inspect looks at the lock, or at one holder of it.
func (l *Lock) inspect(ctx context.Context, call func(key, cursor, field string) *script.Call, field string) (Info, error) {
	if l.err != nil {
		return Info{}, l.err
	}
	ctx, end := l.core.Bound(ctx)
	defer end()
	return look(ctx, &l.write, call, field)
}

// look is inspect for a name. Of many readers it looks at some, until it has found one that lives.
func look(ctx context.Context, n *locker.Name, call func(key, cursor, field string) *script.Call, field string) (Info, error) {
	cursor := "0"
	for {
		c, err := n.Ask(ctx, func(key string) *script.Call { return call(key, cursor, field) })
		if err != nil {
			return Info{}, err
		}
		info, next, err := inspected(n.User(), cursor, c)
		if err != nil || info.Locked || next == "0" {
			return info, err
		}
		cursor = next
	}
}

// inspected reads the reply of inspect.lua for a cursor, and where to go on.
func inspected(name, cursor string, c *script.Call) (info Info, next string, err error) {
	row := c.Row()
	info = Info{Name: name, Mode: Mode(row.Text()), WritersWaiting: int(row.Int())}
	fields, lives := int(row.Int()), core.Left(row.Int())
	next = row.Text()
	for row.More() {
		field, levels, left := row.Text(), row.Int(), core.Left(row.Int())
		owner, writes := strings.CutSuffix(field, fieldOf("", lease.Write))
		h := Holder{Owner: owner, Client: core.ClientOf(owner), Levels: int(levels), Left: left}
		if writes {
			info.Writer = &h
		} else {
			info.Readers = append(info.Readers, h)
		}
		if h.outlives(info.Left) {
			info.Left = left
		}
	}
	info.Locked = info.Writer != nil || len(info.Readers) > 0
	if !info.Locked {
		info.Mode = Free
	}
	all := len(info.Readers)
	if info.Locked && (cursor != "0" || next != "0") && info.Writer == nil { // there are others; beside readers there is only the mode
		info.Left, all = lives, fields-1
	}
	info.Readers = info.Readers[:min(len(info.Readers), core.MostListed)]
	info.MoreReaders = all - len(info.Readers)
	return info, next, row.Err()
}

// levelsOf returns the levels of an owner in a mode: 0 if it does not hold the lock.
func (i *Info) levelsOf(owner string, mode lease.Mode) int {
	holders := i.Readers
	if mode != lease.Read {
		holders = nil
		if i.Writer != nil {
			holders = []Holder{*i.Writer}
		}
	}
	for _, h := range holders {
		if h.Owner == owner {
			return h.Levels
		}
	}
	return 0
}
