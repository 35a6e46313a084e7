package find

import (
	"strings"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
)

// form is a kind of key beside that of an object's name: prefix:NAMEsuffix, or prefix:{NAME}suffix, or one of core.Keyed.
type form struct{ kind, prefix, suffix string }

// forms are all of them. The object packages make these keys. The table is here, and not a part of it in each of them: a package would have to
// export its part, for nobody else, and a program that only locks would link all of them.
var forms = []form{ //nolint:gochecknoglobals // a constant in all but name
	{kinds.FairLock, "redisson_lock_queue", ""},
	{kinds.Election, "redlatch_election", ""},
	{kinds.Queue, "redlatch_dq", ":meta"},
	{kinds.Scheduler, "redlatch_sched", ":jobs"},
	{kinds.Barrier, "redlatch_barrier", ""},
	{doubleBarrier, "redlatch_double", ""},
	{kinds.Semaphore, records, clientID}, // or another number: see kindIn
	{kinds.Latch, "redlatch_latch_once", ""},
	{kinds.Latch, "redlatch_latch_set", ""},
	{kinds.Latch, "redlatch_latch_open", ""},
	{kinds.Cache, "redlatch_cache", below},
}

const (
	doubleBarrier = "double barrier"        // in here: to others it is a barrier
	clientID      = ":*"                    // the suffix that is a colon and an id
	below         = ":KEY"                  // that of a key below the object's name
	tasks         = ":" + queue.TasksSuffix // with which the queue of an executor ends
	records       = "redlatch_ops"          // the prefix of the last batches of clients
)

// kindIn returns the kind of the number that a batch was about, the last word of its record.
func kindIn(record string) string {
	switch word := record[strings.LastIndexByte(record, ' ')+1:]; word {
	case kinds.Permits, kinds.Latch:
		return word
	}
	return kinds.Semaphore
}

// tasksOf returns the name of the queue that has an executor's tasks.
func tasksOf(executor string) string { return core.Suffixed(executor, queue.TasksSuffix) }

// formKinds returns the kinds that have forms.
func formKinds() (all []string) {
	all = append(all, kinds.Executor) // whose queue is found
	for _, f := range forms {
		all = append(all, f.kind)
	}
	return all
}

// shown returns a kind as others know it.
func shown(kind string) string {
	if kind == doubleBarrier {
		return kinds.Barrier
	}
	return kind
}

// channels are those of waiters for an object that may have no key.
var channels = []form{ //nolint:gochecknoglobals // a constant in all but name
	{kinds.Semaphore, "redisson_sc:", ""},
	{kinds.Latch, "redisson_countdownlatch__channel__", ""},
}

// read returns the object whose key it is.
func read(key string) (found, bool) {
	prefix, body, _ := strings.Cut(key, ":")
	for _, f := range forms {
		if f.prefix != prefix {
			continue
		}
		switch f.suffix {
		case clientID:
			end := strings.LastIndexByte(body, ':')
			return found{kind: f.kind, name: nameIn(body[:max(end, 0)]), record: key}, end >= 0
		case below:
			name, ok := core.KeyedName(prefix+":", key)
			return found{kind: f.kind, name: name}, ok
		}
		body, ok := strings.CutSuffix(body, f.suffix)
		if name := nameIn(strings.TrimSuffix(body, tasks)); f.kind == kinds.Queue && ok && tasksOf(name) == body {
			return found{kind: kinds.Executor, name: name}, true
		}
		return found{kind: f.kind, name: nameIn(body)}, ok
	}
	return found{}, false
}

// nameIn returns the name that a key or channel has in its own, in braces if it has none itself.
func nameIn(body string) string {
	if strings.LastIndexByte(body, '{') == 0 && strings.IndexByte(body, '}') == len(body)-1 {
		return body[1 : len(body)-1]
	}
	return body
}
