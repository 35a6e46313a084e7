package rbarrier_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rbarrier"
)

// looker is a barrier of either kind.
type looker interface {
	Info(ctx context.Context) (rbarrier.Info, error)
}

func info(t *testing.T, of looker) rbarrier.Info {
	t.Helper()
	i, err := of.Info(t.Context())
	require.NoError(t, err)
	return i
}

// of requires that a crowd is one participant of each client, and listed whole.
func of(t *testing.T, crowd rbarrier.Crowd, clients ...*locktest.Peer) {
	t.Helper()
	assert.Equal(t, len(clients), crowd.Count)
	var want, got []string
	for _, c := range clients {
		want = append(want, c.ID())
	}
	for _, p := range crowd.Places {
		got = append(got, p.Client)
		assert.True(t, strings.HasPrefix(p.Owner, p.Client+":"))
		assert.InDelta(t, place-recheck/2, p.Left, float64(recheck))
	}
	assert.ElementsMatch(t, want, got)
}

func TestInfoTellsWhoHasArrived(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 4)
		viewer := all[3].GetBarrier("start", 7) // whatever number it expects
		assert.Equal(t, rbarrier.Info{Name: "start"}, info(t, viewer))
		first, second := await(t, all[0], 3), await(t, all[1], 3)
		time.Sleep(time.Minute)
		i := info(t, viewer)
		assert.Equal(t, 3, i.Participants)
		of(t, i.Arrived, all[0], all[1])
		assert.Empty(t, i.Inside)
		finish(t, await(t, all[2], 3), first, second)
		assert.Equal(t, rbarrier.Info{Name: "start", Participants: 3}, info(t, viewer))
		time.Sleep(time.Minute)
		assert.Equal(t, rbarrier.Info{Name: "start"}, info(t, viewer))
	})
}

func TestInfoTellsWhoIsInsideAndWhoLeaves(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds, next := participants(all), participants(all)
		viewer := b.Peer(t).GetDoubleBarrier("work", 1)
		assert.Equal(t, rbarrier.Info{Name: "work", Double: true}, info(t, viewer))
		enter(t, ds...)
		time.Sleep(5 * time.Minute)
		leaves, enters := begin(func() error { return ds[0].Leave(t.Context()) }), begin(func() error { return next[1].Enter(t.Context()) })
		time.Sleep(time.Second)
		i := info(t, viewer)
		assert.Equal(t, 2, i.Participants)
		of(t, i.Arrived, all[1])
		of(t, i.Inside, all[1])
		of(t, i.Leaving, all[0])
		finish(t, begin(func() error { return ds[1].Leave(t.Context()) }), leaves)
		require.NoError(t, next[0].Enter(t.Context()))
		finish(t, enters)
		i = info(t, viewer)
		of(t, i.Arrived)
		of(t, i.Inside, all...)
		of(t, i.Leaving)
		leave(t, next...)
		assert.Equal(t, rbarrier.Info{Name: "work", Double: true, Participants: 2}, info(t, viewer))
	})
}

// It also breaks no round: whoever is next does.
func TestInfoChangesNothingAndLeavesOutTheDead(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		dead := []<-chan error{await(t, all[0], 2), begin(func() error { return participants(all)[0].Enter(t.Context()) })}
		all[0].Blackhole(true)
		viewers := []looker{all[1].GetBarrier("start", 2), all[1].GetDoubleBarrier("work", 2)}
		info(t, viewers[0]) // Redis knows the script
		time.Sleep(place - time.Second)
		for _, want := range []int{1, 0} {
			before, trips := b.State(t), all[1].Trips()
			for _, viewer := range viewers {
				i := info(t, viewer)
				assert.Equal(t, []int{2, want, want}, []int{i.Participants, i.Arrived.Count, len(i.Arrived.Places)})
			}
			assert.Equal(t, 2, all[1].Trips()-trips)
			assert.Equal(t, before, b.State(t))
			time.Sleep(time.Second)
		}
		all[0].Blackhole(false)
		for _, ended := range dead {
			require.ErrorIs(t, <-ended, rbarrier.ErrBroken)
		}
	})
}

func TestInfoOfACrowdListsTheFirst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var ended []<-chan error
		for range 130 {
			ended = append(ended, await(t, p, 131))
		}
		i := info(t, p.GetBarrier("start", 1))
		assert.Equal(t, 130, i.Arrived.Count)
		assert.Len(t, i.Arrived.Places, 100)
		finish(t, append(ended, await(t, p, 131))...)
	})
}

func TestInfoFailsAsOtherCallsDo(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		lookers := func(name string, n int) []looker { return []looker{p.GetBarrier(name, n), p.GetDoubleBarrier(name, n)} }
		fails := func(ctx context.Context, name string, n int, want error) {
			t.Helper()
			for _, l := range lookers(name, n) {
				_, err := l.Info(ctx)
				require.ErrorIs(t, err, want, "%T", l)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), ended, nil} {
			for _, name := range locktest.BadNames() {
				fails(ctx, name, 2, redlatch.ErrInvalid)
			}
			fails(ctx, "start", 0, redlatch.ErrInvalid)
		}
		fails(nil, "start", 2, redlatch.ErrInvalid)
		fails(ended, "start", 2, context.Canceled)
		assert.Empty(t, p.Sent())
		_, err := p.GetBarrier("start", 0).Info(t.Context())
		require.EqualError(t, err, `rbarrier: info "start": invalid argument: 0 participants are not between 1 and 10000`)

		require.NoError(t, b.Redis.MSet(t.Context(), "redlatch_barrier:{word}", "word", "redlatch_double:{word}", "word").Err())
		fails(t.Context(), "word", 2, redlatch.ErrWrongType)
		require.NoError(t, b.Redis.MSet(t.Context(), "redlatch_barrier_arrived:{text}", "text", "redlatch_double_leaving:{text}", "text").Err())
		fails(t.Context(), "text", 2, redlatch.ErrWrongType)
		p.Down(true)
		fails(t.Context(), "start", 2, redlatch.ErrUnavailable)
		p.Down(false)
		require.NoError(t, p.Close())
		fails(t.Context(), "start", 2, redlatch.ErrClosed)
	})
}
