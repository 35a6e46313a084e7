package rfairlock_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("rfairlock-waiter", fairWaiter)
	faulttest.RegisterChild("rfairlock-crowd", crowd)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
