package redlatch

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// dialTimeout bounds the dial of a TLS connection whose URL has no dial_timeout, as go-redis bounds others.
const dialTimeout = 5 * time.Second

// Open connects to the Redis at a URL and returns a client whose Close also closes the connection. URLs are those of
// go-redis: redis://, rediss:// and unix://, with addr=host:port parameters for a cluster, and with master_name=name
// for Sentinel. A bad URL or option returns [ErrInvalid].
//
// It waits for the first reply of Redis until ctx is done, or for the call timeout of 10 s if ctx has no deadline (see
// [WithCallTimeout]). If Redis cannot be reached or does not answer, it returns [ErrUnavailable], joined with the
// connection's error. It fails if Redis rejects the password, and if [Check] does: the server does not know all commands
// of the library, or the user may not run them or use its channels. The error names them. After an error nothing is left
// open. If Redis may evict keys, and the user may read the policy, it logs a warning.
//
// Its connections have the id of the client as their name, for CLIENT LIST, unless the URL has a client_name or the user
// may not run CLIENT SETNAME.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Client, error) {
	c, err := open(ctx, rawURL, opts)
	if err != nil {
		return nil, fmt.Errorf("redlatch: open: %w", err)
	}
	return c, nil
}

func open(ctx context.Context, rawURL string, opts []Option) (*Client, error) {
	config, err := configure(opts)
	if err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, core.ErrNilContext
	}
	config.ID = config.NewID()
	var closed atomic.Bool
	rdb, err := dial(rawURL, config.ID, &closed)
	if err != nil {
		return nil, err
	}
	c := newClient(rdb, config)
	after := c.core.OnClosed
	c.core.OnClosed = func() error {
		closed.Store(true)
		err := rdb.Close()
		if after != nil {
			err = cmp.Or(err, after())
		}
		return err
	}
	policy, err := c.check(ctx, rdb)
	if err != nil {
		return nil, cmp.Or(err, c.Close())
	}
	if policy != "noeviction" {
		c.core.Logger.Warn("redlatch: Redis may evict locks, set it to noeviction", "maxmemory_policy", policy)
	}
	return c, nil
}

// dial returns a go-redis client for a URL, whose connections have the name, unless the URL has one. It makes none once
// closed is set. Errors do not repeat the URL, which may hold a password.
func dial(rawURL, name string, closed *atomic.Bool) (redis.UniversalClient, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: the URL cannot be parsed", errs.ErrInvalid)
	}
	switch q := u.Query(); {
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, badURL(u, err)
		}
		o.OnConnect = naming(o.ClientName, name, closed)
		o.Dialer = secureDialer(o.TLSConfig, o.DialTimeout)
		return redis.NewFailoverClient(o), nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, badURL(u, err)
		}
		o.ContextTimeoutEnabled = true
		o.OnConnect = naming(o.ClientName, name, closed)
		o.Dialer = secureDialer(o.TLSConfig, o.DialTimeout)
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, badURL(u, err)
	}
	o.OnConnect = naming(o.ClientName, name, closed)
	o.Dialer = secureDialer(o.TLSConfig, o.DialTimeout)
	return redis.NewClient(o), nil
}

// secureDialer returns a dialer of TLS connections that ends with its context, which go-redis's own does not; nil without TLS.
func secureDialer(config *tls.Config, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if config == nil {
		return nil
	}
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: cmp.Or(max(timeout, 0), dialTimeout)}, Config: config}
	return d.DialContext
}

// naming returns what gives a new connection its name, unless given is one already. A connection whose user may not name
// it has none: go-redis would refuse it. Once closed is set, it refuses connections itself: a dial that goes on when a
// client behind Sentinel is closed makes go-redis below v9.23 look for the master, and then listen to that Sentinel for ever.
func naming(given, name string, closed *atomic.Bool) func(context.Context, *redis.Conn) error {
	var refused atomic.Bool // asked once, it does not fill the server's log of refusals
	return func(ctx context.Context, conn *redis.Conn) error {
		if closed.Load() {
			return redis.ErrClosed
		}
		if given != "" || refused.Load() {
			return nil
		}
		err := conn.ClientSetName(ctx, name).Err()
		if answer := redis.Error(nil); errors.As(err, &answer) {
			refused.Store(true)
			return nil
		}
		return err
	}
}

func badURL(u *url.URL, err error) error {
	text := err.Error()
	if password, ok := u.User.Password(); ok && password != "" && strings.Contains(text, password) {
		return fmt.Errorf("%w: go-redis cannot parse the URL", errs.ErrInvalid)
	}
	return fmt.Errorf("%w: %s", errs.ErrInvalid, text)
}

// greet waits for an answer or for ctx, also if the connection hangs, and returns the eviction policy of Redis, or of
// one node of a cluster.
func greet(ctx context.Context, rdb redis.UniversalClient) (policy string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	answer := make(chan error, 1) // the goroutine ends when the connection is closed or times out
	var info string               // read after the answer
	go func() {
		// Not in one pipeline: there go-redis does not return the error of a failed login.
		err := rdb.Ping(ctx).Err()
		if err == nil {
			info = rdb.Info(ctx, "memory").Val() // empty if the user has no permission
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return evictionPolicy(info), err
	case <-ctx.Done():
		return "", script.ErrNoAnswer
	}
}

// evictionPolicy also returns "noeviction" if Redis has no memory limit, or reports no policy. It parses the lines
// itself: go-redis's parser of INFO panics if a line precedes the first heading.
func evictionPolicy(info string) string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	if policy := fields["maxmemory_policy"]; policy != "" && fields["maxmemory"] != "0" {
		return policy
	}
	return "noeviction"
}
