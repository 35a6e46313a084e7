package interop_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// kind is a kind of object that one at a time can hold, or several readers.
type kind struct {
	java    string        // its name in the commands
	lease   time.Duration // of what Java acquires; 0 where Java renews
	acquire func(ctx context.Context, g *goSide, name string) (grant, error)
	try     func(ctx context.Context, g *goSide, name string, wait time.Duration) (grant, error)
	force   func(ctx context.Context, g *goSide, name string) (bool, error)
	// prepare makes the object; nil where nothing has to be made.
	prepare func(t *testing.T, g *goSide, name string)
	// waits returns once this side waits.
	waits func(t *testing.T, p *place, waiter side, name string)
}

// grant is what Go holds.
type grant struct {
	ctx     context.Context
	release func(context.Context) error
	value   string // a fencing token, or the id of a permit
}

func granted(h *rlock.Hold, err error) (grant, error) {
	return grant{ctx: h.Context(), release: h.Unlock, value: strconv.FormatInt(h.Token(), 10)}, err
}

// lockKind is a kind of lock, opened in Go by open.
func lockKind(java string, open func(g *goSide, name string) rlock.Locker, waits func(*testing.T, *place, side, string)) kind {
	return kind{
		java: java,
		acquire: func(ctx context.Context, g *goSide, name string) (grant, error) {
			return granted(open(g, name).Lock(ctx))
		},
		try: func(ctx context.Context, g *goSide, name string, wait time.Duration) (grant, error) {
			return granted(open(g, name).TryLock(ctx, rlock.WithWait(wait)))
		},
		force: func(ctx context.Context, g *goSide, name string) (bool, error) {
			lock := open(g, name).(interface {
				ForceUnlock(ctx context.Context) (bool, error)
			})
			return lock.ForceUnlock(ctx)
		},
		waits: waits,
	}
}

func onChannel(prefix string) func(t *testing.T, p *place, waiter side, name string) {
	return func(t *testing.T, p *place, _ side, name string) {
		t.Helper()
		p.awaitSubscribers(t, 1, prefix+":{"+name+"}")
	}
}

// inThread is onChannel for messages that Redisson gives only to the threads that have begun to wait: it wakes all readers
// that wait, and as many as a semaphore's message says. One that has only subscribed misses the message.
func inThread(java, prefix string) func(t *testing.T, p *place, waiter side, name string) {
	return func(t *testing.T, p *place, waiter side, name string) {
		t.Helper()
		onChannel(prefix)(t, p, waiter, name)
		if s, ok := waiter.(*javaSide); ok {
			s.j.awaitThread(t, java, name)
		}
	}
}

func inQueue(t *testing.T, p *place, _ side, name string) {
	t.Helper()
	p.awaitQueue(t, name, 1)
}

var (
	plain = lockKind("plain", func(g *goSide, name string) rlock.Locker {
		return g.clients[0].GetLock(name)
	}, onChannel("redisson_lock__channel"))

	fenced = lockKind("fenced", func(g *goSide, name string) rlock.Locker {
		return g.clients[0].GetFencedLock(name)
	}, onChannel("redisson_lock__channel"))

	fair = lockKind("fair", func(g *goSide, name string) rlock.Locker {
		return g.clients[0].GetFairLock(name)
	}, inQueue)

	write = lockKind("write", func(g *goSide, name string) rlock.Locker {
		return g.clients[0].GetReadWriteLock(name)
	}, inThread("write", "redisson_rwlock"))

	reading = func() kind {
		k := lockKind("read", func(g *goSide, name string) rlock.Locker {
			return g.clients[0].GetReadWriteLock(name).RLocker()
		}, inThread("read", "redisson_rwlock"))
		k.force = write.force // of the writer or all readers
		return k
	}()

	multi = lockKind("multi", func(g *goSide, name string) rlock.Locker {
		var members []rlock.Locker
		for _, part := range parts(name) {
			members = append(members, g.clients[0].GetLock(part))
		}
		return g.clients[0].GetMultiLock(members...)
	}, func(t *testing.T, p *place, _ side, name string) {
		t.Helper()
		var channels []string
		for _, part := range parts(name) {
			channels = append(channels, "redisson_lock__channel:{"+part+"}")
		}
		p.awaitSubscribers(t, 1, channels...)
	})

	// member is the last member of a multi-lock alone.
	member = lockKind("member", func(g *goSide, name string) rlock.Locker {
		return g.clients[0].GetLock(lastPart(name))
	}, nil)

	// multiInReverse is a multi-lock whose members Java takes in the other order.
	multiInReverse = func() kind {
		k := multi
		k.java = "reverse"
		return k
	}()

	red = lockKind("red", func(g *goSide, name string) rlock.Locker {
		var members []rlock.Locker
		for _, client := range g.clients {
			members = append(members, client.GetLock(name))
		}
		return g.clients[0].GetRedLock(members...)
	}, func(t *testing.T, p *place, waiter side, name string) {
		t.Helper()
		// In Go no message wakes a RedLock's waiter: it asks again after a random pause.
		if _, ok := waiter.(*javaSide); ok {
			p.awaitSubscribers(t, 1, "redisson_lock__channel:{"+name+"}")
		}
	})

	semaphore = kind{
		java: "semaphore",
		acquire: func(ctx context.Context, g *goSide, name string) (grant, error) {
			s := g.clients[0].GetSemaphore(name)
			release := func(ctx context.Context) error { return s.Release(ctx, 1) }
			return grant{ctx: ctx, release: release}, s.Acquire(ctx, 1)
		},
		try: func(ctx context.Context, g *goSide, name string, wait time.Duration) (grant, error) {
			s := g.clients[0].GetSemaphore(name)
			release := func(ctx context.Context) error { return s.Release(ctx, 1) }
			ok, err := s.TryAcquire(ctx, 1, rsemaphore.WithWait(wait))
			if err == nil && !ok {
				err = rlock.ErrNotAcquired
			}
			return grant{ctx: ctx, release: release}, err
		},
		prepare: func(t *testing.T, g *goSide, name string) {
			t.Helper()
			made, err := g.clients[0].GetSemaphore(name).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.True(t, made)
		},
		waits: inThread("semaphore", "redisson_sc"),
	}

	permit = kind{
		java:  "permit",
		lease: limit, // nobody in Java renews a permit
		acquire: func(ctx context.Context, g *goSide, name string) (grant, error) {
			h, err := g.clients[0].GetPermitSemaphore(name).Acquire(ctx)
			return grant{ctx: h.Context(), release: h.Release, value: h.ID()}, err
		},
		try: func(ctx context.Context, g *goSide, name string, wait time.Duration) (grant, error) {
			h, err := g.clients[0].GetPermitSemaphore(name).TryAcquire(ctx, rsemaphore.WithWait(wait))
			return grant{ctx: h.Context(), release: h.Release, value: h.ID()}, err
		},
		prepare: func(t *testing.T, g *goSide, name string) {
			t.Helper()
			made, err := g.clients[0].GetPermitSemaphore(name).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.True(t, made)
		},
		waits: inThread("permit", "redisson_sc"),
	}
)

// kindOf returns the kind that has this name in Java's commands, without a timeout.
func kindOf(java string) kind {
	java, _, _ = strings.Cut(java, "@")
	all := []kind{plain, fenced, fair, write, reading, multi, multiInReverse, member, red, semaphore, permit}
	return all[slices.IndexFunc(all, func(k kind) bool { return k.java == java })]
}

// fairAt is a fair lock with this timeout in Java. In Go it is an option of the client.
func fairAt(wait time.Duration) kind {
	k := fair
	k.java = "fair@" + millis(wait)
	return k
}

// command is a command for Java about an object of this kind.
func (k kind) command(verb, name string, args ...string) []string {
	return slices.Concat([]string{verb}, k.words(name), args)
}

// words are the kind and the name in a command.
func (k kind) words(name string) []string {
	switch k.java {
	case "multi":
		return []string{"multi", strings.Join(parts(name), ",")}
	case "reverse":
		backwards := parts(name)
		slices.Reverse(backwards)
		return []string{"multi", strings.Join(backwards, ",")}
	case "member":
		return []string{"plain", lastPart(name)}
	}
	return []string{k.java, name}
}

// parts are the names of a multi-lock's members.
func parts(name string) []string { return []string{name + "-a", name + "-b", name + "-c"} }

func lastPart(name string) string { return parts(name)[2] }

// javaLease is the lease of what Java acquires, in a command.
func (k kind) javaLease() string {
	if k.lease == 0 {
		return "-1"
	}
	return millis(k.lease)
}

// made returns a new object's name.
func (k kind) made(t *testing.T, g *goSide) string {
	t.Helper()
	name := unused(k.java)
	if k.prepare != nil {
		k.prepare(t, g, name)
	}
	return name
}
