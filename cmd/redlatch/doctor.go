package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

func (a *app) doctor() *cobra.Command {
	var grid bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether the server is fit for locks and queues",
		Example: "  redlatch doctor\n  redlatch -u redis://localhost:6379 doctor\n  redlatch doctor --grid", Args: exactly(0),
		Long: `Check a server, all masters of a cluster, or the master behind Sentinel: version, rights of the user, eviction,
memory, persistence, uptime, replicas, clocks (of replicas too), messages (of each node) and latency; and the clients,
of which the first 100 are asked: whether some wait for each other in a circle, or for more than a minute for a lock,
what is held for more than an hour, and what was lost within an hour; and the queues, as many as it finds in a second:
what is late by more than a minute, whether handlers fail, and what is paused. Each finding says what it means and how to
mend it. The exit code is 1 if one is "bad": it loses locks or jobs, waits for ever, or falls behind.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rdb, err := a.connect()
			if err != nil {
				return err
			}
			d := &doctor{rdb: rdb, prefix: a.prefix, asksGrid: grid}
			err = d.examine(cmd.Context())
			if err := errors.Join(err, rdb.Close()); err != nil {
				return err
			}
			err = a.print(d.findings, func(w io.Writer) error {
				err := row(w, "LEVEL", "CHECK", "NODE", "FOUND")
				for _, f := range d.findings {
					err = errors.Join(err, f.write(w))
				}
				return err
			})
			if err == nil && slices.ContainsFunc(d.findings, func(f finding) bool { return f.Level == bad }) {
				err = &exit{code: exitFailed}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&grid, "grid", false, "look for what the packages of the grid need too: rights, and messages between near values of maps and caches")
	return cmd
}

// connect returns a go-redis client of the server.
func (a *app) connect() (redis.UniversalClient, error) {
	server, err := a.server()
	if err != nil {
		return nil, err
	}
	rdb, err := connect(server)
	if err != nil {
		return nil, &exit{exitUsage, err}
	}
	return rdb, nil
}

// connect returns a go-redis client for a URL as redlatch.Open takes it.
func connect(rawURL string) (redis.UniversalClient, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("the URL cannot be parsed") // it may have a password
	}
	switch q := u.Query(); {
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, errors.New("go-redis cannot parse the URL")
		}
		return redis.NewFailoverClient(o), nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, errors.New("go-redis cannot parse the URL")
		}
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, errors.New("go-redis cannot parse the URL")
	}
	return redis.NewClient(o), nil
}

// The levels of findings.
const (
	good = "ok"
	note = "note"
	bad  = "bad"
)

// finding is something that doctor has found out.
type finding struct {
	Level string
	Check string
	Node  string
	Found string
	Means string // for locks and queues
	Mend  string
}

func (f finding) write(w io.Writer) error {
	err := row(w, f.Level, f.Check, f.Node, f.Found)
	for _, text := range []string{f.Means, f.Mend} {
		if text != "" {
			err = errors.Join(err, row(w, "", "", "", "  "+text))
		}
	}
	return err
}

// doctor examines servers.
type doctor struct {
	rdb    redis.UniversalClient
	prefix string
	queues bool // there are some

	asksGrid bool // it looks for the rights of the grid

	mu       sync.Mutex // guards what follows
	findings []finding
	ahead    map[string]time.Duration // of each node's clock
}

func (d *doctor) find(f finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.findings = append(d.findings, f)
}

func (d *doctor) examine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	d.ahead = map[string]time.Duration{}
	if err := redlatch.Check(ctx, d.rdb, redlatch.WithNamePrefix(d.prefix)); err != nil {
		if errors.Is(err, redlatch.ErrUnavailable) {
			return err
		}
		d.find(finding{bad, "rights", "", err.Error(), "Calls that need it fail.", "Allow what is missing; docs/operations.md has the whole list" + d.orPrefix()})
	} else if err := d.rdb.Exists(ctx, d.prefix+"redlatch_doctor").Err(); redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "to access") {
		found := "there are names that the user may not use"
		if d.prefix != "" {
			found = fmt.Sprintf("the user may not use names that begin with %q", d.prefix)
		}
		d.find(finding{
			bad, "rights", "", found, "Calls that use them fail.",
			"Allow the keys; docs/operations.md has the list" + d.orPrefix(),
		})
	} else {
		d.find(finding{Level: good, Check: "rights", Found: "the server knows all commands, and the user may run them"})
	}
	d.looking(ctx)
	if err := d.clients(ctx); err != nil {
		return err
	}
	var err error
	switch rdb := d.rdb.(type) {
	case *redis.ClusterClient:
		err = rdb.ForEachMaster(ctx, d.node)
	case *redis.Client:
		err = d.node(ctx, rdb)
	}
	if err != nil {
		return core.Unanswered(err)
	}
	d.clocks()
	d.messages(ctx)
	if d.asksGrid {
		d.near(ctx)
	}
	urgency := []string{bad, note, good}
	slices.SortStableFunc(d.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(slices.Index(urgency, a.Level), slices.Index(urgency, b.Level)), strings.Compare(a.Node, b.Node))
	})
	return nil
}

// orPrefix ends the advice to allow names.
func (d *doctor) orPrefix() string {
	if d.prefix != "" {
		return "."
	}
	return ", or give --prefix if the user may use names with a prefix only."
}

// looking checks the rights that only those need who look at what there is.
func (d *doctor) looking(ctx context.Context) {
	var missing []string
	if err := d.rdb.Scan(ctx, 0, "redlatch_doctor", 1).Err(); redis.HasErrorPrefix(err, "NOPERM") {
		missing = append(missing, "+scan")
	}
	if err := d.rdb.PubSubChannels(ctx, "redlatch_doctor").Err(); redis.HasErrorPrefix(err, "NOPERM") {
		missing = append(missing, "+pubsub")
	}
	if missing != nil {
		d.find(finding{
			note, "rights", "", "the user lacks " + strings.Join(missing, " and "),
			"Locks and queues work; ls, clients, top and web fail or show less.",
			"ACL SETUSER with " + strings.Join(missing, " ") + " for the user that looks.",
		})
	}
}

// fieldsOf returns the values of fields that are written as key, separator, value.
func fieldsOf(fields iter.Seq[string], separator string) map[string]string {
	all := map[string]string{}
	for field := range fields {
		key, value, _ := strings.Cut(strings.TrimSpace(field), separator)
		all[key] = value
	}
	return all
}

// node examines one server.
func (d *doctor) node(ctx context.Context, rdb *redis.Client) error {
	addr := rdb.Options().Addr
	text, err := rdb.Info(ctx).Result()
	if err != nil {
		d.find(finding{note, "info", addr, err.Error(), "Version, eviction, persistence and replicas cannot be checked.", "Allow +info."})
		text = ""
	}
	info := fieldsOf(strings.Lines(text), ":")
	if text != "" {
		d.version(addr, info)
		d.eviction(addr, info)
		d.memory(addr, info)
		gone, all := snapshots(ctx, rdb)
		d.persistence(addr, info, gone, all)
		d.uptime(addr, info)
		d.replicas(addr, info)
		d.replicaClocks(ctx, rdb, info)
	}
	if d.asksGrid {
		if err := d.grid(ctx, rdb); err != nil {
			return err
		}
	}
	return d.ping(ctx, rdb)
}

func (d *doctor) version(addr string, info map[string]string) {
	f := finding{Level: good, Check: "version", Node: addr, Found: "Redis " + info["redis_version"]}
	if v := info["valkey_version"]; v != "" {
		f.Found = "Valkey " + v
	}
	major, rest, _ := strings.Cut(info["redis_version"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	number, err := strconv.Atoi(major)
	second, err2 := strconv.Atoi(minor)
	if err == nil && err2 == nil && (number < 6 || number == 6 && second < 2) {
		f.Level, f.Means, f.Mend = bad, "Scripts of the library fail.", "Take Redis 6.2 or newer, or Valkey."
	}
	d.find(f)
}

func (d *doctor) eviction(addr string, info map[string]string) {
	f := finding{Level: good, Check: "eviction", Node: addr, Found: info["maxmemory_policy"]}
	if f.Found != "noeviction" {
		f.Level, f.Means, f.Mend = bad, "When memory is full Redis deletes locks that are held, and jobs.", "CONFIG SET maxmemory-policy noeviction."
		if info["maxmemory"] == "0" {
			f.Level, f.Found = note, f.Found+", without a limit of memory"
		}
	}
	d.find(f)
}

// snapshots says what a crash of a server without an append-only file takes.
func snapshots(ctx context.Context, rdb *redis.Client) (gone string, all bool) {
	switch config, err := rdb.ConfigGet(ctx, "save").Result(); {
	case err != nil || len(config) == 0: // the user may not ask
		return "jobs since the last snapshot are gone, and all of them if it makes none.", false
	case config["save"] == "":
		return "all jobs are gone: it makes no snapshots.", true
	}
	return "jobs since the last snapshot are gone.", false
}

// restartedLately is how long a restart counts as news.
const restartedLately = time.Hour

func (d *doctor) uptime(addr string, info map[string]string) {
	seconds, err := strconv.Atoi(info["uptime_in_seconds"])
	up := time.Duration(seconds) * time.Second
	f := finding{Level: good, Check: "uptime", Node: addr, Found: up.String()}
	if err == nil && up < restartedLately {
		f.Found = "it started " + up.String() + " ago"
		if info["aof_enabled"] != "1" {
			f.Level, f.Means = note, "Whatever it held before it has lost, or has an older state of: locks that were held then are free."
			f.Mend = "Look why it restarted, and at what was lost: redlatch client."
		}
	}
	d.find(f)
}

func (d *doctor) persistence(addr string, info map[string]string, gone string, all bool) {
	f := finding{Level: good, Check: "persistence", Node: addr, Found: "append-only file"}
	if info["aof_enabled"] != "1" {
		f.Level, f.Found = note, "no append-only file"
		f.Means = "After a crash of the server, locks are free that somebody holds, and " + gone
		f.Mend = "CONFIG SET appendonly yes, and redlatch.WithDurability for what must not be lost."
		if all && d.queues {
			f.Level, f.Found = bad, f.Found+", no snapshots, and there are queues"
		}
	} else if info["aof_last_write_status"] != "ok" {
		f.Level, f.Found, f.Means, f.Mend = bad, "the append-only file cannot be written", "The server may refuse writes.", "Look at its disk."
	}
	if info["rdb_last_bgsave_status"] == "err" {
		f.Level, f.Found, f.Means, f.Mend = bad, "the last snapshot has failed", "The server may refuse all writes (MISCONF).", "Look at its disk and its log."
	}
	d.find(f)
}

func (d *doctor) replicas(addr string, info map[string]string) {
	f := finding{Level: good, Check: "replicas", Node: addr, Found: info["connected_slaves"]}
	var behind []string
	for _, about := range replicasOf(info) {
		silent, _ := strconv.Atoi(about["lag"]) // s; none if it has never answered
		if about["state"] != "online" || silent > longestSilence {
			behind = append(behind, fmt.Sprintf("%s (%s, %d s silent)", net.JoinHostPort(about["ip"], about["port"]), about["state"], silent))
		}
	}
	switch {
	case len(behind) > 0:
		f.Level, f.Found = note, f.Found+", behind: "+strings.Join(behind, ", ")
		f.Means, f.Mend = "If it takes over, locks and jobs are gone that it does not have.", "Look at its log, and at the network between them."
	case info["role"] != "master":
		f.Level, f.Found, f.Means, f.Mend = bad, "it is a replica", "It takes no writes: every call fails.", "Give the URL of the master, or of Sentinel."
	case f.Found == "0":
		f.Level, f.Means, f.Mend = note, "If the machine is lost, so are locks and jobs.", "Add a replica, and redlatch.WithReplicas for what must not be lost."
	}
	d.find(f)
}

const longestSilence = 5 // s, of a replica that should answer each second

// replicasOf returns what a master says of its replicas.
func replicasOf(info map[string]string) (all []map[string]string) {
	for {
		line, ok := info["slave"+strconv.Itoa(len(all))]
		if !ok {
			return all
		}
		all = append(all, fieldsOf(strings.SplitSeq(line, ","), "="))
	}
}

// ping looks how fast the server answers.
func (d *doctor) ping(ctx context.Context, rdb *redis.Client) error {
	mean, worst, err := d.clock(ctx, rdb)
	if err == nil {
		d.latency(rdb.Options().Addr, mean, worst)
	}
	return err
}

// clock looks how far the server's clock is ahead of this machine's, and how long the answers take.
func (d *doctor) clock(ctx context.Context, rdb *redis.Client) (mean, worst time.Duration, err error) {
	const times = 20
	var sum time.Duration
	least := time.Hour
	for range times {
		begun := time.Now()
		now, err := rdb.Time(ctx).Result()
		took := time.Since(begun)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", rdb.Options().Addr, err)
		}
		sum, worst = sum+took, max(worst, took)
		if took < least { // the best look at its clock
			least = took
			d.mu.Lock()
			d.ahead[rdb.Options().Addr] = now.Sub(begun.Add(took / 2))
			d.mu.Unlock()
		}
	}
	return sum / times, worst, nil
}

// replicaClocks looks at the clocks of a master's replicas. One that cannot be reached from here is left out.
func (d *doctor) replicaClocks(ctx context.Context, master *redis.Client, info map[string]string) {
	for _, about := range replicasOf(info) {
		opts := *master.Options()
		opts.Addr = net.JoinHostPort(about["ip"], about["port"])
		opts.Dialer = nil // behind Sentinel it dials the master
		opts.DialTimeout, opts.ReadTimeout, opts.MaxRetries, opts.PoolSize, opts.MinIdleConns = time.Second, time.Second, -1, 1, 0
		replica := redis.NewClient(&opts)
		_, _, _ = d.clock(ctx, replica) //nolint:dogsled // see above
		_ = replica.Close()             // nothing was written
	}
}

func (d *doctor) latency(addr string, mean, worst time.Duration) {
	f := finding{Level: good, Check: "latency", Node: addr, Found: fmt.Sprintf("%v, at most %v", mean.Round(time.Microsecond), worst.Round(time.Microsecond))}
	if worst > 100*time.Millisecond {
		f.Level, f.Means, f.Mend = note, "Each acquisition and release takes that long.", "Look at SLOWLOG and LATENCY DOCTOR, and at the network."
	}
	d.find(f)
}

// clocks compares the clocks of the masters and their replicas.
func (d *doctor) clocks() {
	if len(d.ahead) < 2 {
		return
	}
	var least, most time.Duration
	first := true
	for _, ahead := range d.ahead {
		if first {
			least, most, first = ahead, ahead, false
		}
		least, most = min(least, ahead), max(most, ahead)
	}
	f := finding{Level: good, Check: "clocks", Found: fmt.Sprintf("%v apart", (most - least).Round(time.Millisecond))}
	if most-least > time.Second {
		f.Level = note
		f.Means = "Each object goes by the clock of its own master. When a replica takes over, or a slot moves, its leases and jobs shift by as much."
		f.Mend = "Run NTP on all nodes."
	}
	d.find(f)
}

// messages sends a message through Redis, as a release does. In a cluster it reaches a subscriber on each node from another one, and
// by the sharded channels of each, if the servers have them.
func (d *doctor) messages(ctx context.Context) {
	channel := "redlatch_doctor:{" + d.prefix + strconv.FormatInt(time.Now().UnixNano(), 36) + "}"
	cluster, ok := d.rdb.(*redis.ClusterClient)
	if !ok {
		publish := func() error { return d.rdb.Publish(ctx, channel, "hello").Err() }
		d.message(ctx, "", "a message on a channel arrives", d.rdb.Subscribe(ctx, channel), publish)
		return
	}
	channels, nodes := map[string]string{}, []*redis.Client{}
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error { // it was asked before
		d.mu.Lock()
		defer d.mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	for i := 0; i < 1_000 && len(channels) < len(nodes); i++ {
		name := fmt.Sprintf("%s.%d}", strings.TrimSuffix(channel, "}"), i)
		if node, err := cluster.MasterForKey(ctx, name); err == nil {
			channels[node.Options().Addr] = name
		}
	}
	for i, node := range nodes {
		addr, other := node.Options().Addr, nodes[(i+1)%len(nodes)]
		publish := func() error { return other.Publish(ctx, channel, "hello").Err() }
		d.message(ctx, addr, "a message of another node arrives", node.Subscribe(ctx, channel), publish)
		if name := channels[addr]; name != "" {
			publish := func() error { return cluster.SPublish(ctx, name, "hello").Err() }
			d.message(ctx, addr, sharded, cluster.SSubscribe(ctx, name), publish)
		}
	}
}

// arrives returns why a message does not arrive.
func arrives(ctx context.Context, sub *redis.PubSub, publish func() error) error {
	defer func() { _ = sub.Close() }() // nothing more is wanted of it
	_, err := sub.ReceiveTimeout(ctx, messageFor)
	if err == nil {
		err = publish()
	}
	if err == nil {
		_, err = sub.ReceiveTimeout(ctx, messageFor)
	}
	return err
}

// message looks whether a message arrives.
func (d *doctor) message(ctx context.Context, node, found string, sub *redis.PubSub, publish func() error) {
	f := finding{Level: good, Check: "messages", Node: node, Found: found}
	err := arrives(ctx, sub, publish)
	if found == sharded && script.NoCommand(err) {
		return // Redis 6 has no sharded channels, and the library uses the others
	}
	if err != nil {
		f.Level, f.Found = bad, strings.TrimSuffix(found, "arrives")+"does not arrive: "+err.Error()
		f.Means = "Waiters are not woken: they look again about once a second."
		f.Mend = "Allow the channels; docs/operations.md has the list" + d.orPrefix() + passOn
	}
	d.find(f)
}

const (
	passOn     = " A proxy must pass on SUBSCRIBE and PUBLISH, and SSUBSCRIBE and SPUBLISH in a cluster."
	sharded    = "a message on a sharded channel arrives"
	messageFor = 5 * time.Second
	nearlyFull = 0.9 // of maxmemory
)

func (d *doctor) memory(addr string, info map[string]string) {
	number := func(key string) float64 { n, _ := strconv.ParseFloat(info[key], 64); return n } // 0 if it is missing
	most := number("maxmemory")
	f := finding{Level: good, Check: "memory", Node: addr, Found: info["used_memory_human"] + ", without a limit"}
	if most > 0 {
		full := (number("used_memory") - number("mem_not_counted_for_evict")) / most
		f.Found = fmt.Sprintf("%s of %s", info["used_memory_human"], info["maxmemory_human"])
		f.Means = "When it is full, Redis refuses writes: no lock is acquired, no message offered. What is held stays held, and can be released."
		if info["maxmemory_policy"] != "noeviction" {
			f.Means = "When it is full, Redis deletes locks that are held, and jobs."
		}
		f.Mend = "CONFIG SET maxmemory to more, or Cancel and Purge what nobody needs."
		switch {
		case full > 1:
			f.Level, f.Found, f.Means = bad, f.Found+", it is full", strings.Replace(f.Means, "When it is full", "Now", 1)
		case full > nearlyFull:
			f.Level, f.Found = note, f.Found+", it is nearly full"
		default:
			f.Means, f.Mend = "", ""
		}
	}
	d.find(f)
}
