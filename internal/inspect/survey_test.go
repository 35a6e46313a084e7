package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// bury has n messages become dead letters, in the order of their ids.
func bury(t *testing.T, q *rdelayedqueue.Queue[int], from, n int, why string) {
	t.Helper()
	items := make([]rdelayedqueue.Item[int], n)
	for i := range items {
		items[i] = rdelayedqueue.Item[int]{ID: fmt.Sprintf("m-%05d", from+i)}
	}
	_, err := q.OfferBatch(t.Context(), items)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	left := n
	require.NoError(t, q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[int]) error {
		if left--; left == 0 {
			stop()
		}
		return rdelayedqueue.Reject(errors.New(why))
	}, rdelayedqueue.WithPrefetch(100)))
}

func TestSurveyIsOfTheNewestDeadLetters(t *testing.T) {
	c, err := redlatch.New(redistest.Start(t).Client(t), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	q := redlatch.GetDelayedQueue[int](c, "mails")
	mails := inspect.MessagesOf(c, inspect.Object{Kind: "queue", Name: "mails"})
	v, err := mails.Survey(t.Context(), rdelayedqueue.Dead)
	require.NoError(t, err)
	assert.Equal(t, inspect.Survey{}, v)

	bury(t, q, 0, 3, "no luck\nat all")
	v, err = mails.Survey(t.Context(), rdelayedqueue.Dead)
	require.NoError(t, err)
	require.Len(t, v.Messages, 3)
	assert.False(t, v.More)
	assert.Equal(t, "m-00002", v.Messages[0].ID)

	bury(t, q, 3, inspect.SurveyMost, "no money\nat all")
	v, err = mails.Survey(t.Context(), rdelayedqueue.Dead)
	require.NoError(t, err)
	assert.True(t, v.More)
	require.NotEmpty(t, v.Messages) // a busy machine may have no time for all
	assert.LessOrEqual(t, len(v.Messages), inspect.SurveyMost)
	assert.Equal(t, []inspect.Group{{Line: "no money", Dead: len(v.Messages)}}, inspect.Groups(v))
	for i, m := range v.Messages {
		require.Equal(t, fmt.Sprintf("m-%05d", inspect.SurveyMost+2-i), m.ID)
	}
	t.Log(len(v.Messages), "were looked at")
}

func TestMessagesAreFoundByIDAndError(t *testing.T) {
	v := inspect.Survey{Messages: []inspect.Message{
		{ID: "Order-1", State: "dead", Error: "no luck\nwith 7"},
		{ID: "order-2", State: "delayed", Error: "no luck\nwith 8"},
		{ID: "order-3", State: "dead", Error: "No money"},
		{ID: "order-4", State: "ready", Group: "ACME"},
	}}
	found := func(text, line string) (ids string) {
		for _, m := range v.Find(inspect.Sought{Text: text, Line: line}) {
			ids += m.ID[len(m.ID)-1:]
		}
		return ids
	}
	assert.Equal(t, "1", found("R-1", ""))
	assert.Equal(t, "3", found("no m", ""))
	assert.Equal(t, "2", found("WITH 8", ""))
	assert.Equal(t, "4", found("acme", ""))
	assert.Equal(t, "12", found("", "no luck"))
	assert.Equal(t, "1", found("7", "no luck"))
	assert.Equal(t, "1234", found("", ""))
	assert.Equal(t, []inspect.Group{{Line: "no luck", Dead: 1, Waiting: 1}, {Line: "No money", Dead: 1}}, inspect.Groups(v))
}

func TestLineOfAnErrorIsShortAndWhole(t *testing.T) {
	assert.Equal(t, "no luck", inspect.Line(" no luck \nwith 7"))
	assert.Equal(t, strings.Repeat("x", 199), inspect.Line(strings.Repeat("x", 199)+"é"))
}
