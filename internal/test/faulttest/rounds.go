package faulttest

import (
	"os"
	"strconv"
	"testing"
)

// Rounds returns how often a test does something: more often when REDLATCH_SOAK=1 asks for the long run. The number becomes
// an attribute of the test, which make soak adds up.
func Rounds(tb testing.TB, usual, long int) int {
	n := usual
	if Soaking() {
		n = long
	}
	tb.Attr("rounds", strconv.Itoa(n))
	return n
}

// Soaking reports whether the long run is asked for.
func Soaking() bool { return os.Getenv("REDLATCH_SOAK") == "1" }
