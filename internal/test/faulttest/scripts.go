package faulttest

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed enter.lua
	enterSource string
	//go:embed exit.lua
	exitSource string
	//go:embed token.lua
	tokenSource string

	enterScript = redis.NewScript(enterSource)
	exitScript  = redis.NewScript(exitSource)
	tokenScript = redis.NewScript(tokenSource)
)

// witnessLifetime is how long a record outlives its last event.
const witnessLifetime = time.Hour

func enter(ctx context.Context, rdb redis.Scripter, inside, events, who string) (already int, err error) {
	keys := []string{inside, events}
	return enterScript.Run(ctx, rdb, keys, who, witnessLifetime.Milliseconds()).Int()
}

func exit(ctx context.Context, rdb redis.Scripter, inside, events, who string) error {
	return exitScript.Run(ctx, rdb, []string{inside, events}, who, witnessLifetime.Milliseconds()).Err()
}

func record(ctx context.Context, rdb redis.Scripter, events string, token int64) error {
	lifetime := witnessLifetime.Milliseconds()
	return tokenScript.Run(ctx, rdb, []string{events}, strconv.FormatInt(token, 10), lifetime).Err()
}
