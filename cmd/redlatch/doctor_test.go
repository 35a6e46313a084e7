package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
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

func TestDoctorSaysWhatACrashTakes(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	r := &rig{url: server.URL()}
	assert.Contains(t, r.must(t, "doctor"), "all jobs are gone: it makes no snapshots.")
	require.NoError(t, rdb.ConfigSet(t.Context(), "save", "900 1").Err())
	assert.Contains(t, r.must(t, "doctor"), "jobs since the last snapshot are gone.")
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "&*", "+@all", "-config").Err())
	r.url = "redis://worker:secret@" + server.Addr()
	assert.Contains(t, r.must(t, "doctor"), "and all of them if it makes none")
}
