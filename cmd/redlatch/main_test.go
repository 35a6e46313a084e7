package main

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDLATCH_TEST_COMMAND") != "" { // this program is the command, in a terminal that a test has made
		main()
	}
	redis.SetLogger(silent{}) // as main does
	goleak.VerifyTestMain(m)
}
