package rcache_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/gridtest"
)

// answer is what the source says of a key.
type answer struct {
	v   int
	err error
}

// is reports whether a call that returned v and err has given the answer.
func (a answer) is(v int, err error) bool {
	var failure *rcache.LoadError
	switch {
	case a.err == nil:
		return err == nil && v == a.v
	case errors.Is(a.err, rcache.ErrNotFound):
		return errors.Is(err, rcache.ErrNotFound)
	}
	return errors.Is(err, a.err) || errors.As(err, &failure) && failure.Text == a.err.Error()
}

const (
	modelTTL      = time.Minute
	modelMissTTL  = 10 * time.Second
	modelErrorTTL = 5 * time.Second
	rounding      = 2 * time.Millisecond // of the times in Redis
)

// ttl is for how long the answer is kept.
func (a answer) ttl() time.Duration {
	switch {
	case a.err == nil:
		return modelTTL
	case errors.Is(a.err, rcache.ErrNotFound):
		return modelMissTTL
	}
	return modelErrorTTL
}

// keptAnswer was kept at a time between two.
type keptAnswer struct {
	answer
	from, to time.Time
}

// modelled is a cache of two clients, and the model of it.
type modelled struct {
	t      *testing.T
	r      *rand.Rand
	caches [2]*rcache.Cache[string, int]

	mu      sync.Mutex // guards what follows
	version int
	source  map[string]answer
	kept    map[string]*keptAnswer
	loads   map[string]int
	running map[string]int
}

func (m *modelled) load(_ context.Context, k string) (int, error) {
	m.mu.Lock()
	m.loads[k]++
	m.running[k]++
	assert.Equal(m.t, 1, m.running[k], "loads of %s at a time", k)
	a := m.source[k]
	m.mu.Unlock()
	<-time.After(2 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[k]--
	return a.v, a.err
}

func (m *modelled) cache() *rcache.Cache[string, int] { return m.caches[m.r.IntN(len(m.caches))] }

// next is an answer that nobody has got yet.
func (m *modelled) next(failing bool) answer {
	m.version++
	switch n := m.r.IntN(6); {
	case failing && n == 0:
		return answer{err: errBoom}
	case failing && n == 1:
		return answer{err: rcache.ErrNotFound}
	}
	return answer{v: m.version}
}

// got judges what calls returned for a key that began at a time, after a number of loads, and notes what is kept now.
func (m *modelled) got(k string, began time.Time, before int, judge func(a answer) bool) {
	m.t.Helper()
	now, is := time.Now(), m.kept[k]
	switch m.loads[k] - before {
	case 0:
		require.NotNil(m.t, is, "%s was not kept, nor loaded", k)
		require.False(m.t, began.After(is.to.Add(is.ttl()+rounding)), "%s was kept for too long", k)
		require.True(m.t, judge(is.answer), "%s: not what was kept", k)
	case 1:
		require.True(m.t, is == nil || !now.Before(is.from.Add(is.ttl()-rounding)), "%s was not kept long enough", k)
		m.kept[k] = &keptAnswer{m.source[k], began, now}
		require.True(m.t, judge(m.source[k]), "%s: not what was loaded", k)
	default:
		require.Fail(m.t, "loads", "%s was loaded twice", k)
	}
}

// step makes a random operation on a key.
func (m *modelled) step(k string) {
	m.t.Helper()
	ctx, began, before := m.t.Context(), time.Now(), m.loads[k]
	switch m.r.IntN(6) {
	case 0:
		v, err := m.cache().Get(ctx, k)
		m.got(k, began, before, func(a answer) bool { return a.is(v, err) })
	case 1:
		m.together(k)
	case 2:
		m.getAll()
	case 3:
		v, ok, err := m.cache().Peek(ctx, k)
		is := m.kept[k]
		switch {
		case is == nil || began.After(is.to.Add(is.ttl()+rounding)):
			require.NoError(m.t, err)
			require.False(m.t, ok, "%s is not kept", k)
		case time.Now().Before(is.from.Add(is.ttl() - rounding)):
			require.Equal(m.t, is.err == nil, ok, k)
			require.True(m.t, is.is(v, err) || errors.Is(is.err, rcache.ErrNotFound) && err == nil, "%s: %d, %v", k, v, err)
		}
	case 4:
		require.NoError(m.t, m.cache().Invalidate(ctx, k))
		m.kept[k] = nil
	case 5:
		a := m.next(false)
		if err := m.cache().Set(ctx, k, a.v); err != nil {
			require.ErrorIs(m.t, err, redlatch.ErrUnknown)
		}
		m.kept[k] = &keptAnswer{a, began, time.Now()}
	}
}

// together has both clients get a key at once.
func (m *modelled) together(k string) {
	m.t.Helper()
	began, before, is := time.Now(), m.loads[k], m.kept[k]
	var all sync.WaitGroup
	for _, c := range m.caches {
		for range 2 {
			all.Go(func() {
				v, err := c.Get(m.t.Context(), k)
				m.mu.Lock()
				defer m.mu.Unlock()
				assert.True(m.t, m.source[k].is(v, err) || is != nil && is.is(v, err), "%s: %d, %v", k, v, err)
			})
		}
	}
	all.Wait()
	m.got(k, began, before, func(answer) bool { return true })
}

// getAll gets all keys of which none has failed: an error would end it with loads under way.
func (m *modelled) getAll() {
	m.t.Helper()
	var keys []string
	before := map[string]int{}
	for k, a := range m.source {
		if is := m.kept[k]; !errors.Is(a.err, errBoom) && (is == nil || !errors.Is(is.err, errBoom)) {
			keys, before[k] = append(keys, k), m.loads[k]
		}
	}
	began := time.Now()
	found, err := m.cache().GetAll(m.t.Context(), keys)
	require.NoError(m.t, err)
	for _, k := range keys {
		m.got(k, began, before[k], func(a answer) bool {
			v, ok := found[k]
			return ok == (a.err == nil) && v == a.v
		})
	}
}

// F2, F31
func TestCacheEqualsItsModel(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		other, err := redlatch.New(p.Redis, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, other.Close()) })
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		m := &modelled{
			t: t, r: rand.New(rand.NewPCG(seed, 1)),
			source: map[string]answer{"a": {}, "b": {}, "c": {}}, kept: map[string]*keptAnswer{}, loads: map[string]int{}, running: map[string]int{},
		}
		for i, c := range []*redlatch.Client{p.Client, other} {
			m.caches[i] = rcache.New(c, "modelled", m.load, rcache.WithTTL(modelTTL), rcache.WithMissTTL(modelMissTTL), rcache.WithErrors(modelErrorTTL))
		}
		for i := range 500 {
			k := string(rune('a' + m.r.IntN(len(m.source))))
			switch m.r.IntN(4) {
			case 0:
				m.source[k] = m.next(true)
			case 1:
				if p.Server == nil { // there time costs nothing
					time.Sleep(time.Duration(m.r.IntN(20)) * time.Second)
				}
			}
			if i > 50 && i%3 == 0 { // Redis knows the scripts from there on
				p.Lose()
			}
			m.step(k)
		}
	})
}
