package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDLATCH_TEST_COMMAND") != "" { // this program is the command, in a terminal that a test has made
		main()
	}
	goleak.VerifyTestMain(m)
}
