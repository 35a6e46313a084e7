package inspect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestGrowthIsClearAndSteady(t *testing.T) {
	type minute = rdelayedqueue.Minute
	type stats = rdelayedqueue.Stats
	steady := func(m minute) (all [60]minute) {
		for i := range all {
			all[i] = m
		}
		return all
	}
	busy := steady(minute{Offered: 300, Done: 180})
	late := steady(minute{})
	for i := 51; i < 60; i++ { // eight whole minutes, and the one that goes on
		late[i] = minute{Offered: 100}
	}
	young := late
	young[51] = minute{}
	batch := steady(minute{Done: 10})
	batch[55].Offered = 100_000
	over := busy
	for i := 56; i < 59; i++ { // the workers are back
		over[i] = minute{Offered: 300, Done: 700}
	}
	for name, tc := range map[string]struct {
		minutes [60]minute
		stats   stats
		want    int
	}{
		"it grows":                      {busy, stats{Ready: 7_000}, 1_200},
		"what came is being retried":    {busy, stats{Delayed: 7_000, Failed: 7_000}, 1_200},
		"what came is due later":        {busy, stats{Delayed: 7_000, Ready: 30}, 0},
		"what came was replaced":        {busy, stats{Ready: 1}, 0},
		"eight minutes":                 {late, stats{Ready: 900}, 800},
		"seven minutes":                 {young, stats{Ready: 800}, 0},
		"a batch":                       {batch, stats{Ready: 99_000}, 0},
		"all become dead":               {steady(minute{Offered: 300, Done: 180, Dead: 120}), stats{Ready: 7_000, Dead: 7_000}, 0},
		"few":                           {steady(minute{Offered: 5, Done: 1}), stats{Ready: 200}, 0},
		"few beside what is offered":    {steady(minute{Offered: 1_000, Done: 990}), stats{Ready: 6_000}, 0},
		"the workers are back":          {over, stats{Ready: 5_000}, 0},
		"more is done than was offered": {steady(minute{Offered: 100, Done: 200}), stats{Ready: 5_000}, 0},
	} {
		assert.Equal(t, tc.want, inspect.Growth(tc.minutes[:], tc.stats), name)
	}
	assert.Zero(t, inspect.Growth(nil, stats{Ready: 900}))
}
