package rscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/rscheduler"
)

// table is what states.md says: by script the transitions that it makes, and the fields that it writes.
type table struct {
	moves  map[string]map[string]bool // "from to"
	writes map[string]map[string]bool
}

const theQueue = "the queue"

var (
	backticked = regexp.MustCompile("`([^`]+)`")
	runFields  = []string{"claim", "token", "state", "attempt", "started", "client"}
)

func readTable(t *testing.T) table {
	t.Helper()
	page, err := os.ReadFile("states.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "## States and transitions")
	read := table{map[string]map[string]bool{}, map[string]map[string]bool{}}
	for _, line := range strings.Split(rest, "\n") {
		cells := strings.Split(strings.TrimPrefix(strings.TrimSuffix(line, " |"), "| "), " | ")
		if len(cells) == 5 {
			cells = append(cells, "") // it writes nothing
		}
		if len(cells) != 6 || cells[0] == "from" || strings.Contains(line, "|---") {
			continue
		}
		for _, script := range []string{"register.lua", "begin.lua", "end.lua", "job.lua", theQueue, "Redis's clock"} {
			if !strings.Contains(cells[3], script) {
				continue
			}
			if read.moves[script] == nil {
				read.moves[script], read.writes[script] = map[string]bool{}, map[string]bool{}
			}
			for _, from := range strings.Split(strings.TrimSpace(cells[0]), ", ") {
				for _, to := range strings.Split(strings.TrimSpace(cells[1]), ", ") {
					read.moves[script][from+" "+to] = true
				}
			}
			for _, match := range backticked.FindAllStringSubmatch(cells[5], -1) {
				read.writes[script][match[1]] = true
			}
			if strings.Contains(cells[5], "run") || strings.Contains(cells[5], "as below") {
				for _, field := range runFields {
					read.writes[script][field] = true
				}
			}
		}
	}
	require.Len(t, read.moves, 6, "the table of states.md is not as this test reads it")
	return read
}

// world is a scheduler with two processes, of which a test takes the steps.
type world struct {
	*rig
	table   table
	overlap rscheduler.Overlap
	drivers []*rscheduler.Driver
	s       []*rscheduler.Scheduler
	period  time.Duration

	claimed, running, old []*held
	job                   map[string]string
	states                map[string]string // by id

	token   int64
	begun   map[string]bool
	last    time.Time // the newest regular tick that began
	paused  [][2]time.Time
	skipped bool // the schedule was replaced, or the data was lost, since the last tick
	history []string
}

type held struct {
	*rscheduler.Claimed
	by    *rscheduler.Driver
	until time.Time
}

const (
	modelLease = 30 * time.Second
	modelKeys  = "redlatch_sched:{billing}:"
	modelTicks = "redlatch_dq:{billing}:ticks:"
)

// look returns the state of each tick, and what is kept of the job.
func (w *world) look(t *testing.T) (states, job map[string]string) {
	t.Helper()
	ctx, now := t.Context(), float64(time.Now().UnixMicro())
	job, states = w.Hash(t, modelKeys+"job:job"), map[string]string{}
	claims := w.Hash(t, modelTicks+"claims")
	score := func(set, member string) float64 {
		at, err := w.Redis.ZScore(ctx, modelTicks+set, member).Result()
		if errors.Is(err, redis.Nil) {
			return 0
		}
		require.NoError(t, err)
		return at
	}
	for id, body := range w.Hash(t, modelTicks+"bodies") {
		slot := id[strings.LastIndex(id, "@"):]
		state := job["state"+slot]
		runs := state != ""
		held := strings.HasPrefix(claims[id], "h") // until it is claimed again, also if the lease is over
		under := held && strings.HasPrefix(claims[id], "h"+job["claim"+slot])
		switch {
		case runs && state == "waiting" && (under || !held), !runs && job["waits"] == id && !held:
			states[id] = "waiting"
		case runs && (under || !held):
			states[id] = "begun"
		case held:
			states[id] = "claimed"
		case score("due", body[:16]+id) > now:
			states[id] = "planned"
		default:
			states[id] = "due"
		}
	}
	return states, job
}

// check requires that what a step did is in the table.
func (w *world) check(t *testing.T, gone string, scripts ...string) {
	t.Helper()
	synctest.Wait()
	states, job := w.look(t)
	once := func(from, to string) bool {
		return from == to || slices.ContainsFunc(scripts, func(s string) bool { return w.table.moves[s][from+" "+to] })
	}
	moves := func(from, to string) bool { // time may pass beside it, and a tick of another schedule may have the same id
		again := once(from, "none") && once("none", "planned") && (to == "planned" || to == "due")
		return once(from, to) || once(from, "due") && once("due", to) || again
	}
	for id, to := range states {
		from, known := w.states[id]
		if !known {
			from = "none"
			if to == "due" {
				to = "planned" // and due at once
			}
		}
		manual := !known && strings.Contains(id, "@m")
		if !manual && !moves(from, to) && (from == "none" || to != "planned" || !moves(from, "due")) { // returned for later
			require.Failf(t, "a transition that is not in states.md", "%s: %s to %s by %v after\n%s", id, from, to, scripts, strings.Join(w.history, "\n"))
		}
	}
	for id, from := range w.states {
		if _, there := states[id]; !there && !moves(from, gone) {
			require.Failf(t, "a transition that is not in states.md", "%s: %s to %s by %v after\n%s", id, from, gone, scripts, strings.Join(w.history, "\n"))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(merged(w.job, job))) {
		name, _, _ := strings.Cut(strings.Split(field, "@")[0], ":")
		written := slices.ContainsFunc(scripts, func(s string) bool { return w.table.writes[s][name] })
		if w.job[field] != job[field] && !written && !slices.Contains(scripts, "job.lua") {
			require.Failf(t, "a field that states.md does not name", "%s by %v after\n%s", field, scripts, strings.Join(w.history, "\n"))
		}
	}
	regular := 0
	for id := range states {
		if !strings.Contains(id, "@m") && id == "job@"+job["next"] {
			regular++
		}
	}
	require.LessOrEqual(t, regular, 1)
	w.skipped = w.skipped || job["schedule"] != w.job["schedule"] // a process that begins replaces it, too
	w.states, w.job = states, job
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// begin begins a tick that was claimed, and does what its answer says.
func (w *world) begin(t *testing.T, h *held) {
	t.Helper()
	answer, token, _, err := h.by.Begin(t.Context(), h.Claimed)
	require.NoError(t, err)
	w.history = append(w.history, fmt.Sprint("  ", answer))
	switch answer {
	case "run":
		require.Greater(t, token, w.token, "a token does not rise")
		w.token = token
		w.ran(t, h)
		w.running = append(w.running, h)
		w.check(t, "", "begin.lua")
		return
	case "died":
		w.check(t, "", "begin.lua")
		require.True(t, h.by.End(t.Context(), h.Claimed, "end"))
		require.NoError(t, h.by.Ack(t.Context(), h.Claimed))
		w.check(t, "ended", "end.lua")
	case "wait":
		h.by.Return(h.Claimed)
		w.check(t, "", "begin.lua")
	case "late", "paused", "left":
		if strings.Contains(h.ID, "@m") {
			require.NoError(t, h.by.Ack(t.Context(), h.Claimed))
			w.check(t, "left out", "begin.lua")
			return
		}
		require.True(t, h.by.End(t.Context(), h.Claimed, "drop"))
		require.NoError(t, h.by.Ack(t.Context(), h.Claimed))
		w.check(t, "left out", "end.lua", "begin.lua")
	case "gone", "lost":
		_ = h.by.Ack(t.Context(), h.Claimed) // a claim that is over is an error
		w.check(t, "none", "begin.lua", theQueue)
	}
	w.old = append(w.old, h)
}

// ran requires what is promised of a run that begins.
func (w *world) ran(t *testing.T, h *held) {
	t.Helper()
	now := time.Now()
	story := strings.Join(w.history, "\n")
	if w.overlap != rscheduler.Allow {
		for _, other := range w.running {
			require.False(t, other.until.After(now) && other.ID != h.ID, "%s runs beside %s:\n%s", h.ID, other.ID, story)
		}
	}
	again := w.begun[h.ID]
	require.False(t, again && h.Attempt == 1, "%s begins twice:\n%s", h.ID, story)
	w.begun[h.ID] = true
	digits := h.ID[strings.LastIndex(h.ID, "@")+1:]
	if digits[0] == 'm' {
		return
	}
	instant, err := strconv.ParseInt(digits, 10, 64)
	require.NoError(t, err)
	at := time.UnixMicro(instant)
	for _, p := range w.paused {
		require.False(t, !at.Before(p[0]) && at.Before(p[1]), "%s was due in a pause:\n%s", h.ID, story)
	}
	if again {
		return
	}
	require.True(t, at.After(w.last), "%s begins after %v:\n%s", h.ID, w.last, story)
	w.period, err = time.ParseDuration(strings.TrimPrefix(w.job["schedule"], "every ")) // that of the process that wrote the job last
	require.NoError(t, err)
	for t0 := w.last.Add(w.period); !w.skipped && w.overlap >= rscheduler.QueueAll && t0.Before(at); t0 = t0.Add(w.period) {
		in := slices.ContainsFunc(w.paused, func(p [2]time.Time) bool { return p[0].Before(now) && t0.Before(p[1]) }) // due in it, or looked at
		require.True(t, in, "the tick of %v is lost before that of %v:\n%s", t0, at, story)
	}
	w.last, w.skipped = at, false
}

// step does something by chance.
func (w *world) step(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	n := rand.IntN(len(w.drivers))
	d := w.drivers[n]
	pick := func(list *[]*held) *held {
		i := rand.IntN(len(*list))
		h := (*list)[i]
		*list = slices.Delete(*list, i, i+1)
		return h
	}
	say := func(format string, args ...any) {
		w.history = append(w.history, fmt.Sprintf("%v %d ", time.Since(w.start), n)+fmt.Sprintf(format, args...))
	}
	switch dice := rand.IntN(100); {
	case dice < 25:
		time.Sleep(time.Duration(rand.Int64N(int64(6 * time.Second))))
		w.check(t, "", "Redis's clock", theQueue)
	case dice < 28: // a process is away for long
		time.Sleep(time.Duration(rand.Int64N(int64(90 * time.Second))))
		w.check(t, "", "Redis's clock", theQueue)
	case dice < 38:
		say("beat")
		require.NoError(t, d.Beat(ctx))
		w.check(t, "none", "register.lua")
	case dice < 62:
		if c := d.Take(ctx, modelLease); c != nil {
			say("claims %s, attempt %d", c.ID, c.Attempt)
			w.claimed = append(w.claimed, &held{c, d, time.Now().Add(modelLease)})
			w.check(t, "", theQueue, "Redis's clock")
		}
	case dice < 80 && len(w.claimed) > 0:
		h := pick(&w.claimed)
		say("begins %s", h.ID)
		w.begin(t, h)
	case dice < 90 && len(w.running) > 0:
		h := pick(&w.running)
		how := []string{"end", "end", "wait"}[rand.IntN(3)]
		say("ends %s: %s", h.ID, how)
		for range 1 + rand.IntN(2) { // as if the answer was lost
			require.True(t, h.by.End(ctx, h.Claimed, how))
			w.check(t, "ended", "end.lua")
		}
		if how == "wait" {
			_ = h.by.Nack(ctx, h.Claimed) // as above
		} else {
			_ = h.by.Ack(ctx, h.Claimed) // as above
		}
		w.old = append(w.old, h)
		w.check(t, "ended", "end.lua", theQueue)
	case dice < 92 && len(w.running)+len(w.claimed) > 0: // its process dies
		if list := &w.running; len(*list) > 0 {
			say("dies with %s", pick(list).ID)
		} else {
			say("dies with %s", pick(&w.claimed).ID)
		}
	case dice < 94 && len(w.old) > 0: // a script arrives late
		h := w.old[rand.IntN(len(w.old))]
		say("late begin of %s", h.ID)
		answer, _, _, err := h.by.Begin(ctx, h.Claimed)
		require.NoError(t, err)
		require.Equal(t, "lost", answer)
		w.check(t, "", "none of all")
	case dice < 96:
		w.pause(t, n, say)
	case dice < 98:
		if err := w.s[n].Trigger(ctx, "job"); err == nil {
			say("trigger")
		}
		w.check(t, "", theQueue)
	case dice < 99:
		w.change(t, n, say)
	}
}

func (w *world) pause(t *testing.T, n int, say func(string, ...any)) {
	t.Helper()
	far := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	if open := len(w.paused) - 1; open >= 0 && w.paused[open][1].Equal(far) {
		require.NoError(t, w.s[n].Resume(t.Context(), "job"))
		w.paused[open][1] = time.Now()
		say("resume")
	} else if w.s[n].Pause(t.Context(), "job", "why") == nil {
		w.paused = append(w.paused, [2]time.Time{time.Now(), far})
		say("pause")
	}
	w.check(t, "", "job.lua")
}

// change replaces the schedule, removes the job, or has Redis lose its data.
func (w *world) change(t *testing.T, n int, say func(string, ...any)) {
	t.Helper()
	w.skipped = true
	switch rand.IntN(3) {
	case 0:
		w.period = time.Duration(3+rand.IntN(10)) * time.Second
		say("replace by %v", w.period)
		require.NoError(t, w.s[n].Replace("job", rscheduler.Every(w.period), func(context.Context, rscheduler.Run) error { return nil }))
		require.NoError(t, w.drivers[n].Beat(t.Context()))
		w.check(t, "none", "register.lua")
		return
	case 1:
		say("remove")
		_, err := w.s[n].Remove(t.Context(), "job")
		require.NoError(t, err)
	case 2:
		say("flush")
		w.Mini.FlushAll()
		w.claimed, w.running, w.old = nil, nil, nil
	}
	w.paused, w.begun, w.last = nil, map[string]bool{}, time.Time{}
	w.states, w.job = w.look(t)
}

// Histories by chance of a job with two processes, whose steps keep to the table of states.md: no tick begins twice, or in a pause, or
// beside another, none is lost with QueueAll and Allow, and tokens rise.
func TestHistoriesOfAJobKeepToTheStates(t *testing.T) {
	read := readTable(t)
	for _, overlap := range []rscheduler.Overlap{rscheduler.Skip, rscheduler.Queue, rscheduler.QueueAll, rscheduler.Allow} {
		for n := range faulttest.Rounds(t, 2, 500) {
			ok := t.Run(fmt.Sprint(overlap, n), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					w := &world{
						rig: r, table: read, overlap: overlap, period: 5 * time.Second, begun: map[string]bool{}, job: map[string]string{}, skipped: true,
					}
					for range 2 {
						s, _ := r.worker(t, rscheduler.Every(w.period), r.handle, rscheduler.WithOverlap(overlap), rscheduler.WithBacklog(10_000), rscheduler.WithCatchUp(24*time.Hour))
						w.s, w.drivers = append(w.s, s), append(w.drivers, rscheduler.NewDriver(s))
					}
					for range 400 {
						w.step(t)
					}
				})
			})
			if !ok {
				break
			}
		}
	}
}
