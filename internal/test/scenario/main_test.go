// Package scenario_test uses many objects of a client together, under the faults that Redis, its users and their machines meet.
package scenario_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

const (
	lease = 30 * time.Second // of a client without options
	grace = 5 * time.Second  // the same
	tail  = 3 * time.Second  // that Close may take beyond the grace
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("sleeper", sleeper)
	faulttest.RegisterChild("crowd", crowdProcess)
	faulttest.RegisterChild("near reader", nearReader)
	faulttest.RunChildIfAsked()
	if err := os.Chdir("../../.."); err != nil { // to the documents and scripts that some tests read
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(redistest.Run(m))
}
