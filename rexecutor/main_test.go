package rexecutor_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("worker", worker)
	faulttest.RegisterChild("task worker", taskWorker)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
