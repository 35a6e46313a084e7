package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
)

func TestDoctorFindsRightsThatAreMissing(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "&*", "+@all", "-scan", "-pubsub").Err())
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "limited", "on", ">secret", "~app:*", "~*{app:*", "resetchannels", "&*{app:*", "+@all").Err())
	as := func(user string) *rig { return &rig{url: "redis://" + user + ":secret@" + server.Addr()} }

	worker := as("worker").must(t, "doctor")
	assert.Regexp(t, `ok +rights`, worker)
	assert.Regexp(t, `note +rights +the user lacks \+scan and \+pubsub`, worker)
	assert.Contains(t, worker, "ls, clients, top and web fail or show less")

	code, limited, _ := as("limited").run(t.Context(), "doctor")
	assert.Equal(t, exitFailed, code)
	assert.NotRegexp(t, `ok +rights`, limited)
	assert.Contains(t, limited, "or give --prefix")
	right := as("limited").must(t, "--prefix", "app:", "doctor")
	assert.Regexp(t, `ok +rights`, right)
	assert.NotContains(t, right, "--prefix")
}

func TestDoctorSaysThatTheServerAnswersNoLonger(t *testing.T) {
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	proxy := faulttest.NewProxy(t, server.Addr())
	proxy.OnCommand(func(cmd []string) {
		if faulttest.Named("INFO")(cmd) { // which comes after the first checks
			proxy.Refuse(true)
			proxy.Cut()
		}
	})
	code, _, text := (&rig{url: "redis://" + proxy.Addr()}).run(t.Context(), "doctor")
	assert.Equal(t, exitUnavailable, code, text)
}

func TestWaitersThatTheUserMayNotCountAreNotKnown(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "&*", "+@all", "-pubsub").Err())
	r := &rig{url: "redis://worker:secret@" + server.Addr()}
	c := r.other(t, "worker", redlatch.WithoutPresence())
	_, err := c.GetPermitSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	for _, args := range [][]string{{"lock", "info", "a"}, {"sem", "info", "uploads"}, {"latch", "info", "a"}} {
		assert.Regexp(t, `waiting +not known`, r.must(t, args...), "%v", args)
	}
	s := &screen{ctx: t.Context(), c: c, every: time.Second, by: byName, height: 24}
	s.Update(s.look()())
	assert.Regexp(t, `uploads +\? +3 of 3 available`, s.View())
}

func TestDoctorSaysWhatACrashTakes(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	r := &rig{url: server.URL()}
	found := r.must(t, "doctor")
	assert.Regexp(t, `^LEVEL +CHECK +NODE +FOUND\n`, found)
	assert.Contains(t, found, "all jobs are gone: it makes no snapshots.")
	assert.Regexp(t, `note +uptime +\S+ +it started \d+s ago`, found)
	mails := redlatch.GetDelayedQueue[string](r.other(t, "worker"), "mails")
	_, err := mails.Offer(t.Context(), "hello", time.Hour)
	require.NoError(t, err)
	code, found, _ := r.run(t.Context(), "doctor")
	assert.Regexp(t, `ok +queue +nothing is late, growing, dead, being retried or paused in 1 queue\n`, found)
	require.NoError(t, mails.Pause(t.Context()))
	_, paused, _ := r.run(t.Context(), "doctor")
	assert.Regexp(t, `note +queue +mails: 1 delayed, .*, paused`, paused)
	assert.Equal(t, exitFailed, code)
	assert.Regexp(t, `bad +persistence .*no snapshots, and there are queues`, found)
	require.NoError(t, rdb.ConfigSet(t.Context(), "save", "900 1").Err())
	assert.Contains(t, r.must(t, "doctor"), "jobs since the last snapshot are gone.")
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "&*", "+@all", "-config").Err())
	r.url = "redis://worker:secret@" + server.Addr()
	assert.Contains(t, r.must(t, "doctor"), "and all of them if it makes none")
}

func TestCircleOfWaitsIsFound(t *testing.T) {
	t.Parallel()
	r := &rig{url: redistest.Start(t).URL()}
	ctx, giveUp := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer giveUp()
	names := []string{"order:7", "stock:1"}
	var clients []*redlatch.Client
	var holds []*rlock.Hold
	for i, name := range []string{"orders", "stock"} {
		clients = append(clients, r.other(t, name, redlatch.WithCloseGrace(0)))
		hold, err := clients[i].GetLock(names[i]).Lock(t.Context())
		require.NoError(t, err)
		holds = append(holds, hold)
	}
	for i, c := range clients {
		calls.Go(func() { _, _ = c.GetLock(names[1-i]).Lock(ctx) }) // until the end
	}
	want := []string{
		clients[0].ID() + ` holds order:7 \(redlatch/doctor_test.go:\d+\) and has waited \d+s for stock:1 \(redlatch/doctor_test.go:\d+\)`,
		clients[1].ID() + ` holds stock:1 \(redlatch/doctor_test.go:\d+\) and has waited \d+s for order:7 \(redlatch/doctor_test.go:\d+\)`,
	}
	var found string
	require.Eventually(t, func() bool {
		var code int
		code, found, _ = r.run(t.Context(), "doctor")
		return code == exitFailed && strings.Contains(found, "circle")
	}, 30*time.Second, 100*time.Millisecond)
	either := func(between string) string { // what began first is told by two clients, whose answers take longer or shorter
		return `(` + want[0] + between + want[1] + `|` + want[1] + between + want[0] + `)`
	}
	assert.Regexp(t, `bad +circle +`+either(`; `), found)
	for _, name := range names {
		text := r.must(t, "lock", "info", name)
		assert.Regexp(t, `circle +`+either(`\n +`), text)
		assert.Contains(t, text, "1 other client\n")
	}
	assert.Regexp(t, `a call of +`+clients[1].ID()+`, for \S+, at redlatch/doctor_test.go:\d+\n`, r.must(t, "lock", "info", "order:7"))

	assert.Regexp(t, `taken from +`+holds[0].Owner()+`, which held it for \S+s\nwaiting +1 client\n`, r.must(t, "lock", "force", "order:7", "--yes"))
	<-holds[0].Context().Done()
	text := r.must(t, "client", "orders")
	assert.Regexp(t, `(?s)LOST +NAME +NOTICED +AGO.*lock +order:7 .*redlatch/doctor_test.go:\d+ +Redis has it no longer`, text)
	_, found, _ = r.run(t.Context(), "doctor")
	assert.Regexp(t, `note +losses +1 within an hour, the last one by `+clients[0].ID(), found)
	assert.NotContains(t, found, "circle ")
}

func TestDoctorSaysWhomItCouldNotAsk(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := &rig{url: server.URL()}
	found := r.must(t, "doctor")
	assert.Regexp(t, `ok +waits +no circle, by what 0 of 0 clients said`, found)
	assert.Regexp(t, `ok +losses +none within an hour, by what 0 of 0 clients said`, found)

	silent := server.Client(t).Subscribe(t.Context(), "redlatch_client:worker-1.0123456789abcdef")
	defer func() { assert.NoError(t, silent.Close()) }()
	_, err := silent.Receive(t.Context())
	require.NoError(t, err)
	found = r.must(t, "doctor")
	assert.Regexp(t, `note +waits +no circle, by what 0 of 1 client said`, found)
	assert.Regexp(t, `note +losses +none within an hour, by what 0 of 1 client said`, found)
}

func TestDoctorNamesWhoKeepsOthersWaitingAndWhatIsHeldForLong(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	hold := func(kind, name string, d time.Duration) inspect.Hold {
		return inspect.Hold{Client: "a.1", HoldInfo: redlatch.HoldInfo{Kind: kind, Name: name, Since: ago(d), Site: "a.go:1"}}
	}
	wait := func(client, kind, name string, d time.Duration) inspect.Wait {
		return inspect.Wait{Client: client, WaitInfo: redlatch.WaitInfo{Kind: kind, Name: name, Since: ago(d)}}
	}
	said := inspect.Census{
		Holds: []inspect.Hold{
			hold("lock", "kept", time.Hour), hold("lock", "new", 2*time.Hour), hold("permits", "alone", 2*time.Hour),
			hold("election", "led", 2*time.Hour), hold("lock", "busy", time.Second), hold("lock", "short", 59*time.Minute),
		},
		Waits: []inspect.Wait{
			wait("b.2", "lock", "kept", 5*time.Minute), wait("b.2", "election", "led", 5*time.Minute), wait("b.2", "lock", "busy", 5*time.Minute),
			wait("c.3", "lock", "kept", time.Minute), wait("c.3", "lock", "new", 59*time.Second),
		},
	}
	d := &doctor{}
	d.waits(&said, "")
	require.Len(t, d.findings, 5)
	const forgotten = "A hold that is renewed lasts until it is released, also one that was forgotten."
	assert.Equal(t, []finding{
		{
			note, "long wait", "", "a.1 has held kept (a.go:1) for 1h0m0s, and 2 calls wait for it, the longest for 5m0s", forgotten,
			`Look at what that client does; docs/operations.md, "Nobody gets the lock".`,
		},
		{
			note, "long hold", "", "a.1 has held new (a.go:1) for 2h0m0s", forgotten,
			`Look at what that client does; docs/operations.md, "A lock is held for long".`,
		},
	}, d.findings[1:3])
	assert.Equal(t, "a.1 has held alone (a.go:1) for 2h0m0s", d.findings[3].Found)
	busy := d.findings[4]
	assert.Equal(t, "a.1 has held busy (a.go:1) for 1s, and 1 call waits for it, the longest for 5m0s", busy.Found)
	assert.Equal(t, "More calls want it than it can serve.", busy.Means)

	d.long(&said, []inspect.Circle{{inspect.Link{Client: "a.1", Hold: said.Holds[0].HoldInfo, Wait: said.Waits[0].WaitInfo}}})
	assert.Len(t, d.findings, 8, "not the one in a circle")
	for range maxAlike {
		d.long(&said, nil)
	}
	assert.Equal(t, maxAlike, d.count("long wait"))
	assert.Equal(t, maxAlike, d.count("long hold"))
}

func TestDoctorSaysThatCirclesMayBeMissed(t *testing.T) {
	waits := []redlatch.WaitInfo{{Kind: "lock", Name: "orders", Since: time.Now()}}
	said := inspect.Census{Reports: map[string]redlatch.ClientReport{
		"a.1": {Waits: waits, WaitCount: 1}, "b.2": {Waits: waits, WaitCount: 5_000}, "c.3": {Waits: waits, WaitCount: 1, HoldCount: 2},
	}}
	d := &doctor{}
	d.waits(&said, "")
	require.Len(t, d.findings, 3)
	assert.Equal(t, finding{
		note, "waits", "", "b.2 holds 0, and 5000 of its calls wait; it tells the longest 0 and 1", "A circle through one of the others is not found.",
		"If something does not go on, look at the stacks of its goroutines.",
	}, d.findings[1])
	assert.Equal(t, "c.3 holds 2, and 1 of its calls wait; it tells the longest 0 and 1", d.findings[2].Found)
	for i := range 2 * maxAlike {
		said.Reports[fmt.Sprint("d.", i)] = said.Reports["b.2"]
	}
	d.untold(&said)
	assert.Equal(t, maxAlike, d.count("waits"))
}

func TestDoctorSaysWhichQueuesHaveTrouble(t *testing.T) {
	type stats = rdelayedqueue.Stats
	for _, tc := range []struct {
		queueLook
		level, found, mend string
	}{
		{queueLook: queueLook{Stats: stats{Ready: 7, InFlight: 2, Oldest: inspect.Lags}}},
		{
			queueLook{Stats: stats{Delayed: 7, Failed: 1}, retried: "ready"},
			note, "mails: 7 delayed, 0 ready, 0 in flight, 0 dead, 1 being retried",
			"redlatch queue ls mails --state ready shows the errors.",
		},
		{
			queueLook{Stats: stats{Dead: 3, Failed: 1}, retried: "delayed"},
			note, "mails: 0 delayed, 0 ready, 0 in flight, 3 dead, 1 being retried",
			"redlatch queue ls mails --state dead shows the errors. redlatch queue ls mails --state delayed shows the errors.",
		},
		{
			queueLook{Stats: stats{Ready: 9, Paused: true, Oldest: time.Hour}},
			note, "mails: 0 delayed, 9 ready, 0 in flight, 0 dead, paused",
			"redlatch queue resume mails, once the reason has gone.",
		},
		{
			queueLook{Stats: stats{Ready: 9, Oldest: time.Hour}},
			bad, "mails: 0 delayed, 9 ready, 0 in flight, 0 dead; one has been due for 1h0m0s",
			`redlatch queue stats mails, and docs/operations.md, "A queue grows".`,
		},
		{
			queueLook{Stats: stats{Ready: 7_000, Oldest: time.Second}, growth: 1_200},
			note, "mails: 0 delayed, 7000 ready, 0 in flight, 0 dead; 1200 more came than went in the last 10 min",
			`redlatch queue stats mails, and docs/operations.md, "A queue grows".`,
		},
		{
			queueLook{Stats: stats{Ready: 7_000, Oldest: time.Hour}, growth: 1_200},
			bad, "mails: 0 delayed, 7000 ready, 0 in flight, 0 dead; 1200 more came than went in the last 10 min; one has been due for 1h0m0s",
			`redlatch queue stats mails, and docs/operations.md, "A queue grows".`,
		},
	} {
		d := &doctor{}
		tc.Name = "mails"
		d.queue(tc.queueLook)
		if tc.found == "" {
			assert.Empty(t, d.findings)
			continue
		}
		require.Len(t, d.findings, 1)
		assert.Equal(t, []string{tc.level, tc.found, tc.mend}, []string{d.findings[0].Level, d.findings[0].Found, d.findings[0].Mend})
	}
}

func TestDoctorPointsToWhatIsBeingRetried(t *testing.T) {
	r := newRig(t)
	for state, pause := range map[string]time.Duration{"delayed": time.Hour, "ready": time.Millisecond} {
		name := "the " + state // which a shell takes for two words
		q := redlatch.GetDelayedQueue[string](r.c, name, rdelayedqueue.WithBackoff(func(int) time.Duration { return pause }))
		_, err := q.Offer(t.Context(), "later", time.Hour)
		require.NoError(t, err)
		_, err = q.Offer(t.Context(), "hello", 0)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		require.NoError(t, q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[string]) error {
			stop()
			return errors.New("no luck")
		}))
		_, text, _ := r.run(t.Context(), "doctor")
		assert.Contains(t, text, "redlatch queue ls '"+name+"' --state "+state+" shows the errors.")
	}
}

func TestDoctorListsNoMoreQueuesThanHaveRoom(t *testing.T) {
	r := newRig(t)
	for i := range maxAlike + 1 {
		require.NoError(t, redlatch.GetDelayedQueue[string](r.c, fmt.Sprint("mails-", i)).Pause(t.Context()))
	}
	_, text, _ := r.run(t.Context(), "doctor")
	assert.Equal(t, maxAlike, strings.Count(text, "Somebody has paused it"), text)
}

func TestDoctorJudgesWhatAServerSays(t *testing.T) {
	for name, tc := range map[string]struct {
		look        func(d *doctor, info map[string]string)
		info        map[string]string
		level, says string
	}{
		"old":            {doctorVersion, map[string]string{"redis_version": "6.0.16"}, bad, "Redis 6.0.16"},
		"the lowest":     {doctorVersion, map[string]string{"redis_version": "6.2.0"}, good, "Redis 6.2.0"},
		"valkey":         {doctorVersion, map[string]string{"redis_version": "7.2.4", "valkey_version": "9.1.2"}, good, "Valkey 9.1.2"},
		"evicts":         {doctorEviction, map[string]string{"maxmemory_policy": "allkeys-lru", "maxmemory": "1000"}, bad, "allkeys-lru"},
		"could evict":    {doctorEviction, map[string]string{"maxmemory_policy": "allkeys-lru", "maxmemory": "0"}, note, "without a limit"},
		"does not evict": {doctorEviction, map[string]string{"maxmemory_policy": "noeviction"}, good, "noeviction"},
		"a replica":      {doctorReplicas, map[string]string{"role": "slave", "connected_slaves": "0"}, bad, "it is a replica"},
		"alone":          {doctorReplicas, map[string]string{"role": "master", "connected_slaves": "0"}, note, "0"},
		"replicated":     {doctorReplicas, map[string]string{"role": "master", "connected_slaves": "2"}, good, "2"},
		"behind": {doctorReplicas, map[string]string{
			"role": "master", "connected_slaves": "2",
			"slave0": "ip=::1,port=7001,state=online,offset=9,lag=1", "slave1": "ip=10.0.0.2,port=7002,state=wait_bgsave,offset=0,lag=0",
		}, note, "2, behind: 10.0.0.2:7002 (wait_bgsave, 0 s silent)"},
		"silent": {doctorReplicas, map[string]string{
			"role": "master", "connected_slaves": "1", "slave0": "ip=::1,port=7001,state=online,offset=9,lag=6",
		}, note, "1, behind: [::1]:7001 (online, 6 s silent)"},
		"no limit":         {doctorMemory, map[string]string{"used_memory": "900", "maxmemory": "0"}, good, "without a limit"},
		"room":             {doctorMemory, map[string]string{"used_memory": "800", "maxmemory": "1000", "maxmemory_policy": "noeviction"}, good, "of"},
		"nearly full":      {doctorMemory, map[string]string{"used_memory": "950", "maxmemory": "1000", "maxmemory_policy": "noeviction"}, note, "nearly full"},
		"full":             {doctorMemory, map[string]string{"used_memory": "1001", "maxmemory": "1000", "maxmemory_policy": "noeviction"}, bad, "it is full"},
		"full of replicas": {doctorMemory, map[string]string{"used_memory": "1001", "mem_not_counted_for_evict": "200", "maxmemory": "1000", "maxmemory_policy": "noeviction"}, good, "of"},
	} {
		d := &doctor{}
		tc.look(d, tc.info)
		require.Len(t, d.findings, 1, name)
		f := d.findings[0]
		assert.Equal(t, tc.level, f.Level, name)
		assert.Contains(t, f.Found, tc.says, name)
		assert.Equal(t, tc.level == good, f.Means == "", name)
		assert.Equal(t, tc.level == good, f.Mend == "", name)
	}
	for worst, level := range map[time.Duration]string{100 * time.Millisecond: good, time.Second: note} {
		d := &doctor{}
		d.latency("a", time.Millisecond, worst)
		require.Len(t, d.findings, 1)
		assert.Equal(t, level, d.findings[0].Level)
		assert.Equal(t, "1ms, at most "+worst.String(), d.findings[0].Found)
	}
	for apart, level := range map[time.Duration]string{10 * time.Millisecond: good, time.Minute: note} {
		d := &doctor{ahead: map[string]time.Duration{"a": 0, "b": apart}}
		d.clocks()
		require.Len(t, d.findings, 1)
		assert.Equal(t, level, d.findings[0].Level)
	}
}

func TestDoctorSaysThatThereWereMoreLosses(t *testing.T) {
	lost := []redlatch.LossInfo{{At: time.Now()}, {At: time.Now().Add(-time.Minute)}}
	for count, says := range map[int]string{2: "2 within an hour", 3: "at least 2 within an hour"} {
		d, r := &doctor{}, redlatch.ClientReport{Losses: lost, LossCount: count}
		d.losses(&inspect.Census{Reports: map[string]redlatch.ClientReport{"a": r}, Losses: inspect.Losses(r)}, "")
		assert.Regexp(t, "^"+says, d.findings[0].Found)
	}
}

func doctorVersion(d *doctor, info map[string]string)  { d.version("a", info) }
func doctorEviction(d *doctor, info map[string]string) { d.eviction("a", info) }
func doctorReplicas(d *doctor, info map[string]string) { d.replicas("a", info) }
func doctorMemory(d *doctor, info map[string]string)   { d.memory("a", info) }

// F28
func TestDoctorFindsAFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := &rig{url: server.URL()}
	assert.Regexp(t, `ok +memory +\S+ +\S+, without a limit`, r.must(t, "doctor"))
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	code, found, _ := r.run(t.Context(), "doctor")
	assert.Equal(t, exitFailed, code)
	assert.Regexp(t, `bad +memory +\S+ +\S+ of 1B, it is full\n +Now, Redis refuses writes`, found)
}

// F18: after a failover leases go by the clock of the replica.
func TestDoctorComparesTheClocksOfReplicas(t *testing.T) {
	t.Parallel()
	alone := &rig{url: redistest.Start(t).URL()}
	assert.NotContains(t, alone.must(t, "doctor"), "apart")
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	sentinel := redistest.StartSentinel(t, master, "redlatch", 1, 1)
	redistest.AwaitSync(t, master, replica)
	for _, url := range []string{master.URL(), "redis://" + sentinel.Addrs()[0] + "?master_name=redlatch"} {
		r := &rig{url: url}
		assert.Regexp(t, `ok +clocks +.* apart`, r.must(t, "doctor"))
		replica.Pause()
		assert.NotContains(t, r.must(t, "doctor"), "apart", "it does not answer")
		replica.Resume()
	}
}

// F20: the main path of the command, on nodes that each have a part of the names.
func TestCommandOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	addrs := cluster.Addrs()
	r := &rig{url: cluster.URL()}
	c := r.other(t, "worker", redlatch.WithCloseGrace(0))
	nodes := map[string]bool{}
	names := []string{}
	for i := range 12 {
		name := fmt.Sprint("order:", i)
		names = append(names, name)
		nodes[cluster.Owner(t, name).Addr()] = true
		_, err := c.GetLock(name).Lock(t.Context())
		require.NoError(t, err)
	}
	require.Len(t, nodes, 3, "each node has some of the locks")
	_, err := redlatch.GetDelayedQueue[string](c, "mails").Offer(t.Context(), "hello", 0)
	require.NoError(t, err)
	all := r.must(t, "ls")
	for _, name := range names {
		assert.Regexp(t, `lock +`+name+` .*held by worker`, all)
		assert.Regexp(t, `held by +worker`, r.must(t, "lock", "info", name))
	}
	stats := r.must(t, "queue", "stats", "mails")
	assert.Regexp(t, `ready +1`, stats)
	assert.Regexp(t, `lag +[1-9]`, stats, "commands have run since it was due")
	_, found, _ := r.run(t.Context(), "doctor") // the servers keep no data, which is bad
	sharded := cluster.Nodes()[0].Major(t) >= 7
	for _, addr := range addrs {
		assert.Regexp(t, `ok +messages +`+addr+` +a message of another node arrives`, found)
		assert.Equal(t, sharded, strings.Contains(found, addr+"  a message on a sharded channel arrives"), found)
	}
	for _, name := range names {
		r.must(t, "lock", "force", name, "--yes")
	}

	for i, node := range cluster.Nodes() { // on the last one the user has no channels
		channels := "&*"
		if i == 2 {
			channels = "resetchannels"
		}
		require.NoError(t, node.Client(t).Do(t.Context(), "acl", "setuser", "limited", "on", ">secret", "~*", channels, "+@all").Err())
	}
	r.url = "redis://limited:secret@" + addrs[0] + "?addr=" + addrs[1] + "&addr=" + addrs[2]
	_, found, _ = r.run(t.Context(), "doctor")
	assert.Regexp(t, `bad +messages +`+addrs[2]+` +a message of another node does not arrive`, found)
	assert.Regexp(t, `ok +messages +\S+ +a message of another node arrives`, found)
}
