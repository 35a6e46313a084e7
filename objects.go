package redlatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/relection"
)

// Object is an object that Redis has keys or waiters of.
type Object struct {
	// Kind is the name of its package, or "counter" for a number of which nobody can tell whether it is that of a semaphore or of a
	// latch.
	Kind string
	// Name is its name.
	Name string
	// Info is its state: an rlock.Info, rfairlock.Info, rrwlock.Info, rsemaphore.PermitSemaphoreInfo, rlatch.Info, rbarrier.Info,
	// rdelayedqueue.Stats, relection.Leader or, of a scheduler, []rscheduler.Job; of a counter its value, an int.
	Info any
}

// ObjectsOption is a setting of [Client.Objects].
type ObjectsOption func(*objectsOptions)

type objectsOptions struct{ kinds []string }

// WithKinds leaves out objects whose [Object.Kind] is none of these, which costs less than to look at them. Defaults to all.
func WithKinds(kinds ...string) ObjectsOption {
	return func(o *objectsOptions) { o.kinds = append(o.kinds, kinds...) }
}

// Objects returns the locks, semaphores, latches, barriers, queues, elections and schedulers in Redis whose names match a pattern, one after
// another. The pattern is that of Redis's KEYS, with *, ? and [a-z]; the empty one matches all. Names that do not begin with the client's
// prefix are not found.
//
// It finds them by SCAN and by what their keys look like, so free locks are not listed, nor is anything that nobody can tell from the keys
// of other programs: a counting semaphore or a latch is listed if this library has changed it within an hour, or if somebody waits for it.
// A fair lock for which nobody waits is listed as a lock. A barrier is listed for a minute after its last use. A barrier and a double
// barrier may have one name, and are two objects. An election is listed if somebody leads, and as a lock besides; the ticks of a scheduler
// are listed as a queue besides, unless the client has a prefix. An object that changes meanwhile may be missing, or come twice; one of
// several keys may be missing while its slot moves to another node of a cluster, and a step in which there is one takes a third of a second.
//
// It is made for servers in use: each SCAN looks at some hundred keys, and the loop gets what it has found before the next one. Only
// names of semaphores and latches are kept, up to 100,000, so that none comes twice. In the end PUBSUB CHANNELS, once for semaphores and
// once for latches, goes through all channels of the server for those that are known by their waiters alone; with [WithKinds] without
// "counter" and "rlatch" it does not.
//
// It blocks as long as the loop goes on. Each step ends when ctx is done, with [ErrClosed] when the client closes, or with
// [ErrUnavailable] after the call timeout (see [WithCallTimeout]). An error is the last thing that it yields. The user needs +scan and the commands of Info; without the right to
// PUBSUB, what is known by its waiters alone is missing.
func (c *Client) Objects(ctx context.Context, pattern string, opts ...ObjectsOption) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		f := finder{client: c, pattern: pattern, yield: yield}
		for _, opt := range opts {
			if opt == nil {
				yield(Object{}, fmt.Errorf("redlatch: objects: %w", errs.ErrNilOption))
				return
			}
			opt(&f.options)
		}
		if err := f.run(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(Object{}, fmt.Errorf("redlatch: objects: %w", err))
		}
	}
}

// errStopped says that the loop wants no more.
var errStopped = errors.New("stopped")

const (
	scanCount    = 200     // keys that one SCAN looks at
	atOnce       = 50      // objects that are asked for their state at the same time
	rememberMost = 100_000 // counters that are not listed twice
)

// finder is one call of Objects.
type finder struct {
	client  *Client
	pattern string
	options objectsOptions
	yield   func(Object, error) bool
	listed  map[string]bool // names of semaphores and latches that were listed
}

// found is an object that was found by a key or a channel.
type found struct {
	kind, name string
	double     bool // of barriers: it is a double one
}

func (f *finder) run(ctx context.Context) error {
	if ctx == nil {
		return core.ErrNilContext
	}
	if len(f.pattern) > errs.MaxName {
		return fmt.Errorf("%w: the pattern has %d bytes, more than %d", errs.ErrInvalid, len(f.pattern), errs.MaxName)
	}
	f.pattern = quoteGlob(f.client.core.Prefix) + cmp.Or(f.pattern, "*")
	f.listed = map[string]bool{}
	nodes, err := core.Step(ctx, f.client.core, f.client.core.Batch.Masters)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		for _, look := range []struct {
			kind, match string // of keys
			find        func(ctx context.Context, node *redis.Client, keys []string) ([]found, error)
			kinds       []string // of objects
		}{
			{"hash", f.pattern, f.hashes, []string{"rlock", "rrwlock"}},
			{"", "red*", f.parts, []string{"rfairlock", "rdelayedqueue", "rlatch", "counter", "rbarrier", "relection", "rscheduler"}},
			{"zset", "*:timeout", f.leased, []string{"rsemaphore"}},
		} {
			if !slices.ContainsFunc(look.kinds, f.wants) {
				continue
			}
			if err := f.scan(ctx, node, look.kind, look.match, look.find); err != nil {
				return err
			}
		}
	}
	return f.waitedFor(ctx)
}

// wants reports whether objects of a kind are to be listed.
func (f *finder) wants(kind string) bool {
	return len(f.options.kinds) == 0 || slices.Contains(f.options.kinds, kind)
}

// scan passes the keys of a node, some hundred at a time, to a function that says what objects they are.
func (f *finder) scan(
	ctx context.Context, node *redis.Client, kind, match string, find func(ctx context.Context, node *redis.Client, keys []string) ([]found, error),
) error {
	type part struct {
		objects []found
		next    uint64
	}
	for cursor := uint64(0); ; {
		scanned, err := core.Step(ctx, f.client.core, func(ctx context.Context) (p part, err error) {
			page := node.Scan(ctx, cursor, match, scanCount)
			if kind != "" {
				page = node.ScanType(ctx, cursor, match, scanCount, kind)
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

// hashes finds locks, by their holders, and read-write locks.
func (f *finder) hashes(ctx context.Context, node *redis.Client, keys []string) (all []found, err error) {
	type look struct {
		size    *redis.IntCmd
		mode    *redis.StringCmd
		fields  *redis.ScanCmd
		waiters *redis.IntCmd
	}
	looks := make([]look, len(keys))
	err = f.ask(ctx, node, func(p redis.Pipeliner) {
		for i, key := range keys {
			looks[i] = look{
				p.HLen(ctx, key), p.HGet(ctx, key, "mode"), p.HScan(ctx, key, 0, "", 1), p.Exists(ctx, core.Prefixed(fairQueues, key)),
			}
		}
	})
	for i, key := range keys {
		l := looks[i]
		fields, _ := l.fields.Val() // and their values
		switch {
		case l.mode.Val() == "read" || l.mode.Val() == "write":
			all = append(all, found{kind: "rrwlock", name: key})
		case l.size.Val() != 1 || len(fields) != 2 || l.waiters.Val() != 0:
		case core.CheckOwner(fields[0]) == nil && isCount(fields[1]):
			all = append(all, found{kind: "rlock", name: key})
		}
	}
	return all, err
}

// The first parts of the names of keys and channels.
const (
	fairQueues     = "redisson_lock_queue"
	queues         = "redlatch_dq"
	onceLatches    = "redlatch_latch_once"
	setLatches     = "redlatch_latch_set"
	openLatches    = "redlatch_latch_open"
	operations     = "redlatch_ops"
	barriers       = "redlatch_barrier"
	doubleBarriers = "redlatch_double"
	elections      = "redlatch_election"
	schedulers     = "redlatch_sched"
	semaphoreTopic = "redisson_sc:"
	latchTopic     = "redisson_countdownlatch__channel__"
)

// parts finds objects by keys that they have beside that of their name.
func (f *finder) parts(ctx context.Context, node *redis.Client, keys []string) ([]found, error) {
	var all []found
	var numbers []string
	for _, key := range keys {
		prefix, body, _ := strings.Cut(key, ":")
		switch prefix {
		case fairQueues:
			all = f.add(all, "rfairlock", body)
		case queues:
			if body, ok := strings.CutSuffix(body, ":meta"); ok {
				all = f.add(all, "rdelayedqueue", body)
			}
		case barriers, doubleBarriers:
			if name := nameIn(body); matchGlob(f.pattern, name) {
				all = append(all, found{"rbarrier", name, prefix == doubleBarriers})
			}
		case elections:
			all = f.add(all, "relection", body)
		case schedulers:
			if body, ok := strings.CutSuffix(body, ":jobs"); ok {
				all = f.add(all, "rscheduler", body)
			}
		case onceLatches, setLatches, openLatches:
			numbers = append(numbers, nameIn(body))
		case operations:
			if end := strings.LastIndexByte(body, ':'); end >= 0 {
				numbers = append(numbers, nameIn(body[:end]))
			}
		}
	}
	more, err := f.numbers(ctx, node, numbers)
	return append(all, more...), err
}

// numbers says of names whether they are those of latches, or of counters that are there.
func (f *finder) numbers(ctx context.Context, node *redis.Client, names []string) (all []found, err error) {
	type look struct {
		value         *redis.StringCmd
		latch, permit *redis.IntCmd
	}
	var keys []string
	for _, name := range names {
		if matchGlob(f.pattern, name) && !slices.Contains(keys, name) && !f.listed[name] {
			keys = append(keys, name)
		}
	}
	looks := make([]look, len(keys))
	err = f.ask(ctx, node, func(p redis.Pipeliner) {
		for i, key := range keys {
			looks[i] = look{
				p.Get(ctx, key), p.Exists(ctx, core.Prefixed(onceLatches, key), core.Prefixed(setLatches, key), core.Prefixed(openLatches, key)),
				p.Exists(ctx, core.Suffixed(key, "timeout")),
			}
		}
	})
	for i, key := range keys {
		l := looks[i]
		switch {
		case !isCount(l.value.Val()) || l.permit.Val() > 0: // leased permits are found by that
		case l.latch.Val() > 0:
			all = append(all, found{kind: "rlatch", name: key})
		default:
			all = append(all, found{kind: "counter", name: key})
		}
	}
	return all, err
}

// leased finds semaphores of leased permits.
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
			all = append(all, found{kind: "rsemaphore", name: name})
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
	c := f.client.core
	for topic, kind := range map[string]string{semaphoreTopic: "counter", latchTopic: "rlatch"} {
		if !f.wants(kind) {
			continue
		}
		channels, err := core.Step(ctx, c, func(ctx context.Context) ([]string, error) {
			channels, err := c.Channels(ctx, topic+"*")
			if script.Lacking(err) { // then only what has a key is found
				err = nil
			}
			return channels, err
		})
		if err != nil {
			return err
		}
		var objects []found
		for _, channel := range channels {
			objects = f.add(objects, kind, strings.TrimPrefix(channel, topic))
		}
		if err := f.list(ctx, objects); err != nil {
			return err
		}
	}
	return nil
}

// add adds the object whose name a key or channel has in its own, if it matches the pattern.
func (f *finder) add(to []found, kind, body string) []found {
	if name := nameIn(body); matchGlob(f.pattern, name) {
		return append(to, found{kind: kind, name: name})
	}
	return to
}

// list asks for the state of objects, and yields those that are there.
func (f *finder) list(ctx context.Context, objects []found) error {
	objects = slices.DeleteFunc(objects, func(o found) bool { return !f.wants(o.kind) })
	for some := range slices.Chunk(objects, atOnce) {
		states, failures := make([]any, len(some)), make([]error, len(some))
		var calls sync.WaitGroup
		for i, one := range some {
			calls.Go(func() { states[i], failures[i] = f.state(core.Hasty(ctx), one) })
		}
		calls.Wait()
		for i, one := range some {
			err := failures[i]
			number := one.kind == "counter" || one.kind == "rlatch" || one.kind == "rsemaphore"
			switch {
			case errors.Is(err, errs.ErrWrongType) || errors.Is(err, errs.ErrInvalid): // it is another program's, or has changed
			case script.Parted(err): // half of its slot has moved
			case err != nil:
				return err
			case states[i] == nil || number && f.listed[one.name]:
			default:
				if number {
					f.remember(one.name)
				}
				if !f.yield(Object{Kind: one.kind, Name: f.client.core.UserName(one.name), Info: states[i]}, nil) {
					return errStopped
				}
			}
		}
	}
	return nil
}

// remember notes that a number was listed, which may have several keys.
func (f *finder) remember(name string) {
	if len(f.listed) < rememberMost {
		f.listed[name] = true
	}
}

// state returns the Info of an object; nil if it is not there any more.
func (f *finder) state(ctx context.Context, o found) (any, error) {
	c, name := f.client, f.client.core.UserName(o.name)
	switch o.kind {
	case "rlock":
		info, err := c.GetFencedLock(name).Info(ctx) // it knows the token too, if there is one
		return unless(!info.Locked, info), err
	case "rfairlock":
		info, err := c.GetFairLock(name).Info(ctx)
		return unless(!info.Locked && len(info.Queue) == 0, info), err
	case "rrwlock":
		info, err := c.GetReadWriteLock(name).Info(ctx)
		return unless(!info.Locked, info), err
	case "rlatch":
		info, err := c.GetCountDownLatch(name).Info(ctx)
		return unless(info.Count == 0 && info.Waiting == 0, info), err
	case "rbarrier":
		get := c.GetBarrier(name, 1).Info // whatever number it has
		if o.double {
			get = c.GetDoubleBarrier(name, 1).Info
		}
		info, err := get(ctx)
		return unless(!info.InUse(), info), err
	case "rsemaphore":
		info, err := c.GetPermitSemaphore(name).Info(ctx)
		return info, err
	case "rdelayedqueue":
		stats, err := GetDelayedQueue[any](c, name).Stats(ctx)
		return stats, err
	case "relection":
		leader, err := c.GetElection(name).Leader(ctx)
		if errors.Is(err, relection.ErrNoLeader) {
			return nil, nil //nolint:nilnil // it is not there
		}
		return leader, err
	case "rscheduler":
		jobs, err := c.GetScheduler(name).Jobs(ctx)
		return unless(len(jobs) == 0, jobs), err
	}
	n, err := c.GetSemaphore(name).Available(ctx)
	return n, err
}

func unless(gone bool, info any) any {
	if gone {
		return nil
	}
	return info
}

// nameIn returns the name that a key or channel has in its own, in braces if it has none itself.
func nameIn(body string) string {
	if strings.LastIndexByte(body, '{') == 0 && strings.IndexByte(body, '}') == len(body)-1 {
		return body[1 : len(body)-1]
	}
	return body
}

// isCount reports whether a value is a number of levels or permits.
func isCount(value string) bool {
	_, err := strconv.ParseUint(value, 10, 31)
	return err == nil
}

// quoteGlob returns the pattern that matches a text alone.
func quoteGlob(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`).Replace(text)
}

// matchGlob reports whether a pattern matches a name as in Redis, which goes by bytes.
func matchGlob(glob, name string) bool {
	starred, after, from := false, "", "" // what follows the last star, and what is left of the name for it
	for name != "" {
		if rest, ok := strings.CutPrefix(glob, "*"); ok {
			starred, after, from = true, rest, name
			glob = rest
			continue
		}
		rest, ok := matchByte(glob, name[0])
		switch {
		case ok:
			glob, name = rest, name[1:]
		case starred:
			from = from[1:]
			glob, name = after, from
		default:
			return false
		}
	}
	return strings.Trim(glob, "*") == ""
}

// matchByte reports whether what a pattern begins with, which is no star, matches a byte, and returns the rest of the pattern.
func matchByte(glob string, b byte) (rest string, ok bool) {
	switch {
	case glob == "":
		return "", false
	case glob[0] == '?':
		return glob[1:], true
	case glob[0] == '[':
		return matchClass(glob[1:], b)
	case glob[0] == '\\' && len(glob) > 1:
		glob = glob[1:]
	}
	return glob[1:], glob[0] == b
}

// matchClass is matchByte after an opening bracket. One that is not closed goes to the end of the pattern.
func matchClass(glob string, b byte) (rest string, ok bool) {
	glob, not := strings.CutPrefix(glob, "^")
	for glob != "" && glob[0] != ']' {
		if glob[0] == '\\' && len(glob) > 1 {
			ok = ok || glob[1] == b
			glob = glob[2:]
			continue
		}
		low, high := glob[0], glob[0]
		if len(glob) > 2 && glob[1] == '-' {
			high = glob[2]
			glob = glob[2:]
		}
		ok = ok || min(low, high) <= b && b <= max(low, high)
		glob = glob[1:]
	}
	return strings.TrimPrefix(glob, "]"), ok != not
}
