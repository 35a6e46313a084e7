package faulttest_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	registerChildren()
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
