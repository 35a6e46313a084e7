package console

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F20: the pages and an action, on nodes that each have a part of the names.
func TestConsoleOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	quiet := slog.New(slog.DiscardHandler)
	client, err := redlatch.New(cluster.Client(t), redlatch.WithClientName("web"), redlatch.WithCloseGrace(0), redlatch.WithLogger(quiet))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	h := Handler(client, WithLogger(quiet), WithActions(func(*http.Request, Action) error { return nil }))
	s := &site{Server: served(t, http.StripPrefix("/ops/locks", h)), client: client}
	s.browser = s.Client()
	s.browser.Jar = newJar(t)
	nodes := map[string]bool{}
	owners := map[string]string{}
	for i := range 12 {
		name := fmt.Sprint("order:", i)
		nodes[cluster.Owner(t, name).Addr()] = true
		owners[name] = acquire(t, client.GetLock(name)).Owner()
	}
	require.Len(t, nodes, 3, "each node has some of the locks")
	offer(t, client, "mails", "m-1", "hello", 0)
	list, overview := s.whole(t, "locks?sort=name"), s.whole(t, "")
	assert.Contains(t, overview, "mails")
	csrf := s.csrf(t, "lock?name=order:0")
	b := startChromium(t, s.Server)
	b.open("ops/locks/locks?sort=name")
	b.sees("order:11")
	b.click("a", "order:1")
	b.sees(owners["order:1"])
	for name, owner := range owners {
		assert.Contains(t, list, `id="row-lock-`+name+`"`)
		_, text := s.get(t, "lock?name="+name)
		assert.Contains(t, text, "<code>"+owner+"</code>")
		_, text = s.post(t, url.Values{"verb": {"force"}, "name": {name}, "owner": {owner}, "csrf": {csrf}})
		assert.Contains(t, text, "It was freed.", name)
	}
	_, text := s.get(t, "queue?name=mails")
	assert.Contains(t, text, "0 delayed, 1 ready")
}

// whole returns a page that shows all there is: on a slow machine a look may end before it has seen all.
func (s *site) whole(t *testing.T, path string) (text string) {
	t.Helper()
	redistest.Eventually(t, 30*time.Second, path+" shows all", func() error {
		_, text = s.get(t, path)
		if strings.Contains(text, "There are more objects") {
			return errors.New("there are more")
		}
		return nil
	})
	return text
}
