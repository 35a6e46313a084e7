package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
)

func TestCachesAreShownByNameAndClient(t *testing.T) {
	s := newSite(t)
	_, text := s.get(t, "caches")
	assert.Contains(t, text, "No client that answers has read a cache")
	cache := rcache.New(s.client, hostile, func(_ context.Context, k string) (string, error) {
		if k == "bad" {
			return "", errors.New("no luck")
		}
		return "secret", nil
	}, rcache.WithNear(10))
	for _, k := range []string{"a", "a", "a", "b", "bad"} {
		_, _ = cache.Get(t.Context(), k) // the failure is counted
	}
	plain := rcache.New[string, string](s.client, "plain", nil)
	_, err := plain.Get(t.Context(), "a")
	require.ErrorIs(t, err, rcache.ErrNotFound)
	prices := rmap.New[string, int](s.client, "prices", rmap.WithNear(10), rmap.WithMaxStale(time.Hour))
	_, _, err = prices.Get(t.Context(), "tea")
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, text = s.get(t, "caches"); return strings.Contains(text, "prices") }, 20*time.Second, 50*time.Millisecond)
	assert.NotContains(t, text, "<script>document")
	assert.NotContains(t, text, "secret")
	address := "cache?name=" + url.QueryEscape(hostile)
	assert.Contains(t, strings.ToLower(text), strings.ToLower(`href="`+address+`"`))
	assert.Regexp(t, `prices</a></td><td>map</td><td class="n">0\.0 %</td>`, text)

	status, text := s.get(t, address)
	assert.Equal(t, http.StatusOK, status)
	assert.NotContains(t, text, "<script>document")
	assert.Regexp(t, `(?s)cache: hit rate \d+\.\d %.*href="client\?id=`+s.client.ID()+`".*<td class="n">3</td><td class="n">3</td><td class="n"><span class="bad">1</span></td><td class="n">\d</td><td>for <time `, text)
	_, text = s.get(t, "cache?name=plain")
	assert.Contains(t, text, "keeps nothing near")
	_, text = s.get(t, "cache?name=prices")
	assert.Contains(t, text, "<td>1h0m0s old</td>")
	_, text = s.get(t, "client?id="+s.client.ID())
	assert.Regexp(t, `map <a href="cache\?name=prices">prices</a></td>`, text)
	status, text = s.get(t, "cache?name=nobody")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "No client that answers has read it.")
	status, _ = s.get(t, "cache")
	assert.Equal(t, http.StatusBadRequest, status)
	runtime.KeepAlive([]any{cache, prices}) // what is near
}
