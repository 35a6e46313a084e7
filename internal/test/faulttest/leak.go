package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// leakLimit is how long a server is given to notice that its clients are gone.
const leakLimit = 5 * time.Second

// LeakCheck sees to it that the test leaves nothing on the server at addr: at its end no key is without a TTL, no channel
// has subscribers, sharded ones included, and there are no more connections than now. Keys and channels that match one
// of ignore, a pattern as KEYS takes it, may stay. Call it first, so that it looks after all other cleanups. It waits up
// to 5 s for the server to notice what has closed.
func LeakCheck(tb testing.TB, addr string, ignore ...string) {
	tb.Helper()
	l := &leaks{addr: addr, ignore: append(ignore, "faulttest:*", "__sentinel__:*")}
	ctx := context.WithoutCancel(tb.Context())
	var err error
	if l.clients, err = l.connections(ctx); err != nil {
		tb.Fatalf("faulttest: leak check: %v", err)
	}
	tb.Cleanup(func() {
		tb.Helper()
		l.verify(ctx, tb)
	})
}

type leaks struct {
	addr    string
	ignore  []string
	clients int // at the beginning
}

func (l *leaks) verify(ctx context.Context, tb testing.TB) {
	tb.Helper()
	rdb := direct(l.addr)
	defer rdb.Close()
	found, err := l.find(ctx, rdb)
	end := time.Now().Add(leakLimit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for err == nil && len(found) > 0 && time.Now().Before(end) {
		<-tick.C
		found, err = l.find(ctx, rdb)
	}
	if err != nil {
		tb.Errorf("faulttest: leak check: %v", err)
	}
	for _, leak := range found {
		tb.Errorf("left on the server: %s", leak)
	}
}

// find describes what is left.
func (l *leaks) find(ctx context.Context, rdb *redis.Client) ([]string, error) {
	found, err := l.keys(ctx, rdb)
	if err != nil {
		return nil, err
	}
	for _, list := range []string{"CHANNELS", "SHARDCHANNELS"} {
		channels, err := l.channels(ctx, rdb, list)
		if err != nil {
			return nil, err
		}
		for _, name := range channels {
			found = append(found, fmt.Sprintf("channel %q (%s)", name, strings.ToLower(list)))
		}
	}
	lines, err := clients(ctx, rdb)
	if err != nil {
		return nil, err
	}
	if len(lines) > l.clients {
		text := strings.Join(lines, "\n")
		found = append(found, fmt.Sprintf("%d clients, %d at the beginning:\n%s", len(lines), l.clients, text))
	}
	return found, nil
}

// keys describes the keys without a TTL.
func (l *leaks) keys(ctx context.Context, rdb *redis.Client) ([]string, error) {
	ignored := map[string]bool{}
	for _, pattern := range l.ignore {
		keys, err := scan(ctx, rdb, pattern)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			ignored[key] = true
		}
	}
	keys, err := scan(ctx, rdb, "*")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, key := range keys {
		if ignored[key] {
			continue
		}
		ttl, err := rdb.PTTL(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		if ttl == -1 {
			found = append(found, fmt.Sprintf("key %q without a TTL", key))
		}
	}
	return found, nil
}

func scan(ctx context.Context, rdb *redis.Client, pattern string) ([]string, error) {
	var keys []string
	it := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
	for it.Next(ctx) {
		keys = append(keys, it.Val())
	}
	return keys, it.Err()
}

// channels are those with subscribers; none for a list that the server does not know.
func (l *leaks) channels(ctx context.Context, rdb *redis.Client, list string) ([]string, error) {
	ignored := map[string]bool{}
	for _, pattern := range l.ignore {
		names, err := pubsub(ctx, rdb, list, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			ignored[name] = true
		}
	}
	names, err := pubsub(ctx, rdb, list, "*")
	var found []string
	for _, name := range names {
		if !ignored[name] {
			found = append(found, name)
		}
	}
	return found, err
}

func pubsub(ctx context.Context, rdb *redis.Client, list, pattern string) ([]string, error) {
	names, err := rdb.Do(ctx, "PUBSUB", list, pattern).StringSlice()
	var refusal redis.Error
	if errors.As(err, &refusal) && list == "SHARDCHANNELS" {
		return nil, nil // before Redis 7
	}
	return names, err
}

func (l *leaks) connections(ctx context.Context) (int, error) {
	rdb := direct(l.addr)
	defer rdb.Close()
	lines, err := clients(ctx, rdb)
	return len(lines), err
}

// clients lists the server's clients, except rdb itself and the links of replication.
func clients(ctx context.Context, rdb *redis.Client) ([]string, error) {
	conn := rdb.Conn()
	id, err := conn.ClientID(ctx).Result()
	text, err2 := conn.ClientList(ctx).Result()
	if err := errors.Join(err, err2, conn.Close()); err != nil {
		return nil, err
	}
	var others []string
	for line := range strings.Lines(text) {
		flags, _, _ := strings.Cut(after(line, " flags="), " ")
		if !strings.HasPrefix(line, fmt.Sprintf("id=%d ", id)) && flags != "S" && flags != "M" {
			others = append(others, strings.TrimSpace(line))
		}
	}
	return others, nil
}

func after(s, sep string) string {
	_, rest, _ := strings.Cut(s, sep)
	return rest
}
