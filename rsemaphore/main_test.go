package rsemaphore_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("permit user", permitUser)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
