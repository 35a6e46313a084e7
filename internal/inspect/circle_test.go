package inspect_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

// scene is who holds and has waited for what, for how many seconds.
type scene struct{ inspect.Census }

func (s *scene) holds(client, kind, name string, seconds int) *scene {
	since := time.Now().Add(-time.Duration(seconds) * time.Second)
	s.Holds = append(s.Holds, inspect.Hold{Client: client, HoldInfo: redlatch.HoldInfo{Kind: kind, Name: name, Since: since}})
	return s
}

func (s *scene) waits(client, kind, name string, seconds int) *scene {
	since := time.Now().Add(-time.Duration(seconds) * time.Second)
	s.Waits = append(s.Waits, inspect.Wait{Client: client, WaitInfo: redlatch.WaitInfo{Kind: kind, Name: name, Since: since, Site: client + ".go:7"}})
	return s
}

func TestCirclesAreClientsThatWaitForEachOther(t *testing.T) {
	const lock = "lock"
	for name, tc := range map[string]struct {
		scene *scene
		want  []string
	}{
		"two": {
			new(scene).holds("a", lock, "x", 20).holds("b", "fair_lock", "y", 20).waits("a", "fair_lock", "y", 10).waits("b", lock, "x", 10),
			[]string{"a holds x and has waited for y (a.go:7); b holds y and has waited for x (b.go:7)"},
		},
		"three, and one who only waits": {
			new(scene).holds("a", lock, "x", 20).holds("b", lock, "y", 19).holds("c", lock, "z", 18).
				waits("a", lock, "y", 10).waits("b", lock, "z", 9).waits("c", lock, "x", 8).waits("d", lock, "x", 30),
			[]string{"a holds x and has waited for y (a.go:7); b holds y and has waited for z (b.go:7); c holds z and has waited for x (c.go:7)"},
		},
		"two that share two holds": {
			new(scene).holds("a", lock, "w", 20).holds("b", lock, "x", 19).holds("c", lock, "y", 18).holds("d", lock, "z", 17).
				waits("a", lock, "x", 10).waits("a", lock, "z", 9).waits("b", lock, "y", 8).waits("c", lock, "w", 7).waits("d", lock, "y", 6),
			[]string{
				"a holds w and has waited for z (a.go:7); d holds z and has waited for y (d.go:7); c holds y and has waited for w (c.go:7)",
				"b holds x and has waited for y (b.go:7); c holds y and has waited for w (c.go:7); a holds w and has waited for x (a.go:7)",
			},
		},
		"two readers": {
			new(scene).holds("a", "rw_lock", "x", 20).holds("b", "rw_lock", "x", 19).holds("c", lock, "y", 18).
				waits("a", lock, "y", 10).waits("b", lock, "y", 9).waits("c", "rw_lock", "x", 8),
			[]string{
				"a holds x and has waited for y (a.go:7); c holds y and has waited for x (c.go:7)",
				"b holds x and has waited for y (b.go:7); c holds y and has waited for x (c.go:7)",
			},
		},
		"two goroutines of one client": {
			new(scene).holds("a", lock, "x", 20).holds("a", lock, "z", 20).holds("b", lock, "y", 20).
				waits("a", lock, "y", 10).waits("b", lock, "z", 10).waits("a", lock, "x", 10),
			[]string{
				"a holds x and has waited for y (a.go:7); b holds y and has waited for z (b.go:7); a holds z and has waited for x (a.go:7)",
				"a holds x and has waited for x (a.go:7)",
			},
		},
		"two, with more calls that wait in each": {
			new(scene).holds("a", lock, "x", 20).holds("b", lock, "y", 20).
				waits("a", lock, "x", 10).waits("a", lock, "y", 9).waits("b", lock, "y", 10).waits("b", lock, "x", 9),
			[]string{
				"a holds x and has waited for y (a.go:7); b holds y and has waited for x (b.go:7)",
				"a holds x and has waited for x (a.go:7)",
			},
		},
		"itself":           {new(scene).holds("a", lock, "x", 20).waits("a", lock, "x", 10), []string{"a holds x and has waited for x (a.go:7)"}},
		"a chain":          {new(scene).holds("a", lock, "x", 20).holds("b", lock, "y", 20).waits("b", lock, "x", 10).waits("c", lock, "y", 10), nil},
		"a short wait":     {new(scene).holds("a", lock, "x", 20).holds("b", lock, "y", 20).waits("a", lock, "y", 10).waits("b", lock, "x", 1), nil},
		"it waited before": {new(scene).holds("a", lock, "x", 20).holds("b", lock, "y", 5).waits("a", lock, "y", 10).waits("b", lock, "x", 10), nil},
		"a turn of others": {new(scene).holds("a", lock, "x", 0).waits("a", lock, "x", 10), nil},
		"permits": {
			new(scene).holds("a", "permits", "x", 20).holds("b", lock, "y", 20).waits("a", lock, "y", 10).waits("b", "permits", "x", 10), nil,
		},
	} {
		var got []string
		since := regexp.MustCompile(` \d+s`)
		for _, c := range tc.scene.Circles() {
			got = append(got, since.ReplaceAllString(c.String(), ""))
			for _, l := range c {
				assert.True(t, c.Has(l.Hold.Name), name)
			}
			assert.False(t, c.Has("other"), name)
		}
		assert.Equal(t, tc.want, got, name)
	}
}

// Whoever may publish can forge answers.
func TestForgedAnswersMakeFewCirclesSoon(t *testing.T) {
	s := new(scene)
	for client := range 50 {
		for lock := range 1000 {
			s.holds(fmt.Sprint("c", client), "lock", fmt.Sprint(lock), 30).waits(fmt.Sprint("c", client), "lock", fmt.Sprint(lock), 10)
		}
	}
	assert.Len(t, s.Circles(), 10)

	s = new(scene) // without a circle, each of 25,000 holds leads to as many others
	for range 25_000 {
		s.holds("a", "lock", "x", 30).holds("b", "lock", "y", 30)
	}
	s.waits("a", "lock", "y", 10).waits("c", "lock", "x", 10)
	began := time.Now()
	assert.Empty(t, s.Circles())
	assert.Less(t, time.Since(began), 10*time.Second, "without a limit it is over half a minute")
}

func TestLossesNameTheFailoverThatWasNear(t *testing.T) {
	at := time.Now()
	all := inspect.Losses(redlatch.ClientReport{
		ID:        "a",
		Losses:    []redlatch.LossInfo{{Name: "near", At: at}, {Name: "far", At: at.Add(-time.Minute)}},
		Failovers: []redlatch.FailoverInfo{{Node: "redis:7103", At: at.Add(7 * time.Second)}},
	})
	require.Len(t, all, 2)
	assert.Equal(t, []string{"a", "redis:7103", ""}, []string{all[0].Client, all[0].Failover, all[1].Failover})
}

func TestTextsAreShort(t *testing.T) {
	assert.Equal(t, "1 client waits", inspect.Waiting(1))
	assert.Equal(t, "0 clients wait", inspect.Waiting(0))
	assert.Equal(t, "who waits is not known", inspect.Waiting(-1))
	assert.Equal(t, "12", inspect.Number(12))
	assert.Equal(t, "?", inspect.Number(-1))
	assert.Equal(t, "panic: no hope …", inspect.FirstLine("panic: no hope\ngoroutine 1"))
	assert.Equal(t, "no luck", inspect.FirstLine("no luck\n"))
}
