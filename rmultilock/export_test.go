package rmultilock

import (
	"context"

	"github.com/redlatch/redlatch/rlock"
)

// Holder asks who holds the first of the locks that is held, as a refused call with [rlock.WithHolder] does.
func Holder(ctx context.Context, l *Lock) (rlock.Info, error) {
	info, err := l.holder(ctx)
	return rlock.Info(info), err
}
