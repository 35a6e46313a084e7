package gridtest

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// Op is an operation on an object, and what it does to a model of it.
type Op struct {
	Name    string
	Changes bool
	Do      func(ctx context.Context) (any, error)
	Model   func() any // the result
}

// Model runs random operations on an object and on its model, and loses the reply of every third: the results are the model's, or a
// change ends with ErrUnknown, and was made once. make chooses the arguments of an operation of each kind; state returns
// the state of the object and that of the model.
func Model(t *testing.T, p *Place, steps int, kinds []func(r *rand.Rand) Op, state func(ctx context.Context) (is, want any)) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range steps {
		n := i
		lossy := i >= 2*len(kinds) && r.IntN(3) == 0 // Redis knows the scripts from there on
		if i >= 2*len(kinds) {
			n = r.IntN(len(kinds))
		}
		op := kinds[n%len(kinds)](r)
		sent := p.Calls()
		if lossy {
			p.Lose()
		}
		got, err := op.Do(t.Context())
		if lossy && p.Calls() == sent { // it needed no call
			lossy = false
			_ = p.Redis.Ping(t.Context())
		}
		want := op.Model()
		if lossy && op.Changes {
			require.ErrorIs(t, err, redlatch.ErrUnknown, "step %d: %s", i, op.Name)
		} else {
			require.NoError(t, err, "step %d: %s", i, op.Name)
			require.Equal(t, want, got, "step %d: %s", i, op.Name)
		}
		is, should := state(t.Context())
		require.Equal(t, should, is, "after step %d: %s", i, op.Name)
	}
}

// Read is an operation that changes nothing.
func Read(name string, do func(ctx context.Context) (any, error), model func() any) Op {
	return Op{Name: name, Do: do, Model: model}
}

// Change is an operation that changes the object.
func Change(name string, do func(ctx context.Context) (any, error), model func() any) Op {
	return Op{Name: name, Changes: true, Do: do, Model: model}
}

// Found is what a call returns that may find nothing.
type Found[T any] struct {
	Value T
	OK    bool
}

// Maybe returns it, of the results of a call.
func Maybe[T any](v T, ok bool, err error) (any, error) { return Found[T]{v, ok}, err }

// Any returns the results of a call.
func Any[T any](v T, err error) (any, error) { return v, err }
