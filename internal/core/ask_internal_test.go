package core

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Whatever is taken for a question names a channel for the answer and nothing else.
func FuzzQuestion(f *testing.F) {
	good := `{"v":1,"from":"me.0123456789abcdef","nonce":"00112233445566778899aabbccddeeff","cursor":3}`
	for _, seed := range []string{good, "", "{}", "null", "[]", good[:40], strings.Replace(good, "me", "a:{b}", 1)} {
		f.Add(seed)
	}
	c := &Core{Config: Config{Prefix: "app:"}}
	f.Fuzz(func(t *testing.T, text string) {
		q, ok := parseQuestion(text)
		if !ok {
			return
		}
		channel := c.replyChannel(q)
		assert.True(t, strings.HasPrefix(channel, "redlatch_reply:{app:}"+q.From+":"))
		assert.Less(t, len(channel), 200)
		assert.False(t, strings.ContainsFunc(channel, isControl))
		assert.Equal(t, 1, strings.Count(strings.TrimPrefix(channel, "redlatch_reply:{app:}"), ":"))
		assert.GreaterOrEqual(t, q.Cursor, 0)
	})
}

func FuzzReport(f *testing.F) {
	const id = "me.0123456789abcdef"
	good, err := json.Marshal(Report{
		Version: questionVersion, ID: id, Holds: []ReportHold{{Kind: "rlock", Name: "n", Age: 1}},
		Losses: []ReportLoss{{Kind: "rlock", Name: "n", Site: "a/b.go:1", Cause: "gone"}}, Failovers: []ReportFailover{{Node: "a:1", Age: 1}},
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "{}", "null", string(good[:30]), `{"v":1,"id":"` + id + `","cursor":-1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parseReport(text, id)
		if !ok {
			return
		}
		assert.Equal(t, id, r.ID)
		assert.LessOrEqual(t, len(r.Holds), answerList)
		assert.LessOrEqual(t, len(r.Waits), answerList)
		assert.LessOrEqual(t, len(r.Losses), eventsKept)
		assert.LessOrEqual(t, len(r.Failovers), eventsKept)
		assert.GreaterOrEqual(t, r.Cursor, 0)
	})
}
