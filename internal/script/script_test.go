package script_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/script"
)

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestJudgeTellsWhatIsKnown(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err       error
		want      script.Outcome
		transient bool
	}{
		{nil, script.Done, false},
		{redis.Nil, script.Done, false},
		{fmt.Errorf("sentinels: %w", errors.Join(redis.Nil)), script.NotDone, false},
		{reply("NOSCRIPT No matching script."), script.NotDone, false},
		{reply("WRONGTYPE Operation against a key"), script.NotDone, false},
		{reply("NOAUTH Authentication required."), script.NotDone, false},
		{reply("OOM command not allowed"), script.NotDone, false},
		{reply("LOADING Redis is loading"), script.NotDone, true},
		{reply("READONLY You can't write against a read only replica."), script.NotDone, true},
		{reply("OOM command not allowed when used memory > 'maxmemory'. script: 1c549828, on @user_script:1."), script.NotDone, false},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value script: a999d156, on @user_script:1."), script.NotDone, false},
		{reply("CLUSTERDOWN Hash slot not served"), script.NotDone, true},
		{reply("TRYAGAIN Multiple keys request"), script.NotDone, true},
		{reply("ERR Script attempted to access a non local key in a cluster node"), script.NotDone, true},
		{reply("ERR Attempted to access a non local key in a cluster node"), script.NotDone, true}, // Valkey 9
		{reply("ERR Unable to execute command 'exists' in script because undeclared keys were accessed during rehashing of the slot"), script.NotDone, true},
		{reply("MASTERDOWN Link with MASTER is down"), script.NotDone, true},
		{reply("ERR max number of clients reached"), script.NotDone, true},
		{reply("MOVED 1 127.0.0.1:7000"), script.NotDone, true},
		{dial, script.NotDone, true},
		{fmt.Errorf("wrapped: %w", dial), script.NotDone, true},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake", Conn: &net.TCPConn{}}, script.NotDone, true},
		{tls.RecordHeaderError{Msg: "received record with version 300"}, script.Unknown, false},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, script.NotDone, true},
		{redis.ErrPoolTimeout, script.NotDone, true},
		{redis.ErrClosed, script.NotDone, false},
		{fmt.Errorf("%w: %w", script.ErrNotSent, context.Canceled), script.NotDone, false},
		{io.EOF, script.Unknown, false},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, script.Unknown, false},
		{context.DeadlineExceeded, script.Unknown, false},
		{context.Canceled, script.Unknown, false},
	} {
		assert.Equal(t, c.want, script.Judge(c.err), "%v", c.err)
		assert.Equal(t, c.transient, script.Transient(c.err), "%v", c.err)
	}
}

func TestUnwritableIsARefusalOfWrites(t *testing.T) {
	for text, want := range map[string]bool{
		"OOM command not allowed when used memory > 'maxmemory'.":              true,
		"MISCONF Redis is configured to save RDB snapshots, but cannot.":       true,
		"READONLY You can't write against a read only replica.":                true,
		"NOREPLICAS Not enough good replicas to write.":                        true,
		"LOADING Redis is loading the dataset in memory":                       false,
		"NOPERM this user has no permissions to run the 'evalsha' command OOM": false,
	} {
		assert.Equal(t, want, script.Unwritable(fmt.Errorf("rlock: lock: %w", reply(text))), text)
	}
	assert.False(t, script.Unwritable(errors.New("OOM")), "no reply")
	assert.False(t, script.Unwritable(nil))
}

func TestErrorOfACommandInAScriptIsItsOwn(t *testing.T) {
	const redis6 = "ERR Error running script (call to f_0): @user_script:29: @user_script: 29: "
	for text, want := range map[string]string{
		redis6 + "-READONLY You can't write against a read only replica.": "READONLY You can't write against a read only replica.",
		redis6 + "WRONGTYPE Operation against a key":                      "WRONGTYPE Operation against a key",
		redis6 + "The user executing the script can't run this command":   "NOPERM The user executing the script can't run this command",
		"@user_script: 29: The user executing the script can't run this":  "NOPERM The user executing the script can't run this",
		"OOM command not allowed. script: 1c54, on @user_script:1.":       "OOM command not allowed.",
		"OOM command not allowed. script: on @user_script:1.":             "OOM command not allowed.",
		"NOPERM no script: for you. script: 1c54, on @user_script:29.":    "NOPERM no script: for you.",
		"ERR what the script: says":                                       "ERR what the script: says",
		"NOSCRIPT No matching script.":                                    "NOSCRIPT No matching script.",
	} {
		c := script.New("test", "return 1").Call(1, "key")
		c.SetErr(reply(text))
		assert.EqualError(t, c.Err(), want)
		var is redis.Error
		assert.ErrorAs(t, c.Err(), &is)
		assert.ErrorIs(t, c.Err(), reply(text))
	}
	c := script.New("test", "return 1").Call(1, "key")
	c.SetErr(io.EOF)
	assert.Equal(t, io.EOF, c.Err())
	c.SetErr(nil)
	assert.NoError(t, c.Err())
}

func TestCallIsACommandThatIsNeverRepeated(t *testing.T) {
	c := script.New("test", "return 1").Call(1, "key", "arg")
	assert.True(t, c.NoRetry())
	assert.True(t, c.Clone().NoRetry(), "its clones too")
	assert.Equal(t, []any{"evalsha", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 1, "key", "arg"}, c.Args())
	c.Resend()
	assert.Equal(t, []any{"eval", "return 1", 1, "key", "arg"}, c.Args())
	assert.Equal(t, "key", c.Key())
}

func TestFirstCallsAtOnceHaveTheWholeText(t *testing.T) {
	begin, end := "local n = 1 ", "return n"
	s := script.Embedded("test", &begin, &end)
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			c := s.Call(1, "key")
			assert.Equal(t, "c6f491f703b5af639d9e6d2c51966d286c61a0d7", c.Args()[1])
			c.Resend()
			assert.Equal(t, begin+end, c.Args()[1])
		})
	}
	callers.Wait()
}

// Every acquisition and every release pays for it.
func TestCallIsOneAllocation(t *testing.T) {
	s := script.New("test", "return 1")
	key, owner, channel := any("key"), any("owner"), any("channel")
	var c *script.Call
	assert.Equal(t, 1.0, testing.AllocsPerRun(100, func() { c = s.Call(1, key, owner, channel, 0, 0) }))
	assert.Equal(t, 0.0, testing.AllocsPerRun(100, func() { _ = c.Missing() }))
}

func TestCallTakesAnyNumberOfArguments(t *testing.T) {
	args := []any{"key"}
	want := []any{"evalsha", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 1, "key"}
	for n := range 20 {
		args, want = append(args, n), append(want, n)
		c := script.New("test", "return 1").Call(1, args...)
		assert.Equal(t, want, c.Args())
		assert.Equal(t, want, c.Clone().Args())
	}
}
