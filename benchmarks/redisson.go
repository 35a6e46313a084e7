package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// redissonVersion is the one that runs beside redlatch.
const redissonVersion = "4.7.0"

// besideRedisson measures calls on data, beside those of Redisson on a Java virtual machine.
func besideRedisson(ctx context.Context, b *bench) ([]row, error) {
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			progress("redisson: left out, %s is not on the PATH", program)
			return nil, nil
		}
	}
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	java, err := startRedisson(ctx, b.server.addr)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	rows, err := redissonRows(ctx, b, s.client, s.rdb, java)
	java.stop()
	return rows, errors.Join(err, s.close(), b.server.empty(ctx))
}

func redissonRows(ctx context.Context, b *bench, client *redlatch.Client, rdb *redis.Client, java *redisson) (rows []row, err error) {
	rounds, window := 3, 500*time.Millisecond
	if b.config.quick {
		rounds, window = 2, 200*time.Millisecond
	}
	calls := dataCalls(client, rdb)
	if err := fillData(ctx, rdb, 64); err != nil {
		return nil, err
	}
	for _, c := range calls { // until the code is compiled
		if _, err := java.perSecond(c.redisson, 16, 3*window); err != nil {
			return nil, err
		}
	}
	for _, c := range calls {
		sides := []struct {
			name      string
			perSecond func(l level) (float64, error)
		}{
			{gridName, func(l level) (float64, error) {
				calls, err := pairsPerSecond(ctx, dataSession(c.ours), l, window)
				return calls * float64(c.batch), err
			}},
			{redissonName, func(l level) (float64, error) { return java.perSecond(c.redisson, l.goroutines, window) }},
		}
		for _, l := range levels()[:4] {
			found := samples{}
			for round := range rounds {
				for _, side := range rotated(sides, round) {
					calls, err := side.perSecond(l)
					if err != nil {
						return nil, fmt.Errorf("%s of %s: %w", c.name, side.name, err)
					}
					found.add(side.name, calls)
				}
			}
			ratio := found.ratio(gridName, redissonName)
			progress("%s, %s: %s × Redisson", c.name, l.label, figure(ratio))
			goal := map[int]float64{1: 1.5, 16: 3, 64: 3}[l.goroutines]
			rows = append(rows, row{
				Measure: c.name + ", " + l.label + ": calls/s", Cells: found.cells(), Rounds: found,
				Targets: []target{atLeast("× Redisson", goal, ratio)},
			})
		}
	}
	return rows, nil
}

// redisson is a process of java/Load.java.
type redisson struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startRedisson(ctx context.Context, addr string) (*redisson, error) {
	libraries, err := redissonLibraries(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", filepath.Join(libraries, "*"),
		filepath.Join("java", "Load.java"), addr, strconv.Itoa(len(payload)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &firstLines{left: 10}
	j := &redisson{cmd: cmd}
	if j.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := j.out.ReadString('\n'); err != nil || line != "ready\n" {
		j.stop()
		return nil, fmt.Errorf("java is not ready: %q, %w", line, err)
	}
	return j, nil
}

// redissonLibraries returns the folder with Redisson and what it needs, which Maven fills once, by the project of interop.
func redissonLibraries(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "redlatch", "benchmarks-"+redissonVersion)
	libraries, complete := filepath.Join(dir, "lib"), filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return libraries, nil
	}
	progress("redisson: Maven fetches Redisson %s", redissonVersion)
	var failed error
	for _, network := range [][]string{{"-o"}, nil} { // what it has it need not fetch
		cmd := exec.CommandContext(ctx, "mvn", append(network, "-q", "-B", "compile", "-Doutput="+dir, "-Dredisson.version="+redissonVersion)...)
		cmd.Dir = filepath.Join("..", "interop", "java")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return libraries, os.WriteFile(complete, nil, 0o600)
		}
		failed = fmt.Errorf("mvn: %w: %s", err, out)
	}
	return "", failed
}

// perSecond returns how many calls all threads together make in a second.
func (j *redisson) perSecond(call string, threads int, window time.Duration) (float64, error) {
	if _, err := fmt.Fprintln(j.in, call, threads, window.Milliseconds()); err != nil {
		return 0, err
	}
	line, err := j.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("java gave no answer: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(line), 64)
}

// stop ends the process.
func (j *redisson) stop() {
	_ = j.cmd.Process.Kill() // there is nothing to lose
	_ = j.cmd.Wait()         // it was killed, and says so
}
