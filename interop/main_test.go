package interop_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("holder", holdUntilKilled)
	faulttest.RegisterChild("waiter", waitUntilKilled)
	faulttest.RegisterChild("adder", addInChild)
	faulttest.RunChildIfAsked()
	// A shared Java process lives as long as the tests.
	code := redistest.Run(m, goleak.IgnoreAnyFunction("github.com/redlatch/redlatch/interop_test.(*java).read"))
	if !stopSharedJava() && code == 0 {
		code = 1
	}
	os.Exit(code)
}
