package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// AwaitSync waits until a replica has all that its master has now. What a master had not sent yet when it was killed is
// gone.
func AwaitSync(tb testing.TB, master, replica *Server) {
	tb.Helper()
	from, to := redis.NewClient(master.options()), redis.NewClient(replica.options())
	defer closeClient(tb, from)
	defer closeClient(tb, to)
	awaitSync(tb, from, to)
}

func awaitSync(tb testing.TB, master, replica *redis.Client) {
	tb.Helper()
	_, port, err := net.SplitHostPort(replica.Options().Addr)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	ctx, want := tb.Context(), int64(0) // what the master writes from here on is not waited for
	Eventually(tb, readyLimit, "replica in sync", func() error {
		got, err := replication(ctx, replica)
		if err != nil {
			return err
		}
		if got["master_link_status"] != "up" {
			return fmt.Errorf("link is %q", got["master_link_status"])
		}
		sent, err := replication(ctx, master)
		if err != nil {
			return err
		}
		if want == 0 {
			if want, err = strconv.ParseInt(sent["master_repl_offset"], 10, 64); err != nil {
				return err
			}
		}
		if want == 0 {
			return start(ctx, master)
		}
		return acknowledged(sent, port, want)
	})
}

// acknowledged returns nil if the replica at a port has told its master that it has all up to an offset. A master may hold
// back what it replicates until the first acknowledgement.
func acknowledged(master map[string]string, port string, want int64) error {
	for field, value := range master {
		if !strings.HasPrefix(field, "slave") || !strings.Contains(value, "port="+port+",state=online") {
			continue
		}
		_, text, _ := strings.Cut(value, "offset=")
		text, _, _ = strings.Cut(text, ",")
		offset, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		if offset < want {
			return fmt.Errorf("offset %d of %d is acknowledged", offset, want)
		}
		return nil
	}
	return fmt.Errorf("the master does not count port %s as online: %v", port, master)
}

// start has a master that has not written anything write to its replicas. The node of a cluster, which does not send them
// messages, is in sync with them.
func start(ctx context.Context, master *redis.Client) error {
	info, err := master.Info(ctx, "cluster").Result()
	if err != nil || strings.Contains(info, "cluster_enabled:1") {
		return err
	}
	if err := master.Publish(ctx, "redistest", "sync").Err(); err != nil {
		return err
	}
	return errors.New("nothing is acknowledged")
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
