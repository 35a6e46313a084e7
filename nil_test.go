package redlatch_test

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rtopic"
)

// everyMethod calls all methods of a value with good arguments, and returns the errors of those that have one, and what
// the others returned.
func everyMethod(t *testing.T, v any) (errs map[string]error, others map[string]any) {
	t.Helper()
	errs, others = map[string]error{}, map[string]any{}
	value := reflect.ValueOf(v)
	for i := range value.NumMethod() {
		method, name := value.Method(i), value.Type().Method(i).Name
		var args []reflect.Value
		for j := range method.Type().NumIn() {
			if !method.Type().IsVariadic() || j < method.Type().NumIn()-1 {
				args = append(args, goodArgument(t, method.Type().In(j)))
			}
		}
		results := method.Call(args)
		if len(results) == 0 {
			continue
		}
		last := results[len(results)-1]
		if last.Type() == reflect.TypeFor[error]() {
			errs[name], _ = last.Interface().(error)
		} else {
			others[name] = last.Interface()
		}
	}
	return errs, others
}

func goodArgument(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()
	switch of {
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(t.Context())
	case reflect.TypeFor[time.Duration]():
		return reflect.ValueOf(time.Second)
	}
	switch of.Kind() {
	case reflect.Func:
		return reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value { return []reflect.Value{reflect.Zero(of.Out(0))} })
	case reflect.Int:
		return reflect.ValueOf(1).Convert(of)
	case reflect.String:
		return reflect.ValueOf("x").Convert(of)
	case reflect.Slice:
		return reflect.MakeSlice(of, 1, 1)
	default:
		return reflect.Zero(of)
	}
}

func TestNilHoldPermitAndMessageHaveEnded(t *testing.T) {
	for what, ended := range map[any]error{
		(*rlock.Hold)(nil):                    rlock.ErrNotHeld,
		(*rsemaphore.Permit)(nil):             rsemaphore.ErrNotHeld,
		(*rdelayedqueue.Message[string])(nil): rdelayedqueue.ErrNotHeld,
	} {
		errs, others := everyMethod(t, what)
		require.GreaterOrEqual(t, len(errs), 2, "%T", what)
		for method, err := range errs {
			require.ErrorIs(t, err, ended, "%T.%s", what, method)
		}
		ctx, ok := others["Context"].(context.Context)
		require.True(t, ok, "%T", what)
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), ended, "%T", what)
		delete(others, "Context")
		for method, result := range others {
			assert.Zero(t, result, "%T.%s", what, method)
		}
	}
	var hold *rlock.Hold
	var none context.Context
	require.ErrorIs(t, hold.Unlock(none), redlatch.ErrInvalid)
	require.ErrorIs(t, hold.Extend(t.Context(), time.Millisecond), redlatch.ErrInvalid)
}

func TestZeroGoRedisClientsAndLoggersAreErrInvalid(t *testing.T) {
	for what, rdb := range map[string]redis.UniversalClient{"client": &redis.Client{}, "cluster client": &redis.ClusterClient{}} {
		_, err := redlatch.New(rdb)
		require.ErrorIs(t, err, redlatch.ErrInvalid, what)
	}
	_, err := embedded.Open(redlatch.WithLogger(&slog.Logger{}))
	require.ErrorIs(t, err, redlatch.ErrInvalid)
}

func TestNilClientIsNamedByThePanicOfEachNew(t *testing.T) {
	var none *redlatch.Client
	assert.PanicsWithValue(t, "redlatch: the client is nil", func() { rbucket.New[int](nil, "b") })
	assert.PanicsWithValue(t, "redlatch: the client is nil", func() { rbucket.New[int](none, "b") })
	assert.PanicsWithValue(t, "redlatch: the client is nil", func() { rtopic.New[int](none, "t") })
}
