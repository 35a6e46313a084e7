package rmultilock_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // connections to servers that are down fail by the thousand
	for name, kind := range historyKinds {
		faulttest.RegisterChild(name, func(args []string) { historyChild(kind, args) })
	}
	faulttest.RegisterChild("sleeper", sleeper)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
