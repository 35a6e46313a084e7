package main

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidisSession asks for one key instead of the default majority of two in three, as the others do, and for
// NOLOOP tracking, which its documentation recommends.
type rueidisSession struct{ locker rueidislock.Locker }

func rueidisTuning() []setup {
	return []setup{
		{NoTracking: true, Retry: time.Millisecond},
		{NoTracking: true, Retry: 300 * time.Microsecond},
		{Retry: time.Second},
	}
}

func openRueidis(_ context.Context, s setup) (session, error) {
	client := rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: s.NoTracking}
	if s.Sent != nil {
		client.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.Sent.dial(ctx, "tcp", addr)
		}
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   client,
		KeyMajority:    1,
		KeyValidity:    s.Lease,
		ExtendInterval: s.Lease / 3,
		NoLoopTracking: true,
		TryNextAfter:   s.Retry,
	})
	if err != nil {
		return nil, err
	}
	return &rueidisSession{locker: locker}, nil
}

func (s *rueidisSession) handle(key string) handle { return &rueidisHandle{locker: s.locker, key: key} }

func (s *rueidisSession) close() error {
	s.locker.Close()
	return nil
}

func (s *rueidisSession) doneOf(hold any) <-chan struct{} { return hold.(*rueidisHandle).ctx.Done() }

type rueidisHandle struct {
	locker rueidislock.Locker
	key    string
	ctx    context.Context //nolint:containedctx // it is the hold that rueidislock hands out
	cancel context.CancelFunc
}

func (h *rueidisHandle) Lock(ctx context.Context) (err error) {
	h.ctx, h.cancel, err = h.locker.WithContext(ctx, h.key)
	return err
}

// Unlock waits until the key is deleted: rueidislock's CancelFunc does.
func (h *rueidisHandle) Unlock(context.Context) error {
	h.cancel()
	return nil
}
