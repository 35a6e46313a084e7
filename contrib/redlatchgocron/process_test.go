package redlatchgocron_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchgocron"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// asProcess has the test binary be one of the processes, whose clock is so many milliseconds ahead.
const asProcess = "REDLATCHGOCRON_AHEAD"

func TestMain(m *testing.M) {
	if ahead, ok := os.LookupEnv(asProcess); ok {
		if err := serve(ahead); err != nil {
			log.Fatal(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serve runs a job of 1 ms each second, and prints a line for each run, until its input ends.
func serve(ahead string) error {
	ms, err := strconv.Atoi(ahead)
	if err != nil {
		return err
	}
	c := clock(time.Duration(ms) * time.Millisecond)
	client, err := redlatch.Open(context.Background(), os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	defer client.Close()
	locker, err := redlatchgocron.NewLocker(client, "cron", time.Second, redlatchgocron.WithNow(c.Now))
	if err != nil {
		return err
	}
	s, err := gocron.NewScheduler(gocron.WithClock(c), gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.CronJob(everySecond, true), gocron.NewTask(func() {
		fmt.Println("run")
		time.Sleep(time.Millisecond)
	}), gocron.WithName("job"))
	if err != nil {
		return err
	}
	s.Start()
	_, _ = os.Stdin.Read(make([]byte, 1))
	return s.Shutdown()
}

func TestJobsOfProcessesRunOncePerTick(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ran, ended := make(chan string), make(chan error)
	var stops []func() error
	for i := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		redistest.DieWithParent(cmd)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", asProcess, 50*i), "REDIS_URL="+server.URL())
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		stops = append(stops, in.Close)
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				ran <- lines.Text()
			}
			ended <- cmd.Wait()
		}()
	}
	runs := 0
	for left := len(stops); left > 0; {
		select {
		case <-ran:
			if runs++; runs == 4 {
				for _, stop := range stops {
					require.NoError(t, stop())
				}
			}
		case err := <-ended:
			require.NoError(t, err)
			left--
		}
	}
	// A machine that is so slow that a tick begins half a second late runs it as the next one. So what counts are the ticks in Redis.
	ticks, err := server.Client(t).Keys(t.Context(), "*cron*@*").Result()
	require.NoError(t, err)
	assert.Len(t, ticks, runs, "each tick that was taken ran once")
	instants := map[string]bool{}
	for _, tick := range ticks {
		instants[tick[strings.LastIndexByte(tick, '@'):]] = true
	}
	assert.Len(t, instants, runs, "no tick was taken under two keys: %v", ticks)
}
