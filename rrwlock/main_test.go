package rrwlock_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("rrwlock-holder", holdUntilKilled)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
