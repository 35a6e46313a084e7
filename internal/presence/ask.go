package presence

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed announce.lua
var announceSource string

var announce = script.Embedded("redlatch.announce", &announceSource) //nolint:gochecknoglobals // a constant in all but name

const (
	questionVersion = "1"
	reportVersion   = 1
	questionSize    = 4 << 10 // bytes, at most
	answerSize      = 8 << 20
	answerList      = 1000 // holds, and waits, and caches, in one answer
	nonceSize       = 16
	askTimeout      = 3 * time.Second // with an answer
)

// question is what a client asks another one: the version and these, with a space between two of them.
type question struct {
	From  string // the id of the client that asks
	Nonce string // hexadecimal digits that nobody can guess
	Name  string // if not empty, only holds, waits and caches of this name are asked for
}

func (q question) String() string {
	return questionVersion + " " + q.From + " " + q.Nonce + " " + q.Name
}

// parseQuestion returns the question that a message is.
func parseQuestion(text string) (q question, ok bool) {
	parts := strings.SplitN(text, " ", 4)
	if len(text) > questionSize || len(parts) != 4 || parts[0] != questionVersion {
		return q, false
	}
	nonce, err := hex.DecodeString(parts[2])
	return question{parts[1], parts[2], parts[3]}, core.IsClientID(parts[1]) && err == nil && len(nonce) == nonceSize
}

// answer publishes what the client says of itself. It goes to the channel that the question's parts name, and nowhere else.
func (p *Presence) answer(q question) {
	defer p.answered()
	text, err := json.Marshal(p.report(q.Name))
	if err != nil { // it has strings, numbers and times only
		return
	}
	p.core.Batch.Start(publish(replyChannel(p.core.Prefix, q), text), pipeline.Normal, func(*script.Call) {})
}

func publish(channel string, message []byte) *script.Call {
	return announce.Call(1, channel, channel, string(message))
}

func replyChannel(prefix string, q question) string {
	return channel(prefix, "redlatch_reply:") + q.From + ":" + q.Nonce
}

// Ask returns what another client says of itself; with a name that is not empty, of holds, waits and caches only those that have it.
func Ask(ctx context.Context, c *core.Core, id, name string) (Answer, error) {
	if !core.IsClientID(id) {
		return Answer{}, fmt.Errorf("%w: the client id %.100q", errs.ErrInvalid, id)
	}
	return core.Step(ctx, c, func(ctx context.Context) (Answer, error) { return ask(ctx, c, id, name) })
}

func ask(ctx context.Context, c *core.Core, id, name string) (Answer, error) {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	q := question{c.ID, hex.EncodeToString(nonce), name}
	l := &replies{subscribed: make(chan struct{}, 1), texts: make(chan string, 1)}
	m, confirmed := c.Router.Join(replyChannel(c.Prefix, q), l)
	defer m.Leave()
	if !confirmed {
		select {
		case <-l.subscribed:
		case <-ctx.Done():
			return Answer{}, script.ErrNoAnswer
		}
	}
	channel := Channel(c, id)
	call, err := c.Run(ctx, func() *script.Call { return publish(channel, []byte(q.String())) }, pipeline.SendOptions{})
	if err != nil {
		return Answer{}, err
	}
	heard, err := call.Int64()
	if err != nil {
		return Answer{}, err
	}
	if heard == 0 && c.Cluster { // a plain channel may have listeners at other nodes
		heard = int64(Listening(ctx, c, channel))
	}
	if heard == 0 {
		return Answer{}, fmt.Errorf("%w: %s", errs.ErrNotListening, id)
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
			return Answer{}, fmt.Errorf("%w: %s, no answer in %v", errs.ErrNotListening, id, askTimeout)
		case <-ctx.Done():
			return Answer{}, script.ErrNoAnswer
		}
	}
}

// parseReport returns the report of a client that a message is, with times of this machine. Who has sent it is not known.
func parseReport(text, id string) (r Answer, ok bool) {
	ok = len(text) <= answerSize && json.Unmarshal([]byte(text), &r) == nil && r.Version == reportVersion && r.ID == id &&
		len(r.Holds) <= answerList && len(r.Waits) <= answerList && len(r.Losses) <= events.Kept && len(r.Failovers) <= events.Kept &&
		len(r.Caches) <= answerList
	if ok {
		r.setClock(time.Now())
	}
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
func Clients(ctx context.Context, c *core.Core) ([]string, error) {
	return core.Step(ctx, c, func(ctx context.Context) (ids []string, err error) {
		prefix := Channel(c, "")
		channels, err := Channels(ctx, c, core.EscapePattern(prefix)+"*")
		for _, channel := range channels {
			if id := strings.TrimPrefix(channel, prefix); core.IsClientID(id) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		return ids, err
	})
}

// ChannelPrefix is what the channels on which clients are asked begin with, whatever their name prefix.
const ChannelPrefix = "redlatch_client:"

// Channel returns the channel on which a client with the name prefix of c is asked.
func Channel(c *core.Core, id string) string { return channel(c.Prefix, ChannelPrefix) + id }

// SplitChannel returns the name prefix and the id of the client that is asked on a channel. Some prefixes with braces cannot be
// told from others: {a} from a, and {a}b- from one without b-, where an id may begin with that.
func SplitChannel(channel string) (prefix, id string, ok bool) {
	rest, ok := strings.CutPrefix(channel, ChannelPrefix)
	from := 1 + strings.LastIndexAny(rest, "{}:/") // none of them is in an id
	prefix, id = rest[:from], rest[from:]
	if strings.HasPrefix(prefix, "{") && strings.IndexByte(prefix, '}') == len(prefix)-1 {
		prefix = prefix[1 : len(prefix)-1]
	}
	return prefix, id, ok && core.IsClientID(id)
}

func channel(prefix, kind string) string {
	if prefix == "" || strings.Contains(prefix, "{") {
		return kind + prefix
	}
	return kind + "{" + prefix + "}"
}
