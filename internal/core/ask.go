package core

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed announce.lua
var announceSource string

var announce = script.Embedded("redlatch.announce", &announceSource) //nolint:gochecknoglobals // a constant in all but name

const (
	questionVersion = 1
	questionSize    = 4 << 10 // bytes, at most
	answerSize      = 8 << 20
	answerList      = 1000 // holds, and waits, in one answer
	nonceSize       = 16
	askTimeout      = 3 * time.Second // with an answer
)

// question is what a client asks another one, as JSON.
type question struct {
	Version int    `json:"v"`
	From    string `json:"from"`   // the id of the client that asks
	Nonce   string `json:"nonce"`  // hexadecimal digits that nobody can guess
	Cursor  int    `json:"cursor"` // how many holds to leave out, those held longest
}

// parseQuestion returns the question that a message is.
func parseQuestion(text string) (q question, ok bool) {
	if len(text) > questionSize || json.Unmarshal([]byte(text), &q) != nil {
		return q, false
	}
	nonce, err := hex.DecodeString(q.Nonce)
	return q, q.Version == questionVersion && IsClientID(q.From) && err == nil && len(nonce) == nonceSize && q.Cursor >= 0
}

// Report is what a client says of itself, as JSON. Times are for how long: the clocks of two machines may differ.
type Report struct {
	Version    int              `json:"v"`
	ID         string           `json:"id"`
	Library    string           `json:"library"`
	Go         string           `json:"go"`
	Host       string           `json:"host"`
	PID        int              `json:"pid"`
	Up         int64            `json:"up_ms"`
	Channels   int              `json:"channels"`
	Messages   uint64           `json:"messages"`
	Reconnects uint64           `json:"reconnects"`
	RoundTrips int64            `json:"round_trips"`
	HoldCount  int              `json:"hold_count"`
	WaitCount  int              `json:"wait_count"`
	Holds      []ReportHold     `json:"holds"`
	Waits      []ReportWait     `json:"waits"`
	LossCount  int              `json:"loss_count"`
	Losses     []ReportLoss     `json:"losses"`
	Failovers  []ReportFailover `json:"failovers,omitempty"`
	Cursor     int              `json:"cursor"` // for the next question; 0 if there are no more holds
}

// ReportHold is a hold in a report.
type ReportHold struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	Mode    string `json:"mode,omitempty"`
	Age     int64  `json:"age_ms"`
	Left    int64  `json:"left_ms"`
	Levels  int    `json:"levels"`
	Renewed int    `json:"renewed"`
	Site    string `json:"site,omitempty"`
}

// ReportWait is a call that waits, in a report.
type ReportWait struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Age  int64  `json:"age_ms"`
	Site string `json:"site,omitempty"`
}

// ReportLoss is a loss in a report.
type ReportLoss struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Age   int64  `json:"age_ms"`
	Held  int64  `json:"held_ms"`
	Site  string `json:"site,omitempty"`
	Cause string `json:"cause"`
}

// ReportFailover is a failover, or a restart, in a report.
type ReportFailover struct {
	Node string `json:"node"`
	Age  int64  `json:"age_ms"`
}

// answer publishes what the client says of itself. It goes to the channel that the question's parts name, and nowhere else.
func (p *presence) answer(q question) {
	defer p.answered()
	c := p.core
	text, err := json.Marshal(c.report(q.Cursor))
	if err != nil { // it has strings and numbers only
		return
	}
	c.Batch.Start(publish(c.replyChannel(q), text), pipeline.Normal, func(*script.Call) {})
}

func publish(channel string, message []byte) *script.Call {
	return announce.Call(1, channel, channel, string(message))
}

func (c *Core) replyChannel(q question) string {
	return c.channel("redlatch_reply:") + q.From + ":" + q.Nonce
}

// report returns what the client says of itself.
func (c *Core) report(cursor int) Report {
	host, _ := os.Hostname() // empty if it is not known
	stats, now := c.Subscriptions(), c.Clock.Time(c.Clock.Now())
	holds, waits := c.Holds(), c.Waits()
	r := Report{
		Version: questionVersion, ID: c.ID, Library: libraryVersion(), Go: runtime.Version(), Host: host, PID: os.Getpid(),
		Up:       c.Clock.Now().Milliseconds(),
		Channels: stats.Channels, Messages: stats.Messages, Reconnects: stats.Reconnects, RoundTrips: c.Batch.Flushes(),
		HoldCount: len(holds), WaitCount: len(waits),
	}
	from := min(cursor, len(holds)) // the cursor is the asker's, and may be any number
	to := min(from+answerList, len(holds))
	for _, h := range holds[from:to] {
		r.Holds = append(r.Holds, ReportHold{
			Kind: h.Kind, Name: h.Name, Owner: h.Owner, Mode: h.Mode, Age: now.Sub(h.Since).Milliseconds(), Left: h.Left.Milliseconds(),
			Levels: h.Levels, Renewed: h.Renewed, Site: h.Site,
		})
	}
	for _, w := range waits[:min(answerList, len(waits))] {
		r.Waits = append(r.Waits, ReportWait{Kind: w.Kind, Name: w.Name, Age: now.Sub(w.Since).Milliseconds(), Site: w.Site})
	}
	last, count := c.Events.Losses()
	r.LossCount = count
	for _, l := range last {
		r.Losses = append(r.Losses, ReportLoss{
			Kind: l.Kind, Name: l.Name, Owner: l.Owner, Age: now.Sub(l.At).Milliseconds(), Held: l.Held.Milliseconds(),
			Site: l.Site, Cause: l.Cause,
		})
	}
	for _, f := range c.Events.Failovers() {
		r.Failovers = append(r.Failovers, ReportFailover{Node: f.Node, Age: now.Sub(f.At).Milliseconds()})
	}
	if to < len(holds) {
		r.Cursor = to
	}
	return r
}

// libraryVersion returns the version of this module that the program was built with; "(devel)" if it was built from a checkout.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == events.ModulePath {
			return m.Version
		}
	}
	return ""
}

// Ask returns what another client says of itself.
func (c *Core) Ask(ctx context.Context, id string, cursor int) (Report, error) {
	if !IsClientID(id) || cursor < 0 {
		return Report{}, fmt.Errorf("%w: the client id %.100q, or the cursor %d", errs.ErrInvalid, id, cursor)
	}
	return Step(ctx, c, func(ctx context.Context) (Report, error) { return c.ask(ctx, id, cursor) })
}

func (c *Core) ask(ctx context.Context, id string, cursor int) (Report, error) {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	q := question{Version: questionVersion, From: c.ID, Nonce: hex.EncodeToString(nonce), Cursor: cursor}
	text, err := json.Marshal(q)
	if err != nil {
		return Report{}, err
	}
	l := &replies{subscribed: make(chan struct{}, 1), texts: make(chan string, 1)}
	m, confirmed := c.Router.Join(c.replyChannel(q), l)
	defer m.Leave()
	if !confirmed {
		select {
		case <-l.subscribed:
		case <-ctx.Done():
			return Report{}, script.ErrNoAnswer
		}
	}
	channel := c.ClientChannel(id)
	call, err := c.Run(ctx, func() *script.Call { return publish(channel, text) }, pipeline.SendOptions{})
	if err != nil {
		return Report{}, err
	}
	heard, err := call.Int64()
	if err != nil {
		return Report{}, err
	}
	if heard == 0 && c.Cluster { // a plain channel may have listeners at other nodes
		heard = int64(c.Listening(ctx, channel))
	}
	if heard == 0 {
		return Report{}, fmt.Errorf("%w: %s", errs.ErrNotListening, id)
	}
	silence := time.NewTimer(askTimeout)
	defer silence.Stop()
	for {
		select {
		case text := <-l.texts:
			if r, ok := parseReport(text, id); ok {
				return r, nil
			}
		case <-silence.C:
			return Report{}, fmt.Errorf("%w: %s, no answer in %v", errs.ErrNotListening, id, askTimeout)
		case <-ctx.Done():
			return Report{}, script.ErrNoAnswer
		}
	}
}

// parseReport returns the report of a client that a message is. Who has sent it is not known.
func parseReport(text, id string) (r Report, ok bool) {
	ok = len(text) <= answerSize && json.Unmarshal([]byte(text), &r) == nil && r.Version == questionVersion && r.ID == id &&
		len(r.Holds) <= answerList && len(r.Waits) <= answerList && len(r.Losses) <= events.Kept &&
		len(r.Failovers) <= events.Kept && r.Cursor >= 0
	return r, ok
}

// replies is the listener of a channel for one reply.
type replies struct {
	subscribed chan struct{}
	texts      chan string
}

func (l *replies) Subscribed() {
	select {
	case l.subscribed <- struct{}{}:
	default: // known already
	}
}

func (l *replies) Message(text string) {
	select {
	case l.texts <- text:
	default: // one is enough
	}
}

// Clients returns the ids of the clients that listen, in the order of their ids.
func (c *Core) Clients(ctx context.Context) ([]string, error) {
	return Step(ctx, c, func(ctx context.Context) (ids []string, err error) {
		prefix := c.ClientChannel("")
		channels, err := c.Channels(ctx, EscapePattern(prefix)+"*")
		for _, channel := range channels {
			if id := strings.TrimPrefix(channel, prefix); IsClientID(id) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		return ids, err
	})
}
