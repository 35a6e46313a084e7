package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clock is the clock of one server.
type Clock struct {
	tb     testing.TB
	file   string
	server *Server
}

// StartClock starts a server as [Start] does, with a clock that is ahead of that of the machine, or behind it. What the
// server measures by its monotonic clock goes on as ever.
//
// It takes libfaketime, under which a server with jemalloc hangs, such as Debian's: the test is skipped on those, and where
// the library is missing. With REDLATCH_REQUIRE_REDIS=1 it fails if only the library is missing.
func StartClock(tb testing.TB, ahead time.Duration, args ...string) (*Server, *Clock) {
	tb.Helper()
	library := requireClock(tb)
	c := &Clock{tb: tb, file: filepath.Join(tb.TempDir(), "clock")}
	c.Step(ahead)
	c.server = startWith(tb, []string{
		"LD_PRELOAD=" + library,
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}, args)
	return c.server, c
}

// awaitStep keeps the server busy until its clock steps, for 0.2 s at most. Time stands still in scripts of later versions.
const awaitStep = `if redis.REDIS_VERSION_NUM then return end
local start, spent = redis.call('time')[1], os.clock()
while math.abs(redis.call('time')[1] - start) < 10 and os.clock() - spent < 0.2 do end`

// Set steps the clock to so far ahead of that of the machine, and returns once the server has noticed. Valkey looks at it every 100 ms
// only. No script of Redis 6 is under way then: one that sets a time to live from its new time, and compares that with the time at which
// it began, would find the key expired.
func (c *Clock) Set(ahead time.Duration) {
	c.tb.Helper()
	rdb := redis.NewClient(c.server.options())
	defer closeClient(c.tb, rdb)
	ctx := context.WithoutCancel(c.tb.Context())
	answered := make(chan struct{})
	go func() { // ends with its client
		defer close(answered)
		rdb.Eval(ctx, awaitStep, nil)
	}()
	select {
	case <-answered:
	case <-time.After(20 * time.Millisecond):
	}
	c.Step(ahead)
	if err := retry(readyLimit, func() error {
		now, err := rdb.Time(ctx).Result()
		if off := time.Until(now.Add(-ahead)); err == nil && off.Abs() > time.Second {
			err = fmt.Errorf("it is still off by %v", off)
		}
		return err
	}); err != nil {
		c.tb.Errorf("redistest: set a clock: %v", err)
	}
}

// Step is Set without the wait.
func (c *Clock) Step(ahead time.Duration) {
	c.tb.Helper()
	Injected("step of a server's clock")
	next := c.file + ".next" // the server must not see half of it
	err := os.WriteFile(next, fmt.Appendf(nil, "%+.6f\n", ahead.Seconds()), 0o600)
	if err == nil {
		err = os.Rename(next, c.file)
	}
	if err != nil {
		c.tb.Errorf("redistest: set a clock: %v", err)
	}
}

// requireClock returns the library that fakes the clock of the server that is installed.
func requireClock(tb testing.TB) string {
	tb.Helper()
	Require(tb)
	path, err := binary()
	if err != nil {
		tb.Fatal(err)
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		tb.Fatalf("redistest: version: %v", err)
	}
	if !strings.Contains(string(version), "malloc=libc") {
		Skip(tb, "only a server with malloc=libc runs under libfaketime, such as those of .ci/with-server redis-6.2.14 and valkey-9.1.2")
	}
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if err == nil && len(found) > 0 {
		return found[0]
	}
	if os.Getenv("REDLATCH_REQUIRE_REDIS") == "1" {
		tb.Fatal("libfaketime must be installed, as by apt-get install faketime: REDLATCH_REQUIRE_REDIS=1")
	}
	Skip(tb, "libfaketime is not installed")
	return ""
}
