package rlatch_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("latch user", latchUser)
	faulttest.RegisterChild("rlatch-awaiters", awaiters)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
