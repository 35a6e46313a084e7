// Package script runs Lua scripts by EVALSHA, and single commands, each exactly once or with a clear word that the outcome is not known.
package script

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1.
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script and its digest, or a command of Redis. It is safe for concurrent use.
type Script struct {
	name     string
	firstKey int8      // where the first key is among the arguments
	command  any       // the name of a command, boxed once; nil for a script, which alone has what follows
	sources  []*string // the Lua text, in pieces

	once    sync.Once // sets what follows, at the first call
	source  any       // the Lua text, boxed once: it is an argument of EVAL
	digest  any       // its SHA-1 in hex, boxed once: it is an argument of EVALSHA
	sharded *Script   // the same with SPUBLISH; nil for a script that publishes nothing, and for that one
}

// New returns the script with the given name, for those who observe it, and Lua text.
func New(name, source string) *Script { return Embedded(name, &source) }

// Embedded returns the script with the given name whose Lua text is that of variables with an embedded file, one after
// another. The compiler lays such a script out as data, which the linker drops from a program that does not use it; that
// needs pointers, and that nothing is computed here.
func Embedded(name string, sources ...*string) *Script {
	return &Script{name: name, firstKey: 3, sources: sources}
}

// Command returns a command of Redis that has its key first.
func Command(name string) *Script {
	return &Script{name: name, command: name, firstKey: 1}
}

const (
	publish = "'publish'"
	// Redis 6.2 has neither the command nor the number.
	shardedPublish = "local publish = redis.REDIS_VERSION_NUM and 'spublish' or 'publish' "
)

// compose sets the text and the digest.
func (s *Script) compose() {
	var text strings.Builder
	for _, source := range s.sources {
		text.WriteString(*source)
	}
	source := text.String()
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	s.source, s.digest = source, hex.EncodeToString(sum[:])
	if strings.Contains(source, publish) && !strings.HasPrefix(source, shardedPublish) {
		s.sharded = New(s.name, shardedPublish+strings.ReplaceAll(source, publish, "publish"))
		s.sharded.once.Do(s.sharded.compose)
	}
}

// Name returns the name of the script, or of the command.
func (s *Script) Name() string { return s.name }

// Call is one run of a script or a command: a go-redis command that go-redis never sends twice.
//
// Go-redis repeats EVALSHA after a read time-out or a closed connection, which may run a script twice unnoticed.
// It honours NoRetry on single, cluster and pipelined clients, also on those that the user configured.
//
// The reply is read by Int, Ints or Row, or after a look at Err: the methods of Cmd do not know all errors.
type Call struct {
	redis.Cmd
	// Confirms says that the call has to be confirmed where the client asks for that. It is to be set before the call is sent.
	Confirms bool
	// Unconfirmed is why a call that was done is not confirmed; nil if it is, or need not be.
	Unconfirmed error

	script *Script
	key    string
	keys   int
	none   error  // why there was no connection for it, unless something came of it since
	room   [8]any // for the arguments of most calls, which are one allocation so
}

// Call prepares a run. Of args, the first `keys` are the script's KEYS, the rest its ARGV; the first key is a string.
func (s *Script) Call(keys int, args ...any) *Call {
	c := &Call{script: s, keys: keys}
	c.key, _ = args[0].(string)
	list := c.room[:0]
	if s.command != nil {
		list = append(list, s.command)
	} else {
		s.once.Do(s.compose)
		list = append(list, "evalsha", s.digest, keys)
	}
	c.set(append(list, args...))
	return c
}

// Shard has the call publish to the shard of its channel, by SPUBLISH. It is to be called before the call is sent.
func (c *Call) Shard() {
	if sharded := c.script.sharded; sharded != nil {
		c.script = sharded
		c.Args()[1] = sharded.digest
	}
}

// set gives the call its arguments.
func (c *Call) set(args []any) {
	c.none = nil
	c.Cmd = *redis.NewCmd(noContext, args...)
	c.SetFirstKeyPos(c.script.firstKey)
}

// ScriptName returns the name of the call's script.
func (c *Call) ScriptName() string { return c.script.name }

// Key returns the first key of the call, which decides its slot.
func (c *Call) Key() string { return c.key }

// Weight returns about how much work the call is, in units of one that touches a lock.
func (c *Call) Weight() int {
	if c.script.command != nil {
		return 1 + len(c.Args())/16
	}
	return 1 + c.keys/4
}

// NoRetry tells go-redis that the call must not be sent again.
func (c *Call) NoRetry() bool { return true }

// Clone returns a copy of the call.
func (c *Call) Clone() redis.Cmder {
	clone := &Call{script: c.script, key: c.key, keys: c.keys}
	clone.set(append(clone.room[:0], c.Args()...))
	clone.SetVal(c.Val())
	clone.SetErr(c.Err())
	return clone
}

// SetErr takes an error from go-redis. One of a command at which the script stopped counts as that command's own.
//
// One that means that there was no connection is hidden from go-redis, which looks for an error past Err. On a cluster it dials again and
// sends the pipeline; if the replies are lost then, it sets no error for a command that has one already.
func (c *Call) SetErr(err error) {
	c.none = nil
	if err != nil && (isDial(err) || Crowded(err)) {
		c.none, err = err, nil
	}
	c.Cmd.SetErr(unwrap(err))
}

// Err returns what came of the call.
func (c *Call) Err() error {
	if c.none != nil {
		return c.none
	}
	return c.Cmd.Err()
}

// Missing reports whether Redis did not know the script: after a restart, a failover, SCRIPT FLUSH, on a new node.
func (c *Call) Missing() bool {
	err := c.Err()
	return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") // which allocates
}

// Resend turns the call into an EVAL with the full text, to be sent after Missing.
func (c *Call) Resend() {
	args := c.Args()
	list := make([]any, len(args))
	copy(list, args)
	list[0], list[1] = "eval", c.script.source
	c.set(list)
}

// Int returns the reply of a script that answers an integer.
func (c *Call) Int() (int64, error) {
	if err := c.Err(); err != nil {
		return 0, err
	}
	return c.Int64()
}

// Ints returns the reply of a script that answers an array of integers.
func (c *Call) Ints() ([]int64, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	return c.Int64Slice()
}

// Tag returns a string that is equal only for keys, and sharded channels, of one slot.
func Tag(key string) string {
	_, tagged, opened := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(tagged, "}"); opened && closed && tag != "" {
		return tag
	}
	return key
}

// Millis returns a time as scripts take it: in milliseconds, rounded up.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Flag returns a condition as scripts take it.
func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
