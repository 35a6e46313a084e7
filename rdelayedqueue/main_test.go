package rdelayedqueue_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("worker", worker)
	faulttest.RegisterChild("producer", producer)
	faulttest.RegisterChild("job user", jobUser)
	faulttest.RegisterChild("bounded user", boundedUser)
	faulttest.RegisterChild("stopped consumer", stoppedConsumer)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
