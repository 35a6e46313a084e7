package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMedianIsTheMiddle(t *testing.T) {
	assert.Zero(t, median(nil))
	assert.Equal(t, 7.0, median([]float64{7}))
	assert.Equal(t, 2.0, median([]float64{9, 1, 2}))
	assert.Equal(t, 2.5, median([]float64{9, 1, 2, 3}))
}

func TestMedianLeavesItsArgumentAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	median(values)
	assert.Equal(t, []float64{3, 1, 2}, values)
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	values := []int{15, 20, 35, 40, 50}
	for p, want := range map[float64]int{0: 15, 0.05: 15, 0.3: 20, 0.4: 20, 0.5: 35, 0.99: 50, 1: 50} {
		assert.Equal(t, want, percentile(values, p), "p%v", p)
	}
	assert.Zero(t, percentile([]int(nil), 0.5))
}

func TestJainIsOneWhenAllGetTheSame(t *testing.T) {
	assert.InDelta(t, 1.0, jain([]int64{5, 5, 5, 5}), 1e-9)
}

func TestJainIsTheShareOfThoseServed(t *testing.T) {
	assert.InDelta(t, 0.25, jain([]int64{8, 0, 0, 0}), 1e-9)
	assert.InDelta(t, 0.5, jain([]int64{4, 4, 0, 0}), 1e-9)
	assert.InDelta(t, 36.0/42, jain([]int64{1, 2, 3}), 1e-9)
}

func TestJainOfNothingIsZero(t *testing.T) {
	assert.Zero(t, jain(nil))
	assert.Zero(t, jain([]int64{0, 0}))
}

func TestBucketsTouchAndDoNotOverlap(t *testing.T) {
	for i := range 2000 {
		assert.Equal(t, i, bucket(upperEnd(i)), "upper end of bucket %d", i)
		assert.Equal(t, i+1, bucket(upperEnd(i)+1), "first value after bucket %d", i)
	}
}

func TestHistogramPercentilesAreWithinTwoPercent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all, left, right histogram
	var values []time.Duration
	for i := range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(3*time.Millisecond))
		values = append(values, d)
		all.add(d)
		if i%3 == 0 {
			left.add(d)
		} else {
			right.add(d)
		}
	}
	left.merge(right)
	for _, p := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		exact := percentile(values, p)
		assert.InEpsilon(t, exact, all.percentile(p), 0.02, "p%v", p)
		assert.Equal(t, all.percentile(p), left.percentile(p), "p%v of two merged histograms", p)
	}
	assert.Equal(t, slices.Max(values), left.percentile(1))
	assert.EqualValues(t, len(values), left.total())
}

func TestEmptyHistogramHasZeroPercentiles(t *testing.T) {
	var h histogram
	assert.Zero(t, h.percentile(0.99))
	assert.Zero(t, h.total())
}

func TestOrderIsThatOfTheQueueBefore(t *testing.T) {
	for name, c := range map[string]struct {
		notes          []string
		wrong, longest int
	}{
		"kept":              {[]string{"a b c", "b c d", "c d", "d", "e f"}, 0, 2},
		"granted to second": {[]string{"a b c", "c b", "b"}, 1, 2},
		"overtaken":         {[]string{"a b c d", "b d c", "d c", "c"}, 1, 3},
		"forgotten":         {[]string{"a b c", "b", "d"}, 1, 2},
		"granted to nobody": {[]string{"a b", "", "b"}, 1, 1},
	} {
		wrong, longest := outOfOrder(c.notes)
		assert.Equal(t, c.wrong, wrong, name)
		assert.Equal(t, c.longest, longest, name)
	}
}
