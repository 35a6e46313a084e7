package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
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
	assert.Regexp(t, `uploads +\? +is 3`, s.View())
}

func TestDoctorSaysWhatACrashTakes(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	r := &rig{url: server.URL()}
	found := r.must(t, "doctor")
	assert.Contains(t, found, "all jobs are gone: it makes no snapshots.")
	assert.Regexp(t, `note +uptime +\S+ +it started \d+s ago`, found)
	_, err := redlatch.GetDelayedQueue[string](r.other(t, "worker"), "mails").Offer(t.Context(), "hello", time.Hour)
	require.NoError(t, err)
	code, found, _ := r.run(t.Context(), "doctor")
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
		clients[0].ID() + ` holds order:7 and waits for stock:1 at redlatch/doctor_test.go:\d+`, clients[1].ID() + ` holds stock:1 and waits for order:7`,
	}
	var found string
	require.Eventually(t, func() bool {
		var code int
		code, found, _ = r.run(t.Context(), "doctor")
		return code == exitFailed && strings.Contains(found, "circle")
	}, 30*time.Second, 100*time.Millisecond)
	assert.Regexp(t, `bad +circle +`+strings.Join(want, `; `), found)
	for _, name := range names {
		text := r.must(t, "lock", "info", name)
		assert.Regexp(t, `circle +`+strings.Join(want, `\n +`), text)
		assert.Contains(t, text, "1 other client\n")
	}
	assert.Regexp(t, `a call of +`+clients[1].ID()+`, for \S+, at redlatch/doctor_test.go:\d+\n`, r.must(t, "lock", "info", "order:7"))

	assert.Regexp(t, `taken from +`+holds[0].Owner()+`, which held it for \S+s\nwaiting +1 client\n`, r.must(t, "lock", "force", "order:7", "--yes"))
	<-holds[0].Context().Done()
	text := r.must(t, "client", "orders")
	assert.Regexp(t, `(?s)LOST +NAME +NOTICED +AGO.*rlock +order:7 .*redlatch/doctor_test.go:\d+ +Redis has it no longer`, text)
	_, found, _ = r.run(t.Context(), "doctor")
	assert.Regexp(t, `note +losses +1 within an hour, the last one by `+clients[0].ID(), found)
	assert.NotContains(t, found, "circle ")
}
