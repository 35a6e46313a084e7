package rlatch_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("latch user", latchUser)
	faulttest.RegisterChild("rlatch-awaiters", awaiters)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
