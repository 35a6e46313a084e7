package ronce_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/ronce"
)

const (
	redisKey = "redlatch_once:4:{hook:k}" // of the key k
	lease    = 30 * time.Second
)

var errBoom = errors.New("boom")

func get(p *locktest.Peer, opts ...ronce.Option) *ronce.Once[string] {
	return redlatch.GetOnce[string](p.Client, "hook", opts...)
}

// made is what a call of Do returned.
type made struct {
	value  string
	shared bool
	err    error
}

// do begins a call for the key k, which has begun to wait, or to run, when it returns.
func do(ctx context.Context, o *ronce.Once[string], fn func(context.Context) (string, error)) <-chan made {
	done := begin(ctx, o, fn)
	synctest.Wait()
	return done
}

// begin begins a call as do does, and waits for nothing: a function that runs may use it.
func begin(ctx context.Context, o *ronce.Once[string], fn func(context.Context) (string, error)) <-chan made {
	done := make(chan made, 1)
	go func() {
		var m made
		m.value, m.shared, m.err = o.Do(ctx, "k", fn)
		done <- m
	}()
	return done
}

// returns is a function that returns at once.
func returns(value string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return value, err }
}

// after is a function that returns after some time, whatever becomes of its context.
func after(d time.Duration, value string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		time.Sleep(d)
		return value, err
	}
}

// never is a function that must not run.
func never(t *testing.T) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		assert.Fail(t, "it ran")
		return "", nil
	}
}

// kept requires that the value is kept.
func kept(t *testing.T, o *ronce.Once[string], want string) {
	t.Helper()
	value, ok, err := o.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, want, value)
}

// free requires that nothing is kept, and that nobody runs.
func free(t *testing.T, b *locktest.Bubble) {
	t.Helper()
	synctest.Wait()
	assert.Empty(t, b.Keys(t))
}

// F4, F21
func TestConcurrentCallersRunOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const callers = 20
		var runs, own atomic.Int32
		var all sync.WaitGroup
		var peers []*locktest.Peer
		start := time.Now()
		for range 3 {
			p := b.Peer(t)
			peers = append(peers, p)
			o := get(p)
			for range callers {
				all.Go(func() {
					value, shared, err := o.Do(t.Context(), "k", func(context.Context) (string, error) {
						runs.Add(1)
						time.Sleep(time.Second)
						return "made", nil
					})
					assert.NoError(t, err)
					assert.Equal(t, "made", value)
					if !shared {
						own.Add(1)
					}
				})
			}
		}
		all.Wait()
		assert.Equal(t, time.Second, time.Since(start), "they are woken")
		assert.EqualValues(t, 1, runs.Load())
		assert.EqualValues(t, 1, own.Load())
		for _, p := range peers {
			assert.LessOrEqual(t, p.Scripts(), callers+10, "each asks when it comes, and one of them when there is a value")
		}
	})
}

// F19
func TestValueIsKeptForItsTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		for ttl, opts := range map[time.Duration][]ronce.Option{24 * time.Hour: nil, time.Minute: {ronce.WithTTL(time.Minute)}} {
			p := b.Peer(t)
			assert.Equal(t, made{value: "first"}, <-do(t.Context(), get(p, opts...), returns("first", nil)))
			assert.Equal(t, ttl, b.TTL(t, redisKey))
			before := p.Scripts()
			assert.Equal(t, made{value: "first", shared: true}, <-do(t.Context(), get(p), never(t)))
			assert.Equal(t, 1, p.Scripts()-before)
			time.Sleep(ttl - time.Millisecond)
			assert.Equal(t, made{value: "first", shared: true}, <-do(t.Context(), get(b.Peer(t)), never(t)))
			time.Sleep(2 * time.Millisecond)
			free(t, b)
			assert.Equal(t, made{value: "second"}, <-do(t.Context(), get(b.Peer(t)), returns("second", nil)))
			require.NoError(t, get(p).Forget(t.Context(), "k"))
		}
		free(t, b)
	})
}

func TestThoseWhoWaitedForAFailureRunInTurn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		objects := []*ronce.Once[string]{get(b.Peer(t)), get(b.Peer(t))}
		var runs, running atomic.Int32
		var calls []<-chan made
		start := time.Now()
		for i := range 8 {
			calls = append(calls, do(t.Context(), objects[i%2], func(context.Context) (string, error) {
				assert.EqualValues(t, 1, running.Add(1), "one at a time")
				defer running.Add(-1)
				time.Sleep(time.Second)
				if runs.Add(1) < 4 {
					return "half", errBoom
				}
				return "made", nil
			}))
		}
		counts := map[made]int{}
		for _, call := range calls {
			counts[<-call]++
		}
		assert.Equal(t, map[made]int{{err: errBoom}: 3, {value: "made"}: 1, {value: "made", shared: true}: 4}, counts)
		assert.Equal(t, 4*time.Second, time.Since(start))
	})
}

func TestFailureIsKeptIfAsked(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		o, other := get(b.Peer(t), ronce.WithErrors(time.Minute)), get(b.Peer(t))
		first := do(t.Context(), o, after(time.Second, "half", fmt.Errorf("charge: %w", errBoom)))
		second := do(t.Context(), other, never(t))
		own := <-first
		assert.Equal(t, made{err: own.err}, own)
		require.ErrorIs(t, own.err, errBoom)
		for _, m := range []made{<-second, <-do(t.Context(), o, never(t))} {
			assert.Equal(t, made{shared: true, err: m.err}, m)
			var failure *ronce.Error
			require.ErrorAs(t, m.err, &failure)
			assert.Equal(t, "charge: boom", failure.Text)
			assert.EqualError(t, m.err, `ronce: do "hook": charge: boom`)
		}
		_, ok, err := other.Peek(t.Context(), "k")
		require.ErrorAs(t, err, new(*ronce.Error))
		assert.True(t, ok)
		assert.Equal(t, time.Minute, b.TTL(t, redisKey))
		time.Sleep(time.Minute + time.Millisecond)
		assert.Equal(t, made{value: "made"}, <-do(t.Context(), other, returns("made", nil)))
		require.NoError(t, o.Forget(t.Context(), "k"))

		ctx, cancel := context.WithCancel(t.Context())
		canceled := do(ctx, o, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		cancel()
		assert.Equal(t, made{err: context.Canceled}, <-canceled)
		free(t, b)

		long := errors.New(strings.Repeat("é", 3<<10))
		assert.Equal(t, made{err: long}, <-do(t.Context(), o, returns("", long)))
		_, _, err = o.Peek(t.Context(), "k")
		var failure *ronce.Error
		require.ErrorAs(t, err, &failure)
		assert.Equal(t, strings.Repeat("é", 2<<10), failure.Text)
	})
}

// unprintable is an error whose Error panics on a nil pointer.
type unprintable struct{ text string }

func (f *unprintable) Error() string { return f.text }

// F5
func TestFailureWhoseTextPanicsIsKept(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		o := get(b.Peer(t), ronce.WithErrors(time.Minute))
		var none *unprintable
		assert.Equal(t, made{err: none}, <-do(t.Context(), o, returns("", none)))
		_, ok, err := o.Peek(t.Context(), "k")
		var kept *ronce.Error
		require.ErrorAs(t, err, &kept)
		assert.Equal(t, "<nil>", kept.Text)
		assert.True(t, ok)
	})
}

func TestPanicFreesTheKeyAndGoesOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		o := get(b.Peer(t))
		var next <-chan made
		require.PanicsWithValue(t, "boom", func() {
			_, _, _ = o.Do(t.Context(), "k", func(context.Context) (string, error) {
				next = begin(t.Context(), get(b.Peer(t)), returns("made", nil))
				time.Sleep(time.Second) // it waits
				panic("boom")
			})
		})
		assert.Equal(t, made{value: "made"}, <-next)
		require.NoError(t, o.Forget(t.Context(), "k"))

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _, _ = o.Do(t.Context(), "k", func(context.Context) (string, error) {
				runtime.Goexit()
				return "", nil
			})
		}()
		<-ended
		free(t, b)
	})
}

func TestClaimIsRenewedWhileTheFunctionRuns(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		first := do(t.Context(), get(b.Peer(t)), after(5*time.Minute, "made", nil))
		second := do(t.Context(), get(b.Peer(t)), never(t))
		assert.Equal(t, made{value: "made"}, <-first)
		assert.Equal(t, made{value: "made", shared: true}, <-second)
	})
}

// The process of the first runner is cut off: its lease ends, and its function learns of that before another one runs.
//
// F1, F16
func TestRunnerThatIsCutOffLosesItsClaimFirst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var ended time.Time
		first := do(t.Context(), get(p), func(ctx context.Context) (string, error) {
			<-ctx.Done()
			ended = time.Now()
			assert.ErrorIs(t, context.Cause(ctx), ronce.ErrLost)
			return "late", nil
		})
		p.Blackhole(true)
		start := time.Now()
		second := do(t.Context(), get(b.Peer(t)), func(context.Context) (string, error) {
			assert.False(t, ended.IsZero())
			return "made", nil
		})
		assert.Equal(t, made{value: "made"}, <-second)
		assert.WithinDuration(t, start.Add(lease), time.Now(), 10*time.Millisecond)
		lost := <-first
		require.ErrorIs(t, lost.err, ronce.ErrLost)
		assert.Equal(t, made{err: lost.err}, lost)
		p.Blackhole(false)
		time.Sleep(time.Minute) // what the first one left in the background
		kept(t, get(b.Peer(t)), "made")
		assert.Greater(t, b.TTL(t, redisKey), 23*time.Hour)
	})
}

// F1, F5
func TestRunnerThatLostItsClaimWritesOverNothing(t *testing.T) {
	for what, next := range map[string]func(t *testing.T, b *locktest.Bubble) (want func()){
		"nobody runs": func(t *testing.T, b *locktest.Bubble) func() {
			return func() { free(t, b) }
		},
		"another one runs": func(t *testing.T, b *locktest.Bubble) func() {
			other := do(t.Context(), get(b.Peer(t)), after(time.Second, "made", nil))
			return func() { assert.Equal(t, made{value: "made"}, <-other) }
		},
		"another one is kept": func(t *testing.T, b *locktest.Bubble) func() {
			assert.Equal(t, made{value: "made"}, <-do(t.Context(), get(b.Peer(t)), returns("made", nil)))
			return func() { kept(t, get(b.Peer(t)), "made") }
		},
	} {
		for how, failure := range map[string]error{"value": nil, "failure": errBoom} {
			t.Run(what+", "+how, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					o := get(b.Peer(t), ronce.WithErrors(time.Minute))
					first := do(t.Context(), o, after(time.Second/2, "late", failure))
					b.Delete(t, redisKey)
					want := next(t, b)
					m := <-first
					require.ErrorIs(t, m.err, ronce.ErrLost)
					assert.Equal(t, failure != nil, errors.Is(m.err, errBoom))
					assert.Equal(t, made{err: m.err}, m)
					want()
				})
			})
		}
	}
}

// The claim ends on this side before it ends in Redis, which would still take the value.
//
// F1, F25
func TestValueThatComesTooLateIsNotKept(t *testing.T) {
	const ends = lease - lease/100
	for what, wait := range map[string]func(ctx context.Context){
		"after the context has ended": func(ctx context.Context) { <-ctx.Done() },
		"at that moment":              func(context.Context) { time.Sleep(ends) },
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				start := time.Now()
				m := <-do(t.Context(), get(p), func(ctx context.Context) (string, error) {
					p.Blackhole(true)
					wait(ctx)
					p.Blackhole(false)
					return "late", nil
				})
				require.ErrorIs(t, m.err, ronce.ErrLost)
				assert.Equal(t, made{err: m.err}, m)
				assert.Equal(t, made{value: "made"}, <-do(t.Context(), get(b.Peer(t)), returns("made", nil)))
				assert.Less(t, time.Since(start), lease, "the key was free before the lease ended in Redis")
			})
		})
	}
}

func TestLossEndsTheContextAtTheNextRenewal(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		first := do(t.Context(), get(b.Peer(t)), func(ctx context.Context) (string, error) {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), ronce.ErrLost)
			return "", ctx.Err()
		})
		start := time.Now()
		b.Delete(t, redisKey)
		m := <-first
		require.ErrorIs(t, m.err, ronce.ErrLost)
		require.ErrorIs(t, m.err, context.Canceled)
		assert.LessOrEqual(t, time.Since(start), lease/3+time.Second)
		free(t, b)
	})
}

func TestForgetLetsTheRunGoOnAndKeepsNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		o := get(p)
		require.NoError(t, o.Forget(t.Context(), "k"), "nothing to forget")
		free(t, b)
		first := do(t.Context(), o, after(time.Minute, "old", nil))
		second := do(t.Context(), get(b.Peer(t)), after(time.Second, "new", nil))
		third := do(t.Context(), o, after(time.Second, "new", nil))
		require.NoError(t, o.Forget(t.Context(), "k"))
		require.NoError(t, o.Forget(t.Context(), "k"), "once more")
		_, ok, err := o.Peek(t.Context(), "k")
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, made{value: "old"}, <-first)
		one, two := <-second, <-third
		assert.Equal(t, "new", one.value)
		assert.Equal(t, "new", two.value)
		assert.NotEqual(t, one.shared, two.shared, "one of those who waited ran, and the other has its value")
		kept(t, o, "new")
		require.NoError(t, o.Forget(t.Context(), "k"))
		free(t, b)
	})
}

func TestPeekDoesNotWait(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		o := get(b.Peer(t))
		for range 2 {
			value, ok, err := o.Peek(t.Context(), "k")
			require.NoError(t, err)
			assert.False(t, ok)
			assert.Empty(t, value)
			do(t.Context(), o, after(time.Second, "made", nil))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		kept(t, get(b.Peer(t)), "made")
	})
}

func TestValueThatCannotBeKeptFreesTheKey(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		o := redlatch.GetOnce[string](p.Client, "hook", ronce.WithCodec(codec.Text{}))
		most := strings.Repeat("x", ronce.MaxValue)
		m := <-do(t.Context(), o, returns(most+"x", nil))
		require.ErrorIs(t, m.err, redlatch.ErrInvalid)
		assert.Equal(t, made{err: m.err}, m)
		free(t, b)
		assert.Equal(t, made{value: most}, <-do(t.Context(), o, returns(most, nil)))
		kept(t, o, most)

		_, _, err := redlatch.GetOnce[chan int](p.Client, "channels").Do(t.Context(), "k", func(context.Context) (chan int, error) { return make(chan int), nil })
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.ErrorIs(t, err, codec.ErrEncode)
		assert.Len(t, b.Keys(t), 1)
	})
}

func TestKeptValueThatCannotBeDecodedStays(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		assert.Equal(t, made{value: "4111secret"}, <-do(t.Context(), get(p), returns("4111secret", nil)))
		numbers := redlatch.GetOnce[int](p.Client, "hook")
		n, shared, err := numbers.Do(t.Context(), "k", func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, codec.ErrDecode)
		assert.NotContains(t, err.Error(), "4111")
		assert.True(t, shared)
		assert.Zero(t, n)
		_, ok, err := numbers.Peek(t.Context(), "k")
		require.ErrorIs(t, err, codec.ErrDecode)
		assert.True(t, ok)
		kept(t, get(p), "4111secret")
		require.NoError(t, numbers.Forget(t.Context(), "k"))
		free(t, b)
	})
}

// F3, F16
func TestContextEndsAWaitAndNotAResult(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := do(ctx, get(p), func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "made", nil
		})
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		start := time.Now()
		for _, o := range []*ronce.Once[string]{get(p), get(b.Peer(t))} {
			waits := do(short, o, never(t))
			m := <-waits
			require.ErrorIs(t, m.err, context.DeadlineExceeded)
			require.NotErrorIs(t, m.err, redlatch.ErrUnavailable)
			assert.Equal(t, made{err: m.err}, m)
		}
		assert.Equal(t, time.Second, time.Since(start))
		cancel()
		assert.Equal(t, made{value: "made"}, <-first, "its function did all the same")
		kept(t, get(p), "made")
		m := <-do(ctx, get(p), never(t))
		require.ErrorIs(t, m.err, context.Canceled, "a done context wins")
	})
}

// F16
func TestCloseEndsWaitsAndContexts(t *testing.T) {
	for what, end := range map[string]struct {
		run  func(ctx context.Context) (string, error)
		want string // what is kept
	}{
		"a run that ends within the grace": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return "made", nil
		}, "made"},
		"a run that goes on": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return "late", nil
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				o := get(p)
				first := do(t.Context(), o, func(ctx context.Context) (string, error) {
					value, err := end.run(ctx)
					assert.ErrorIs(t, context.Cause(ctx), redlatch.ErrClosed)
					return value, err
				})
				second := do(t.Context(), o, never(t))
				require.NoError(t, p.Close())
				require.ErrorIs(t, (<-second).err, redlatch.ErrClosed)
				m := <-first
				if end.want != "" {
					assert.Equal(t, made{value: end.want}, m)
					kept(t, get(b.Peer(t)), end.want)
				} else {
					require.ErrorIs(t, m.err, redlatch.ErrClosed)
					assert.Equal(t, made{err: m.err}, m)
					free(t, b)
				}
				require.ErrorIs(t, (<-do(t.Context(), o, never(t))).err, redlatch.ErrClosed)
				_, _, err := o.Peek(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrClosed)
				require.ErrorIs(t, o.Forget(t.Context(), "k"), redlatch.ErrClosed)
			})
		})
	}
}

func TestKeysAndNamesAreApart(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var acquired []string
		p := b.Peer(t, redlatch.WithNamePrefix("app:"), redlatch.WithObserver(redlatch.Observer{
			AcquireEnd: func(_ context.Context, e redlatch.AcquireEndEvent) { acquired = append(acquired, e.Kind+" "+e.Name) },
		}))
		for _, one := range [][2]string{{"a", "b:c"}, {"a:b", "c"}, {"{shop}", "}{\n"}, {"x{shop}", "k"}} {
			o := redlatch.GetOnce[string](p.Client, one[0])
			assert.Equal(t, one[0], o.Name())
			value, shared, err := o.Do(t.Context(), one[1], func(context.Context) (string, error) {
				holds := p.Holds()
				if assert.Len(t, holds, 1) {
					assert.Equal(t, []string{"once", one[0]}, []string{holds[0].Kind, holds[0].Name})
				}
				assert.Equal(t, "other", (<-begin(t.Context(), get(p), returns("other", nil))).value, "it does not wait")
				return one[1], o.Forget(t.Context(), "unknown")
			})
			require.NoError(t, err)
			assert.False(t, shared)
			assert.Equal(t, one[1], value)
		}
		assert.ElementsMatch(t, []string{
			"redlatch_once:5:{app:a:b:c}", "redlatch_once:7:{app:a:b:c}", "redlatch_once:10:app:{shop}:}{\n", "redlatch_once:11:app:x{shop}:k",
			"redlatch_once:8:{app:hook:k}",
		}, b.Keys(t))
		assert.Subset(t, acquired, []string{"once a", "once a:b", "once {shop}", "once x{shop}", "once hook"})
	})
}

// F23
func TestBadInputIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var none *codec.JSON
		for what, o := range map[string]*ronce.Once[string]{
			"no name":     redlatch.GetOnce[string](p.Client, ""),
			"bad name":    redlatch.GetOnce[string](p.Client, "{"),
			"nil option":  get(p, nil),
			"nil codec":   get(p, ronce.WithCodec(nil)),
			"none codec":  get(p, ronce.WithCodec(none)),
			"no time":     get(p, ronce.WithTTL(0)),
			"long time":   get(p, ronce.WithTTL(11*365*24*time.Hour)),
			"short error": get(p, ronce.WithErrors(time.Millisecond)),
		} {
			require.ErrorIs(t, (<-do(t.Context(), o, never(t))).err, redlatch.ErrInvalid, what)
			_, _, err := o.Peek(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrInvalid, what)
			require.ErrorIs(t, o.Forget(t.Context(), "k"), redlatch.ErrInvalid, what)
		}
		o := get(p)
		var noContext context.Context
		for what, call := range map[string]func() (string, bool, error){
			"no key":     func() (string, bool, error) { return o.Do(t.Context(), "", never(t)) },
			"long key":   func() (string, bool, error) { return o.Do(t.Context(), strings.Repeat("k", 513), never(t)) },
			"no fn":      func() (string, bool, error) { return o.Do(t.Context(), "k", nil) },
			"no context": func() (string, bool, error) { return o.Do(noContext, "k", never(t)) },
			"its own key": func() (string, bool, error) {
				return o.Do(t.Context(), "k", func(ctx context.Context) (string, error) {
					value, _, err := o.Do(ctx, "other", returns("other", nil)) // which is another matter
					assert.NoError(t, err)
					assert.Equal(t, "other", value)
					_, _, err = o.Do(ctx, "k", never(t))
					return "", err
				})
			},
		} {
			_, _, err := call()
			require.ErrorIs(t, err, redlatch.ErrInvalid, what)
		}
		require.NoError(t, o.Forget(t.Context(), "other"))
		free(t, b)
		for _, spoil := range []func(){
			func() { require.NoError(t, b.Redis.Set(t.Context(), redisKey, "text", 0).Err()) },
			func() { require.NoError(t, b.Redis.HSet(t.Context(), redisKey, "field", "text").Err()) },
		} {
			spoil()
			require.ErrorIs(t, (<-do(t.Context(), o, never(t))).err, redlatch.ErrWrongType)
			b.Delete(t, redisKey)
		}
	})
}
