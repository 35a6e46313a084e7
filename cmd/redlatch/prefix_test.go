package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestClientsOfAnotherPrefixArePointedOut(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"server":  redistest.Start(t).URL(),
		"cluster": redistest.StartCluster(t, 3).URL(),
	} {
		r := &rig{url: url}
		hint := "no client without a name prefix can be asked, only 1 client with --prefix shop:, 1 client with --prefix '{eu}:'"
		for _, prefix := range []string{"shop:", "{eu}:"} {
			_, err := r.other(t, "worker", redlatch.WithCloseGrace(0), redlatch.WithNamePrefix(prefix)).GetLock("orders").Lock(t.Context())
			require.NoError(t, err, name)
		}
		require.Eventually(t, func() bool { // they listen once they have held something for 3 s
			_, _, said := r.run(t.Context(), "ls")
			return said == "redlatch: "+hint+"\n"
		}, 30*time.Second, 100*time.Millisecond, name)
		_, found, _ := r.run(t.Context(), "doctor")
		assert.Regexp(t, `note +prefix +`+hint, found)
		assert.NotContains(t, found, "no circle")

		for _, prefix := range []string{"shop:", "{eu}:"} {
			r.prefix = prefix
			code, text, said := r.run(t.Context(), "lock", "info", "orders")
			assert.Zero(t, code)
			assert.Contains(t, text, "acquired at")
			assert.Empty(t, said)
			_, _, said = r.run(t.Context(), "lock", "info", prefix+"orders")
			assert.Contains(t, said, "names are given without it")
		}
		r.prefix = "{eu}-shop-" // whose channels end as an id begins
		_, err := r.other(t, "worker", redlatch.WithCloseGrace(0), redlatch.WithNamePrefix(r.prefix)).GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, text, said := r.run(t.Context(), "lock", "info", "orders")
			return strings.Contains(text, "acquired at") && said == ""
		}, 30*time.Second, 100*time.Millisecond, name)
		r.prefix = ""
		_, _, said := r.run(t.Context(), "ls", "--prefix", "shop")
		assert.Contains(t, said, `no client with the name prefix "shop" can be asked`)
	}
}

func TestPrefixThatIsShownIsOneWordOfAShell(t *testing.T) {
	server := redistest.Start(t)
	r := &rig{url: server.URL()}
	for prefix, want := range map[string]string{
		"shop:":              `shop:`,
		"a; rm -rf $HOME; '": `'a; rm -rf $HOME; '\'''`,
		"x,--url=redis://b":  `'x,--url=redis://b'`,
		"x\nredlatch: free":  `'x\nredlatch: free'`, // in one line
	} {
		sub := server.Client(t).Subscribe(t.Context(), "redlatch_client:{"+prefix+"}worker.0123456789abcdef")
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		_, _, said := r.run(t.Context(), "ls")
		assert.Equal(t, "redlatch: no client without a name prefix can be asked, only 1 client with --prefix "+want+"\n", said)
		require.NoError(t, sub.Unsubscribe(t.Context()))
		_, err = sub.Receive(t.Context())
		require.NoError(t, err)
		require.NoError(t, sub.Close())
	}
}

func TestOneRestartForSeveralCircles(t *testing.T) {
	circle := func(clients ...string) (c inspect.Circle) {
		for _, client := range clients {
			c = append(c, inspect.Link{Client: client})
		}
		return c
	}
	client, n := mostCircles([]inspect.Circle{circle("a", "b"), circle("c", "b"), circle("b")})
	assert.Equal(t, "b", client)
	assert.Equal(t, 3, n)
	client, n = mostCircles([]inspect.Circle{circle("a", "b", "a"), circle("b")})
	assert.Equal(t, "b", client, "a is twice in one circle")
	assert.Equal(t, 2, n)
}
