package rrwlock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// F21
func TestThousandLocalWritersEnterOnceEachForFewCommands(t *testing.T) {
	for title, opts := range map[string][]redlatch.Option{
		"with a hand-off budget": nil,
		"without":                {redlatch.WithHandoffBudget(0)},
	} {
		t.Run(title, func(t *testing.T) {
			assert.LessOrEqual(t, locktest.Crowd(t, locktest.Env{New: writer}, 1000, opts...), 3.0)
		})
	}
}

// F21
func TestThousandLocalReadersEnterTogetherForOneTryEach(t *testing.T) {
	// To get in and to leave: two, and a little for connections. All stand in line while the writer is inside.
	assert.LessOrEqual(t, locktest.Crowd(t, locktest.Env{New: reader, Rival: writer}, 1000), 2.25)
}
