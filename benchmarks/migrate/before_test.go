package migrate_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/benchmarks/internal/postgres"
	"github.com/redlatch/redlatch/benchmarks/migrate"
)

func TestProgramsCloseTheOrder(t *testing.T) {
	addr := startRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() == nil }, 10*time.Second, 20*time.Millisecond)
	closed := 0
	closeOrder := func(context.Context) error {
		closed++
		return nil
	}

	require.NoError(t, migrate.Redsync(t.Context(), rdb, closeOrder))
	require.NoError(t, migrate.BSM(t.Context(), rdb, closeOrder))
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true},
		KeyMajority:  1,
	})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	require.NoError(t, migrate.Rueidis(t.Context(), locker, closeOrder))
	assert.Equal(t, 3, closed)
}

func TestAsynqSendsTheMail(t *testing.T) {
	addr := startRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() == nil }, 10*time.Second, 20*time.Millisecond)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var sent []string
	require.NoError(t, migrate.Asynq(ctx, asynq.RedisClientOpt{Addr: addr}, func(_ context.Context, to string) error {
		sent = append(sent, to)
		stop()
		return nil
	}))
	assert.Equal(t, []string{"ada@example.com"}, sent)
}

func TestRiverChargesTheOrder(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	pool := startPostgres(ctx, t)
	var charged []int
	require.NoError(t, migrate.ChargeOrders(ctx, pool, func(_ context.Context, order int) error {
		charged = append(charged, order)
		if len(charged) == 1 {
			return migrate.ErrBusy
		}
		stop()
		return migrate.ErrDeclined
	}))
	assert.Equal(t, []int{42, 42}, charged)
	rows, err := pool.Query(t.Context(), "SELECT format('%s %s %s', args->>'order', state, attempt) FROM river_job ORDER BY id")
	require.NoError(t, err)
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Equal(t, []string{"42 cancelled 1", "43 cancelled 0"}, jobs)
}

// alone is a locker of a scheduler that has no other beside it.
type alone struct{}

func (alone) Lock(context.Context, string) (gocron.Lock, error) { return alone{}, nil }

func (alone) Unlock(context.Context) error { return nil }

func TestGocronReports(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	reports := 0
	require.NoError(t, migrate.Gocron(ctx, alone{}, func(context.Context) error {
		reports++
		stop()
		return nil
	}))
	assert.Equal(t, 1, reports)
}

// startPostgres starts a server with the tables of River.
func startPostgres(ctx context.Context, t *testing.T) *pgxpool.Pool {
	t.Helper()
	server, err := postgres.Start(ctx, "fsync=off")
	if errors.Is(err, postgres.ErrMissing) && os.Getenv("REDLATCH_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	pool, err := pgxpool.New(ctx, server.URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	require.NoError(t, err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	return pool
}

// startRedis starts a server on a free port and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server on the PATH")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().(*net.TCPAddr)
	require.NoError(t, free.Close())
	server := exec.Command(path, "--port", strconv.Itoa(addr.Port), "--save", "", "--bind", "127.0.0.1")
	server.Dir = t.TempDir()
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		assert.NoError(t, server.Process.Kill())
		assert.Error(t, server.Wait(), "killed")
	})
	return addr.String()
}
