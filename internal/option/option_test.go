package option_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
)

type options struct{ set []int }

type choice interface{ set(o *options) }

type number int

func (n number) set(o *options) { o.set = append(o.set, int(n)) }

func TestOptionsApplyInOrder(t *testing.T) {
	var o options
	require.NoError(t, option.Apply([]choice{number(1), number(0), number(2)}, &o, choice.set))
	assert.Equal(t, []int{1, 0, 2}, o.set)
}

func TestNilOptionIsInvalid(t *testing.T) {
	var o options
	err := option.Apply([]choice{number(1), nil, number(2)}, &o, choice.set)
	require.ErrorIs(t, err, errs.ErrNilOption)
	require.ErrorIs(t, err, errs.ErrInvalid)
	assert.Equal(t, []int{1}, o.set, "nothing after it is applied")
}

func TestNoOptionsChangeNothing(t *testing.T) {
	var o options
	require.NoError(t, option.Apply[choice](nil, &o, choice.set))
	assert.Empty(t, o.set)
}
