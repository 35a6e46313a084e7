package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// StartReplica starts a replica of master and returns once it has all that the master has.
func StartReplica(tb testing.TB, master *Server) *Server {
	tb.Helper()
	args := []string{"--replicaof", "127.0.0.1", strconv.Itoa(master.port)}
	if master.password != "" {
		args = append(args, "--masterauth", master.password, "--requirepass", master.password)
	}
	replica := Start(tb, args...)
	AwaitSync(tb, master, replica)
	return replica
}

// AwaitSync waits until a replica has all that its master has. What a master had not sent yet when it was killed is gone.
func AwaitSync(tb testing.TB, master, replica *Server) {
	tb.Helper()
	from, to := redis.NewClient(master.options()), redis.NewClient(replica.options())
	defer closeClient(tb, from)
	defer closeClient(tb, to)
	Eventually(tb, readyLimit, "replica in sync", func() error { return inSync(tb.Context(), from, to) })
}

func inSync(ctx context.Context, master, replica *redis.Client) error {
	sent, err := replication(ctx, master)
	if err != nil {
		return err
	}
	got, err := replication(ctx, replica)
	if err != nil {
		return err
	}
	if got["master_link_status"] != "up" {
		return fmt.Errorf("link is %q", got["master_link_status"])
	}
	want, err := strconv.ParseInt(sent["master_repl_offset"], 10, 64)
	if err != nil {
		return err
	}
	have, err := strconv.ParseInt(got["slave_repl_offset"], 10, 64)
	if err != nil {
		return err
	}
	if have < want {
		return fmt.Errorf("offset %d of %d", have, want)
	}
	return nil
}

// replication returns the fields of INFO replication.
func replication(ctx context.Context, rdb *redis.Client) (map[string]string, error) {
	info, err := rdb.Info(ctx, "replication").Result()
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, err
}
