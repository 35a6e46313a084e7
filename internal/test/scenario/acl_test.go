package scenario_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/ronce"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

// documentedUser returns the words of ACL SETUSER in docs/operations.md, with those for names that have a tag of their own.
func documentedUser(t *testing.T) (rules []any) {
	t.Helper()
	text, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	command := regexp.MustCompile(`(?s)redis-cli (ACL SETUSER .*?)` + "```").FindSubmatch(text)
	tagged := regexp.MustCompile("(?s)such as `app:{shop}`, add:\n\n```sh\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, command)
	require.NotNil(t, tagged)
	words := strings.NewReplacer("'", "", "\\\n", " ").Replace(string(command[1]) + " " + string(tagged[1]))
	for word := range strings.FieldsSeq(words) {
		rules = append(rules, word)
	}
	return rules
}

// awaitUsed waits until each command among the rules has been called on one of the servers: a channel is left some time after its
// last listener.
func awaitUsed(t *testing.T, rules []any, servers ...*redistest.Server) {
	t.Helper()
	var admins []*redis.Client
	for _, s := range servers {
		admins = append(admins, s.Client(t))
	}
	redistest.Eventually(t, time.Minute, "no command is more than needed", func() error {
		var stats strings.Builder
		for _, admin := range admins {
			text, err := admin.Info(t.Context(), "commandstats").Result()
			if err != nil {
				return err
			}
			stats.WriteString(text)
		}
		for _, rule := range rules {
			command, added := strings.CutPrefix(rule.(string), "+")
			container, _, _ := strings.Cut(command, "|") // Redis 6.2 does not count its parts
			if added && command[0] != '@' && !strings.Contains(stats.String(), "cmdstat_"+command+":") &&
				!strings.Contains(stats.String(), "cmdstat_"+container+":") {
				return errors.New("not called: " + command)
			}
		}
		return nil
	})
}

// F20
func TestDocumentedUserNeedsNoMoreAndNoLess(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).Do(t.Context(), documentedUser(t)...).Err())
	require.NoError(t, server.Client(t).ConfigResetStat(t.Context()).Err())
	var log bytes.Buffer
	logger := redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	user := func() *redlatch.Client {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, redlatch.WithNamePrefix("app:"), logger)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	one, two := user(), user()
	for _, name := range []string{"plain", "{with a tag}"} {
		for kind, get := range map[string]func(*redlatch.Client) rlock.Locker{
			"lock":   func(c *redlatch.Client) rlock.Locker { return c.GetLock(name + "lock") },
			"fenced": func(c *redlatch.Client) rlock.Locker { return c.GetFencedLock(name + "fenced") },
			"fair":   func(c *redlatch.Client) rlock.Locker { return c.GetFairLock(name + "fair") },
			"writer": func(c *redlatch.Client) rlock.Locker { return c.GetReadWriteLock(name + "rw") },
			"reader": func(c *redlatch.Client) rlock.Locker {
				if c == one {
					return c.GetReadWriteLock(name + "rwr")
				}
				return c.GetReadWriteLock(name + "rwr").RLocker()
			},
			"multi": func(c *redlatch.Client) rlock.Locker {
				return c.GetMultiLock(c.GetLock(name+"a"), c.GetLock(name+"b"))
			},
		} {
			t.Run(kind+" "+name, func(t *testing.T) { passedOn(t, server, get(one), get(two)) })
		}
		t.Run("election "+name, func(t *testing.T) { elected(t, one, two, name+"election") })
		t.Run("permits "+name, func(t *testing.T) { borrowed(t, one, two, name) })
		t.Run("queue "+name, func(t *testing.T) { delivered(t, one, two, name) })
		t.Run("once "+name, func(t *testing.T) { madeOnce(t, one, two, name) })
		t.Run("barriers "+name, func(t *testing.T) { together(t, one, two, name) })
		t.Run("ids "+name, func(t *testing.T) {
			for _, opts := range [][]rid.Option{nil, {rid.WithTimePrefix(32)}} {
				_, err := one.GetIDGenerator(name+"id", opts...).Next(t.Context())
				require.NoError(t, err)
			}
		})
		t.Run("limiter "+name, func(t *testing.T) {
			for _, rate := range []rratelimiter.Rate{rratelimiter.Per(100, time.Second), rratelimiter.Window(100, time.Second)} {
				limiter := one.GetRateLimiter(name+"limiter", rate)
				require.NoError(t, limiter.Wait(t.Context(), "k", 1))
				_, err := limiter.Allow(t.Context(), "k", 1)
				require.NoError(t, err)
				_, err = limiter.Info(t.Context(), "k", 1)
				require.NoError(t, err)
			}
		})
		t.Run("RedLock "+name, func(t *testing.T) {
			hold, err := one.GetRedLock(one.GetLock(name+"r"), one.GetLock(name+"s"), one.GetLock(name+"t")).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, hold.Unlock(t.Context()))
		})
		t.Run("scheduler "+name, func(t *testing.T) { scheduled(t, one, two, name) })
	}
	t.Run("latch", func(t *testing.T) {
		latch := one.GetCountDownLatch("latch")
		_, err := latch.TrySetCountOnce(t.Context(), 2, time.Hour)
		require.NoError(t, err)
		opened := make(chan error, 1) // the result of Await
		go func() { opened <- two.GetCountDownLatch("latch").Await(t.Context()) }()
		_, err = latch.CountDownOnce(t.Context(), "one")
		require.NoError(t, err)
		require.NoError(t, latch.CountDown(t.Context()))
		require.NoError(t, <-opened)
		_, err = latch.Delete(t.Context())
		require.NoError(t, err)
	})
	t.Run("open", func(t *testing.T) {
		c, err := redlatch.Open(t.Context(), "redis://app:secret@"+server.Addr(), redlatch.WithNamePrefix("app:"), logger)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
	awaitUsed(t, documentedUser(t), server)
	require.NoError(t, one.Close())
	require.NoError(t, two.Close())
	assert.Empty(t, log.String())
}

// passedOn has one client wait for another's lock.
func passedOn(t *testing.T, server *redistest.Server, mine, theirs rlock.Locker) {
	t.Helper()
	admin := server.Client(t)
	before, err := admin.PubSubChannels(t.Context(), "*").Result()
	require.NoError(t, err)
	hold, err := mine.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Extend(t.Context(), time.Minute))
	waiting := locktest.Begin(func() (*rlock.Hold, error) { return theirs.Lock(t.Context()) })
	redistest.Eventually(t, lease, "the waiter listens", func() error {
		now, err := admin.PubSubChannels(t.Context(), "*").Result()
		if err == nil && !slices.ContainsFunc(now, func(c string) bool { return !slices.Contains(before, c) }) {
			err = errors.New("no new channel")
		}
		return err
	})
	require.NoError(t, hold.Unlock(t.Context()))
	next := <-waiting
	require.NoError(t, next.Err)
	locktest.Unlock(t, next.Hold)
}

// madeOnce has one client wait for another's value.
func madeOnce(t *testing.T, one, two *redlatch.Client, name string) {
	t.Helper()
	get := func(c *redlatch.Client) *ronce.Once[string] {
		return redlatch.GetOnce[string](c, name+"once", ronce.WithTTL(time.Minute))
	}
	runs := make(chan struct{})
	made := make(chan error, 1)
	go func() {
		_, _, err := get(one).Do(t.Context(), "k", func(context.Context) (string, error) {
			close(runs)
			return "made", nil
		})
		made <- err
	}()
	<-runs
	value, shared, err := get(two).Do(t.Context(), "k", func(context.Context) (string, error) { return "", errors.New("it ran") })
	require.NoError(t, err)
	assert.True(t, shared)
	assert.Equal(t, "made", value)
	require.NoError(t, <-made)
	_, ok, err := get(one).Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.True(t, ok)
	require.NoError(t, get(one).Forget(t.Context(), "k"))
}

// elected has one client lead after another, and a third party watch.
func elected(t *testing.T, one, two *redlatch.Client, name string) {
	t.Helper()
	lead, err := one.GetElection(name).Campaign(t.Context(), relection.WithValue("one"))
	require.NoError(t, err)
	next := make(chan error, 1) // the result
	go func() {
		lead, err := two.GetElection(name).Campaign(t.Context(), relection.WithValue("two"))
		if err == nil {
			err = lead.Resign(t.Context())
		}
		next <- err
	}()
	redistest.Eventually(t, lease, "the candidate waits", func() error {
		if waiting, err := one.GetElection(name).Candidates(t.Context()); err != nil || len(waiting) != 1 || waiting[0].Value != "two" {
			return fmt.Errorf("%v wait: %w", waiting, err)
		}
		return nil
	})
	for leader, err := range two.GetElection(name).Observe(t.Context()) {
		if errors.Is(err, relection.ErrNoLeader) {
			break
		}
		require.NoError(t, err)
		switch leader.Value {
		case "one":
			require.NoError(t, lead.Proclaim(t.Context(), "still one"))
		case "still one":
			require.NoError(t, lead.Resign(t.Context()))
		}
	}
	require.NoError(t, <-next)
}

// together has two clients pass barriers of both kinds.
func together(t *testing.T, one, two *redlatch.Client, name string) {
	t.Helper()
	passed := make(chan error, 2) // both results
	for _, c := range []*redlatch.Client{one, two} {
		go func() {
			double := c.GetDoubleBarrier(name+"double", 2)
			barrier := c.GetBarrier(name+"barrier", 2)
			_, err := barrier.Info(t.Context())
			_, doubleErr := double.Info(t.Context())
			passed <- errors.Join(err, doubleErr, barrier.Await(t.Context()), double.Enter(t.Context()), double.Leave(t.Context()))
		}()
	}
	require.NoError(t, <-passed)
	require.NoError(t, <-passed)
}

// borrowed moves permits of both kinds from one client to another.
func borrowed(t *testing.T, one, two *redlatch.Client, name string) {
	t.Helper()
	counted, leased := one.GetSemaphore(name+"counted"), one.GetPermitSemaphore(name+"leased")
	_, err := counted.TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	_, err = leased.TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, counted.Acquire(t.Context(), 1))
	permit, err := leased.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, permit.Extend(t.Context(), time.Minute))
	got := make(chan error, 2) // both results
	go func() { got <- two.GetSemaphore(name+"counted").Acquire(t.Context(), 1) }()
	go func() {
		permit, err := two.GetPermitSemaphore(name + "leased").Acquire(t.Context())
		if err == nil {
			err = permit.Release(t.Context())
		}
		got <- err
	}()
	require.NoError(t, counted.Release(t.Context(), 1))
	require.NoError(t, permit.Release(t.Context()))
	require.NoError(t, <-got)
	require.NoError(t, <-got)
}

// delivered has one client consume what another offers.
func delivered(t *testing.T, one, two *redlatch.Client, name string) {
	t.Helper()
	got := make(chan error, 1) // the result of Take and Ack
	go func() {
		m, err := redlatch.GetDelayedQueue[string](two, name+"queue").Take(t.Context())
		if err == nil {
			err = m.Ack(t.Context())
		}
		got <- err
	}()
	q := redlatch.GetDelayedQueue[string](one, name+"queue")
	_, err := q.Offer(t.Context(), "later", time.Hour)
	require.NoError(t, err)
	_, err = q.Offer(t.Context(), "now", 0)
	require.NoError(t, err)
	require.NoError(t, <-got)
	require.NoError(t, q.Pause(t.Context()))
	_, err = q.Stats(t.Context())
	require.NoError(t, err)
}

// scheduled has one client run a job of another's.
func scheduled(t *testing.T, one, two *redlatch.Client, name string) {
	t.Helper()
	ran := make(chan error, 1)
	worker, operator := one.GetScheduler(name+"jobs"), two.GetScheduler(name+"jobs")
	require.NoError(t, worker.Register("job", rscheduler.MustCron("@yearly"), func(context.Context, rscheduler.Run) error {
		ran <- nil
		return nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	redistest.Eventually(t, 10*time.Second, "the job is written", func() error { return operator.Trigger(t.Context(), "job") })
	require.NoError(t, <-ran)
	require.NoError(t, operator.Pause(t.Context(), "job", "why"))
	require.NoError(t, operator.Resume(t.Context(), "job"))
	_, err := operator.Jobs(t.Context())
	require.NoError(t, err)
	_, err = operator.Runs(t.Context(), "job", 1)
	require.NoError(t, err)
	_, err = operator.Remove(t.Context(), "job")
	require.NoError(t, err)
	stop()
	require.NoError(t, <-done)
}

// deployment is Redis with the documented user.
type deployment struct {
	admin   redis.UniversalClient
	user    func() redis.UniversalClient
	servers []*redistest.Server // on which each of rules is used
	rules   []any

	guards []*redistest.Server // that have the user by the words of grant
	grant  []any

	written *noted // by the clients of the user
	words   []any  // of the user on the servers that have the objects
}

// documentedRules returns the rules that operations.md names after some words.
func documentedRules(t *testing.T, after string) (rules []any) {
	t.Helper()
	text, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	named := regexp.MustCompile(after + "[^`]*`([^`]*)`").FindSubmatch(text)
	require.NotNil(t, named)
	for word := range strings.FieldsSeq(strings.ReplaceAll(string(named[1]), "'", "")) {
		rules = append(rules, word)
	}
	return rules
}

func clusterOfTheUser(t *testing.T) deployment {
	t.Helper()
	c := redistest.StartCluster(t, 3)
	var more []any
	for _, rule := range documentedRules(t, "On a cluster add") {
		if c.Nodes()[0].Major(t) >= 7 || !strings.HasPrefix(rule.(string), "+s") { // Redis 6.2 has no sharded channels
			more = append(more, rule)
		}
	}
	grant := append(documentedUser(t), more...)
	for _, node := range c.Nodes() {
		require.NoError(t, node.Client(t).Do(t.Context(), grant...).Err())
	}
	written := &noted{all: map[string][][]string{}}
	return deployment{
		admin: c.Client(t), servers: c.Nodes(), rules: more, guards: c.Nodes(), grant: grant, written: written,
		words: append(documentedUser(t), documentedRules(t, "On a cluster add")...), // also what Redis 6.2 does not know
		user: func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: c.Addrs(), Username: "app", Password: "secret", Dialer: faulttest.Tap(written.add),
			})
		},
	}
}

func sentinelOfTheUser(t *testing.T) deployment {
	t.Helper()
	g := locktest.StartGroup(t)
	for _, node := range []*redistest.Server{g.Master, g.Replica} {
		require.NoError(t, node.Client(t).Do(t.Context(), documentedUser(t)...).Err())
	}
	watcher := append([]any{"ACL", "SETUSER", "watcher", "on", ">secret", "-@all", "resetchannels"}, documentedRules(t, "A user of Sentinel itself needs")...)
	for _, node := range g.Sentinel.Nodes() {
		require.NoError(t, node.Client(t).Do(t.Context(), watcher...).Err())
	}
	written := &noted{all: map[string][][]string{}}
	return deployment{ // Sentinel does not count its commands
		admin: g.Master.Client(t), guards: g.Sentinel.Nodes(), grant: watcher, written: written, words: documentedUser(t),
		user: func() redis.UniversalClient {
			return redistest.FailoverClient(t, &redis.FailoverOptions{
				MasterName: "redlatch", SentinelAddrs: g.Sentinel.Addrs(), SentinelUsername: "watcher", SentinelPassword: "secret",
				Username: "app", Password: "secret", Dialer: faulttest.Tap(written.add),
			})
		},
	}
}

// F20
func TestDocumentedUserNeedsNoMoreAndNoLessOnAClusterAndBehindSentinel(t *testing.T) {
	redistest.Long(t)
	for name, start := range map[string]func(t *testing.T) deployment{"cluster": clusterOfTheUser, "Sentinel": sentinelOfTheUser} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			redistest.AwaitChannels(t, d.admin, 0) // its client knows the layout now
			for _, s := range d.servers {
				require.NoError(t, s.Client(t).ConfigResetStat(t.Context()).Err())
			}
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			client := func() *redlatch.Client {
				rdb := d.user()
				t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
				require.NoError(t, redlatch.Check(t.Context(), rdb, redlatch.WithNamePrefix("app:")))
				c, err := redlatch.New(rdb, redlatch.WithNamePrefix("app:"), redlatch.WithLogger(logger))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				return c
			}
			one, two := client(), client()
			all := enterAll(t, one, two, guests(failoverLease), func(g guest) string { return g.name })
			redistest.AwaitChannels(t, d.admin, channels(all))
			for _, h := range all {
				h.handOver(t)
			}
			together(t, one, two, "barriers")
			_, err := one.GetIDGenerator("ids").Next(t.Context())
			require.NoError(t, err)
			require.NoError(t, one.GetRateLimiter("limiter", rratelimiter.Per(1, time.Second)).Wait(t.Context(), "k", 1))
			awaitUsed(t, d.rules, d.servers...)
			require.NoError(t, one.Close())
			require.NoError(t, two.Close())
			assert.Empty(t, log.String())
			guards := func(addr string) bool {
				return slices.ContainsFunc(d.guards, func(s *redistest.Server) bool { return s.Addr() == addr })
			}
			if d.servers == nil { // they are Sentinels
				assert.NotEmpty(t, d.written.requireWithin(t, d.grant, guards))
			}
			sent := d.written.requireWithin(t, d.words, func(addr string) bool { return d.servers != nil || !guards(addr) })
			assert.Positive(t, sent["evalsha"])
			assert.Positive(t, sent["subscribe"]+sent["ssubscribe"])
		})
	}
}

// F20
func TestDocumentedUserNeedsEachOfItsPatterns(t *testing.T) {
	redistest.Long(t)
	for name, start := range map[string]func(t *testing.T) deployment{
		"one server": serverOfTheUser, "cluster": clusterOfTheUser, "Sentinel": sentinelOfTheUser,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			for i, rule := range d.grant {
				if pattern := rule.(string)[0]; pattern != '~' && pattern != '&' {
					continue
				}
				few := slices.Concat(d.grant[:3], []any{"reset"}, d.grant[3:i], d.grant[i+1:])
				for _, s := range d.guards {
					require.NoError(t, s.Client(t).Do(t.Context(), few...).Err())
					require.NoError(t, s.Client(t).ACLLogReset(t.Context()).Err())
				}
				for _, s := range d.servers {
					require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
				}
				listening := 10 * time.Millisecond
				if strings.HasPrefix(rule.(string), "&redlatch") { // of consumers: a refusal delays them, and fails nothing
					listening = time.Second
				}
				failed := useEverything(t, d.user(), listening)
				if rule.(string)[0] == '~' {
					assert.NotEmpty(t, failed, "nothing fails without %s", rule)
				}
				var log []string // what was refused to the user, as the servers saw it
				redistest.Eventually(t, 10*time.Second, fmt.Sprint("something needs ", rule), func() error {
					for _, s := range d.guards {
						entries, err := s.Client(t).ACLLog(t.Context(), 100).Result()
						if err != nil {
							return err
						}
						for _, e := range entries {
							if e.Reason != "command" { // go-redis tries some of its own
								log = append(log, e.Object)
							}
						}
					}
					if len(log) == 0 {
						return errors.New("nothing was refused")
					}
					return nil
				})
				t.Logf("without %s %q are refused, and %q fail", rule, log, failed)
			}
		})
	}
}

func serverOfTheUser(t *testing.T) deployment {
	t.Helper()
	s := redistest.Start(t)
	grant := documentedUser(t)
	require.NoError(t, s.Client(t).Do(t.Context(), grant...).Err())
	servers := []*redistest.Server{s}
	return deployment{
		admin: s.Client(t), servers: servers, guards: servers, grant: grant,
		user: func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "app", Password: "secret"})
		},
	}
}

// useEverything uses each kind of object, and returns those of which a call has failed. A consumer listens for a time.
func useEverything(t *testing.T, rdb redis.UniversalClient, listening time.Duration) (failed []string) {
	t.Helper()
	c, err := redlatch.New(rdb, redlatch.WithNamePrefix("app:"), redlatch.WithLogger(slog.New(slog.DiscardHandler)),
		redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, rdb.Close())
	}()
	for _, name := range []string{"", "{with a tag}"} {
		note := func(kind string, errs ...error) {
			if err := errors.Join(errs...); err != nil {
				failed = append(failed, kind+" "+name)
			}
		}
		for kind, get := range lockKinds {
			h, err := get(c, name+kind).TryLock(t.Context())
			if err == nil {
				err = h.Unlock(t.Context())
			}
			note(kind, err)
		}
		permits, semaphore, latch := c.GetPermitSemaphore(name+"permits"), c.GetSemaphore(name+"semaphore"), c.GetCountDownLatch(name+"latch")
		err := permits.SetPermits(t.Context(), 1)
		if err == nil {
			var p *rsemaphore.Permit
			if p, err = permits.TryAcquire(t.Context()); err == nil {
				err = p.Release(t.Context())
			}
		}
		note("permit", err)
		note("semaphore", semaphore.AddPermits(t.Context(), 1))
		if name == "" { // the name of a latch has no tag
			_, set := latch.TrySetCount(t.Context(), 1)
			_, once := latch.CountDownOnce(t.Context(), "one")
			note("latch", set, once)
		}
		ctx, cancel := context.WithTimeout(t.Context(), listening)
		q := redlatch.GetDelayedQueue[string](c, name+"queue")
		_, err = q.Take(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			_, err = q.Offer(t.Context(), "work", 0)
		}
		note("queue", err)
	}
	return failed
}

// F20
func TestUserOfAClientThatConfirmsNeedsNoMoreAndNoLess(t *testing.T) {
	redistest.Long(t)
	for right, confirm := range map[string]redlatch.Option{
		"+wait": redlatch.WithReplicas(1, time.Second), "+waitaof": redlatch.WithDurability(2 * time.Second),
	} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			redistest.StartReplica(t, server)
			admin := server.Client(t)
			if known, err := admin.Do(t.Context(), "command", "info", right[1:]).Slice(); err != nil || known[0] == nil {
				redistest.Skip(t, "the server does not know it")
			}
			client := func() (*redlatch.Client, error) {
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
				t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
				opts := []redlatch.Option{redlatch.WithNamePrefix("app:"), confirm, redlatch.WithCloseGrace(0)}
				c, err := redlatch.New(rdb, opts...)
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				return c, redlatch.Check(t.Context(), rdb, opts...)
			}
			require.NoError(t, admin.Do(t.Context(), documentedUser(t)...).Err())
			few, err := client()
			if server.Major(t) >= 7 { // an older one cannot tell
				require.ErrorContains(t, err, right[1:])
			}
			for kind, get := range lockKinds {
				_, err := get(few, kind).TryLock(t.Context())
				assert.ErrorIs(t, err, redlatch.ErrNotConfirmed, kind)
				assert.ErrorContains(t, err, "NOPERM", kind)
			}
			require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
			require.NoError(t, admin.Do(t.Context(), append(documentedUser(t), right)...).Err())
			one, err := client()
			require.NoError(t, err)
			two, err := client()
			require.NoError(t, err)
			all := enterAll(t, one, two, guests(failoverLease), func(g guest) string { return g.name })
			redistest.AwaitChannels(t, admin, channels(all))
			for _, h := range all {
				h.handOver(t)
			}
			awaitUsed(t, []any{right}, server)
		})
	}
}
