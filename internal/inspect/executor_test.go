package inspect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

func TestOrphanedTasksAreSaid(t *testing.T) {
	s := rexecutor.Stats{Stats: rdelayedqueue.Stats{Delayed: 2, Ready: 6, Dead: 1}, Tasks: []rexecutor.TaskStats{
		{Name: "a", Ready: 1, Orphaned: true},
		{Name: "b", Ready: 1},
		{Name: "c", Ready: 1, Delayed: 2, Orphaned: true},
		{Name: "d", Ready: 1, Orphaned: true},
		{Name: "e", Ready: 1, Orphaned: true},
		{Name: "f", Dead: 1},
	}}
	assert.Equal(t, []string{
		`no worker handles "a", of which 1 task waits`, `no worker handles "c", of which 3 tasks wait`,
		`no worker handles "d", of which 1 task waits`, `no worker handles "e", of which 1 task waits`,
	}, inspect.Orphans(s))
	assert.Equal(t, "2 delayed, 1 ready, 0 in flight, 0 dead, no worker handles it", inspect.TaskCounts(s.Tasks[2]))
	assert.Equal(t, "0 delayed, 0 ready, 0 in flight, 1 dead", inspect.TaskCounts(s.Tasks[5]))
	of := inspect.SummaryOf(redlatch.Object{Kind: "executor", Name: "media", Info: s})
	assert.Equal(t, "2 delayed, 6 ready, 0 in flight, 1 dead, no worker handles a, c, d and 1 more", of.State)
	assert.Equal(t, 9, of.Messages)
}
