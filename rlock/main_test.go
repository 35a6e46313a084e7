package rlock_test

import (
	"flag"
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// atOnce is how many tests run in parallel, unless -parallel says otherwise: most of them wait most of the time, for leases
// to end and for what has to come.
const atOnce = "6"

func TestMain(m *testing.M) {
	registerChildren()
	faulttest.RunChildIfAsked()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(redistest.Run(m))
}
