// Package find finds the objects in Redis, by what their keys look like, and reads their state.
package find

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

// Object is an object that Redis has keys or waiters of. Package redlatch documents it.
type Object struct {
	Kind string
	Name string
	Info any
}

const (
	scanCount    = 200     // keys that one SCAN looks at
	atOnce       = 50      // objects that are asked for their state at the same time
	rememberMost = 100_000 // objects that are not listed twice
)

// errStopped says that the caller wants no more.
var errStopped = errors.New("stopped")

// Objects passes to yield the objects in Redis whose names match a pattern, until yield returns false. Without kinds it finds all kinds.
// Package redlatch documents what it finds and what it costs.
func Objects(ctx context.Context, client core.Client, pattern string, wanted []string, yield func(Object) bool) error {
	if ctx == nil {
		return core.ErrNilContext
	}
	if len(pattern) > errs.MaxName {
		return fmt.Errorf("%w: the pattern has %d bytes, more than %d", errs.ErrInvalid, len(pattern), errs.MaxName)
	}
	c := core.Of(client)
	f := finder{
		client: client, core: c, pattern: core.EscapePattern(c.Prefix) + cmp.Or(pattern, "*"), wanted: wanted, yield: yield,
		listed: map[found]bool{},
	}
	err := f.run(ctx)
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// finder is one call of Objects.
type finder struct {
	client  core.Client
	core    *core.Core
	pattern string
	wanted  []string // kinds; none for all
	yield   func(Object) bool
	listed  map[found]bool // semaphores, latches and caches that were listed, see found.object
}

// found is an object that was found by a key or a channel.
type found struct {
	kind, name string
	heard      bool   // by a channel
	record     string // the key whose value says of which kind it is; "" if that is known
}

// number reports whether its state is a number under its name, so that several keys tell of it.
func (o found) number() bool {
	return o.kind == kinds.Semaphore || o.kind == kinds.Permits || o.kind == kinds.Latch
}

// object returns what several keys say of one object; ok is false if only one key does.
func (o found) object() (same found, ok bool) {
	switch {
	case o.number():
		return found{name: o.name}, true
	case o.kind == kinds.Cache:
		return found{kind: o.kind, name: o.name}, true
	}
	return found{}, false
}

func (f *finder) run(ctx context.Context) error {
	nodes, err := core.Step(ctx, f.core, f.core.Batch.Masters)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		for _, look := range []struct {
			of, match string // the keys
			find      func(ctx context.Context, node *redis.Client, keys []string) ([]found, error)
			kinds     []string // of objects
		}{
			{"hash", f.pattern, f.hashes, []string{kinds.Lock, kinds.RWLock}},
			{"", "red*", f.parts, formKinds()},
			{"zset", "*:timeout", f.leased, []string{kinds.Permits}},
		} {
			if !slices.ContainsFunc(look.kinds, f.wants) {
				continue
			}
			if err := f.scan(ctx, node, look.of, look.match, look.find); err != nil {
				return err
			}
		}
	}
	return f.waitedFor(ctx)
}

// wants reports whether objects of a kind are to be listed.
func (f *finder) wants(kind string) bool {
	return len(f.wanted) == 0 || slices.Contains(f.wanted, shown(kind))
}

// scan passes the keys of a node, some hundred at a time, to a function that says what objects they are.
func (f *finder) scan(
	ctx context.Context, node *redis.Client, of, match string, find func(ctx context.Context, node *redis.Client, keys []string) ([]found, error),
) error {
	type part struct {
		objects []found
		next    uint64
	}
	for cursor := uint64(0); ; {
		scanned, err := core.Step(ctx, f.core, func(ctx context.Context) (p part, err error) {
			page := node.Scan(ctx, cursor, match, scanCount)
			if of != "" {
				page = node.ScanType(ctx, cursor, match, scanCount, of)
			}
			keys, next, err := page.Result()
			if err != nil || len(keys) == 0 {
				return part{next: next}, err
			}
			objects, err := find(ctx, node, keys)
			return part{objects, next}, err
		})
		if err == nil {
			err = f.list(ctx, scanned.objects)
		}
		if err != nil || scanned.next == 0 {
			return err
		}
		cursor = scanned.next
	}
}

// hashes finds locks, by their holders, and read-write locks. A lock for which somebody waits in order is found by its queue, and that of a
// leader is an election.
func (f *finder) hashes(ctx context.Context, node *redis.Client, keys []string) (all []found, err error) {
	type look struct {
		size         *redis.IntCmd
		mode, leader *redis.StringCmd
		fields       *redis.ScanCmd
		waiters      *redis.IntCmd
	}
	looks := make([]look, len(keys))
	err = f.ask(ctx, node, func(p redis.Pipeliner) {
		for i, key := range keys {
			looks[i] = look{
				p.HLen(ctx, key), p.HGet(ctx, key, "mode"), leaderOf(ctx, p, key), p.HScan(ctx, key, 0, "", 1),
				p.Exists(ctx, core.Prefixed("redisson_lock_queue", key)),
			}
		}
	})
	for i, key := range keys {
		l := looks[i]
		fields, _ := l.fields.Val() // and their values
		switch {
		case l.mode.Val() == "read" || l.mode.Val() == "write":
			all = append(all, found{kind: kinds.RWLock, name: key})
		case l.size.Val() != 1 || len(fields) != 2 || l.waiters.Val() != 0 || fields[0] == l.leader.Val():
		case core.CheckOwner(fields[0]) == nil && isLevels(fields[1]):
			all = append(all, found{kind: kinds.Lock, name: key})
		}
	}
	return all, err
}

// leaderOf asks for the owner id of who leads the election of a lock's name.
func leaderOf(ctx context.Context, p redis.Pipeliner, lock string) *redis.StringCmd {
	return p.HGet(ctx, core.Prefixed("redlatch_election", lock), "owner")
}

// parts finds objects by keys that they have beside that of their name. It leaves out numbers that are not there, the fair locks of
// elections, and the queues of schedulers.
func (f *finder) parts(ctx context.Context, node *redis.Client, keys []string) ([]found, error) {
	var all []found
	here := map[found]bool{}
	for _, key := range keys {
		o, ok := read(key)
		object, several := o.object()
		again := several && (f.listed[object] || here[object])
		if ok && !again && f.may(o) {
			all, here[object] = append(all, o), true
		}
	}
	there := make([]func() bool, len(all))
	err := f.ask(ctx, node, func(p redis.Pipeliner) {
		for i := range all {
			there[i] = f.check(ctx, p, &all[i])
		}
	})
	var those []found
	for i := range all {
		if there[i]() {
			those = append(those, all[i])
		}
	}
	return those, err
}

// may reports whether an object that has a key may be wanted. One that looks like an executor may be a queue.
func (f *finder) may(o found) bool {
	if o.kind == kinds.Executor && f.may(found{kind: kinds.Queue, name: tasksOf(o.name)}) {
		return true
	}
	return (o.record != "" || f.wants(o.kind)) && matchGlob(f.pattern, o.name)
}

// check asks whether an object is there and wanted, and none of another kind that has the same key.
func (f *finder) check(ctx context.Context, p redis.Pipeliner, o *found) (there func() bool) {
	of, ticks := strings.CutSuffix(o.name, ":ticks")
	switch {
	case o.record != "":
		number, record := p.Exists(ctx, o.name), p.Get(ctx, o.record)
		return func() bool {
			o.kind = kindIn(record.Val())
			return number.Val() > 0 && f.wants(o.kind)
		}
	case o.number():
		number := p.Exists(ctx, o.name)
		return func() bool { return number.Val() > 0 }
	case o.kind == kinds.FairLock:
		leader := leaderOf(ctx, p, o.name)
		return func() bool { return leader.Val() == "" }
	case o.kind == kinds.Executor:
		tasks := p.HExists(ctx, core.Prefixed("redlatch_dq", tasksOf(o.name))+":meta", "tasks")
		return func() bool {
			if !tasks.Val() {
				*o = found{kind: kinds.Queue, name: tasksOf(o.name)}
			}
			return f.wants(o.kind) && matchGlob(f.pattern, o.name)
		}
	case o.kind == kinds.Queue && ticks:
		jobs := p.Exists(ctx, core.Prefixed("redlatch_sched", of)+":jobs")
		return func() bool { return jobs.Val() == 0 }
	}
	return func() bool { return true }
}

// leased finds semaphores by the permits that are held.
func (f *finder) leased(ctx context.Context, node *redis.Client, keys []string) (all []found, err error) {
	var names []string
	for _, key := range keys {
		if name := nameIn(strings.TrimSuffix(key, ":timeout")); matchGlob(f.pattern, name) && core.Suffixed(name, "timeout") == key {
			names = append(names, name)
		}
	}
	values := make([]*redis.StringCmd, len(names))
	err = f.ask(ctx, node, func(p redis.Pipeliner) {
		for i, name := range names {
			values[i] = p.Get(ctx, name)
		}
	})
	for i, name := range names {
		if _, notInt := strconv.Atoi(values[i].Val()); notInt == nil {
			all = append(all, found{kind: kinds.Permits, name: name})
		}
	}
	return all, err
}

// ask sends commands to a node together. What Redis says of a key that has changed, or moved, is no error.
func (f *finder) ask(ctx context.Context, node *redis.Client, commands func(redis.Pipeliner)) error {
	answers, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		commands(p)
		return nil
	})
	for _, answer := range answers {
		var said redis.Error
		if err := answer.Err(); err != nil && (!errors.As(err, &said) || redis.IsPermissionError(err)) {
			return err
		}
	}
	if said := redis.Error(nil); errors.As(err, &said) {
		return nil
	}
	return err
}

// waitedFor lists semaphores and latches of which is known only that somebody waits for them.
func (f *finder) waitedFor(ctx context.Context) error {
	for _, of := range channels {
		if !f.wants(of.kind) {
			continue
		}
		names, err := core.Step(ctx, f.core, func(ctx context.Context) ([]string, error) {
			names, err := presence.Channels(ctx, f.core, of.prefix+"*")
			if script.Lacking(err) { // then only what has a key is found
				err = nil
			}
			return names, err
		})
		if err != nil {
			return err
		}
		var objects []found
		for _, channel := range names {
			if name := nameIn(strings.TrimPrefix(channel, of.prefix)); matchGlob(f.pattern, name) {
				objects = append(objects, found{kind: of.kind, name: name, heard: true})
			}
		}
		if err := f.list(ctx, objects); err != nil {
			return err
		}
	}
	return nil
}

// list asks for the state of objects, and yields those that are there.
func (f *finder) list(ctx context.Context, objects []found) error {
	objects = slices.DeleteFunc(objects, func(o found) bool { return !f.wants(o.kind) })
	for some := range slices.Chunk(objects, atOnce) {
		states, failures := make([]any, len(some)), make([]error, len(some))
		var calls sync.WaitGroup
		for i, o := range some {
			calls.Go(func() { states[i], failures[i] = f.state(core.Hasty(ctx), o) })
		}
		calls.Wait()
		for i, o := range some {
			err := failures[i]
			object, several := o.object()
			switch {
			case errors.Is(err, errs.ErrWrongType) || errors.Is(err, errs.ErrInvalid): // it is another program's, or has changed
			case script.Parted(err): // half of its slot has moved
			case err != nil:
				return err
			case states[i] == nil && o.kind != kinds.Cache || several && f.listed[object]:
			default:
				if several && len(f.listed) < rememberMost {
					f.listed[object] = true
				}
				if !f.yield(Object{Kind: shown(o.kind), Name: f.core.UserName(o.name), Info: states[i]}) {
					return errStopped
				}
			}
		}
	}
	return nil
}

// state returns the Info of an object; nil if it is not there any more.
func (f *finder) state(ctx context.Context, o found) (any, error) {
	c, name := f.client, f.core.UserName(o.name)
	switch o.kind {
	case kinds.Lock:
		info, err := rlock.NewFenced(c, name).Info(ctx) // it knows the token too, if there is one
		return unless(!info.Locked, info), err
	case kinds.FairLock:
		info, err := rfairlock.New(c, name).Info(ctx)
		return unless(!info.Locked && len(info.Queue) == 0, info), err
	case kinds.RWLock:
		info, err := rrwlock.New(c, name).Info(ctx)
		return unless(!info.Locked, info), err
	case kinds.Latch:
		info, err := rlatch.New(c, name).Info(ctx)
		return unless(info.Count == 0 && info.Waiting == 0, info), err
	case kinds.Barrier:
		info, err := rbarrier.New(c, name, 1).Info(ctx) // whatever number it has
		return unless(!info.InUse(), info), err
	case doubleBarrier:
		info, err := rbarrier.NewDouble(c, name, 1).Info(ctx)
		return unless(!info.InUse(), info), err
	case kinds.Permits:
		info, err := rsemaphore.NewPermits(c, name).Info(ctx)
		return info, err
	case kinds.Queue:
		stats, err := rdelayedqueue.New[any](c, name).Stats(ctx)
		return stats, err
	case kinds.Executor:
		stats, err := rexecutor.New(c, name).Stats(ctx)
		return stats, err
	case kinds.Election:
		leader, err := relection.New(c, name).Leader(ctx)
		if errors.Is(err, relection.ErrNoLeader) {
			return nil, nil //nolint:nilnil // it is not there
		}
		return leader, err
	case kinds.Scheduler:
		jobs, err := rscheduler.New(c, name).Jobs(ctx)
		return unless(len(jobs) == 0, jobs), err
	case kinds.Cache:
		return nil, nil //nolint:nilnil // its keys are all that there is to say
	}
	return f.semaphore(ctx, name, o.heard)
}

// semaphore is state of a counting semaphore. On a channel it may also be one of leased permits, which is found by those.
func (f *finder) semaphore(ctx context.Context, name string, heard bool) (any, error) {
	if heard {
		permits, err := rsemaphore.NewPermits(f.client, name).Info(ctx)
		if err != nil || len(permits.Holders) > 0 {
			return nil, err
		}
	}
	info, err := rsemaphore.New(f.client, name).Info(ctx)
	return info, err
}

func unless(gone bool, info any) any {
	if gone {
		return nil
	}
	return info
}

// isLevels reports whether a value is a number of levels.
func isLevels(value string) bool {
	_, err := strconv.ParseUint(value, 10, 31)
	return err == nil
}
