package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Witness keeps a record, on a server, of who was inside a critical section. All witnesses with one name share one
// record, in whatever process they are. Its keys begin with "faulttest:".
//
// A witness is safe for concurrent use. It has a connection of its own, which no [Proxy] touches.
type Witness struct {
	ctx    context.Context //nolint:containedctx // It stands for the test, whose cleanups may still ask.
	rdb    *redis.Client
	inside string
	events string
	fail   func(error)
}

// Event is an entry of a witness's record.
type Event struct {
	Kind   string    // "enter", "exit" or "token"
	Who    string    // who entered or left
	At     time.Time // by the server's clock
	Token  int64     // of a token
	Others string    // who was inside already when Who entered
}

// NewWitness begins a record under name on the server at addr, empty. It is deleted when the test ends.
func NewWitness(tb testing.TB, addr, name string) *Witness {
	tb.Helper()
	w := openWitness(context.WithoutCancel(tb.Context()), addr, name)
	w.fail = func(err error) {
		tb.Helper()
		tb.Errorf("faulttest: witness %s: %v", name, err)
	}
	w.clear()
	tb.Cleanup(func() {
		w.clear()
		w.Close()
	})
	return w
}

// OpenWitness joins a record that another process has begun. It is for the functions of a [Child]: an error ends the
// process.
func OpenWitness(addr, name string) *Witness {
	w := openWitness(context.Background(), addr, name) // It ends with the process.
	w.fail = func(err error) {
		fmt.Fprintf(os.Stderr, "faulttest: witness %s: %v\n", name, err)
		os.Exit(3)
	}
	return w
}

func openWitness(ctx context.Context, addr, name string) *Witness {
	return &Witness{
		ctx:    ctx,
		rdb:    direct(addr),
		inside: "faulttest:{" + name + "}:inside",
		events: "faulttest:{" + name + "}:events",
	}
}

// direct connects without retries, and without commands that nobody asked for.
func direct(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:            addr,
		MaxRetries:      -1,
		DialerRetries:   1,
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
}

// Enter records that who went in, and reports whether nobody was inside, who itself included.
func (w *Witness) Enter(who string) (alone bool) {
	already, err := enter(w.ctx, w.rdb, w.inside, w.events, who)
	w.check(err)
	return already == 0
}

// Exit records that who went out. For a [Child] that was killed inside, the test calls it.
func (w *Witness) Exit(who string) { w.check(exit(w.ctx, w.rdb, w.inside, w.events, who)) }

// Token records a fencing token at the time of its first use.
func (w *Witness) Token(t int64) { w.check(record(w.ctx, w.rdb, w.events, t)) }

// Now is the server's clock.
func (w *Witness) Now() time.Time {
	now, err := w.rdb.Time(w.ctx).Result()
	w.check(err)
	return now
}

// Events are all entries, in the order in which the server took them.
func (w *Witness) Events() []Event {
	lines, err := w.rdb.LRange(w.ctx, w.events, 0, -1).Result()
	w.check(err)
	events := make([]Event, 0, len(lines))
	for _, line := range lines {
		e, err := parseEvent(line)
		w.check(err)
		events = append(events, e)
	}
	return events
}

func parseEvent(line string) (Event, error) {
	var raw struct{ Kind, Who, Seconds, Micros, Token, Others string }
	if err := json.Unmarshal([]byte(line), &raw); err != nil {
		return Event{}, err
	}
	at, err := timestamp(raw.Seconds, raw.Micros)
	e := Event{Kind: raw.Kind, Who: raw.Who, At: at, Others: raw.Others}
	if raw.Token != "" && err == nil {
		e.Token, err = strconv.ParseInt(raw.Token, 10, 64)
	}
	return e, err
}

// timestamp makes a time of seconds and microseconds in digits.
func timestamp(seconds, micros string) (time.Time, error) {
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	us, err := strconv.ParseInt(micros, 10, 64)
	return time.Unix(s, us*int64(time.Microsecond)), err
}

// Overlaps describes each entry of somebody while somebody was inside. It is empty when there was exclusion.
func (w *Witness) Overlaps() []string {
	var list []string
	for _, e := range w.Events() {
		if e.Others != "" {
			list = append(list, fmt.Sprintf("%s: %s entered, inside: %s", clock(e.At), e.Who, e.Others))
		}
	}
	return list
}

// Regressions describes each token that is not above all before it. It is empty when fencing tokens rose.
func (w *Witness) Regressions() []string {
	var list []string
	var highest int64
	for _, e := range w.Events() {
		if e.Kind != "token" {
			continue
		}
		if e.Token <= highest {
			list = append(list, fmt.Sprintf("%s: token %d after %d", clock(e.At), e.Token, highest))
		}
		highest = max(highest, e.Token)
	}
	return list
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// Entries counts how often somebody went in.
func (w *Witness) Entries() int {
	n := 0
	for _, e := range w.Events() {
		if e.Kind == "enter" {
			n++
		}
	}
	return n
}

// Close closes the connection. The record stays for an hour.
func (w *Witness) Close() {
	if err := w.rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		w.fail(err)
	}
}

func (w *Witness) clear() { w.check(w.rdb.Del(w.ctx, w.inside, w.events).Err()) }

func (w *Witness) check(err error) {
	if err != nil {
		w.fail(err)
	}
}
