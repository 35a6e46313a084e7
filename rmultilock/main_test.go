package rmultilock_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // connections to servers that are down fail by the thousand
	os.Exit(redistest.Run(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
