package main

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// median returns the middle of values, or the mean of the two in the middle; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// percentile returns the smallest of values that at least the share p of them does not exceed; 0 of none.
func percentile[T cmp.Ordered](values []T, p float64) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	return slices.Sorted(slices.Values(values))[rank(p, len(values))-1]
}

// jain returns Jain's fairness index of counts: 1 where all have the same, 1/n where one has everything.
func jain(counts []int64) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// rank returns the position, from 1, of the nearest-rank percentile p among n values.
func rank(p float64, n int) int {
	r := int(p * float64(n))
	if float64(r) < p*float64(n) {
		r++
	}
	return min(max(r, 1), n)
}

// histogram counts durations in buckets that are at most 1/64 of their value wide.
// Histograms of several processes add up, which percentiles do not.
type histogram struct {
	Counts []int64       `json:"counts"`
	Max    time.Duration `json:"max"`
}

const subBits = 6 // 64 buckets for each power of two

func (h *histogram) add(d time.Duration) {
	i := bucket(d)
	for len(h.Counts) <= i {
		h.Counts = append(h.Counts, make([]int64, i+1-len(h.Counts)+1<<subBits)...)
	}
	h.Counts[i]++
	h.Max = max(h.Max, d)
}

func (h *histogram) merge(other histogram) {
	if len(h.Counts) < len(other.Counts) {
		h.Counts = append(h.Counts, make([]int64, len(other.Counts)-len(h.Counts))...)
	}
	for i, n := range other.Counts {
		h.Counts[i] += n
	}
	h.Max = max(h.Max, other.Max)
}

func (h *histogram) total() int64 {
	var sum int64
	for _, n := range h.Counts {
		sum += n
	}
	return sum
}

// percentile returns the upper end of the bucket in which the share p is reached, and never more than the maximum.
func (h *histogram) percentile(p float64) time.Duration {
	want := int64(rank(p, int(h.total())))
	var seen int64
	for i, n := range h.Counts {
		if seen += n; seen >= want {
			return min(upperEnd(i), h.Max)
		}
	}
	return h.Max
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	exp := bits.Len64(v) - 1 - subBits
	if exp <= 0 {
		return int(v)
	}
	return exp<<subBits + int(v>>exp)
}

func upperEnd(i int) time.Duration {
	if i < 2<<subBits {
		return time.Duration(i)
	}
	exp := i>>subBits - 1
	return time.Duration((uint64(i)-uint64(exp)<<subBits+1)<<exp - 1)
}
