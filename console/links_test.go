package console

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinksLeadToWhatTheyName(t *testing.T) {
	names := []string{"order:4711", "a b", "a+b", "50%", "50%3A", "a&b=c", "ä/#?", hostile}
	s := newSite(t, WithActions(func(*http.Request, Action) error { return nil }))
	for _, name := range names {
		acquire(t, s.client.GetLock(name))
		offer(t, s.client, "queue:"+name, name, "hello", 0)
	}
	for _, name := range names {
		follow := func(page, path, param, value string) (text string) {
			t.Helper()
			_, text = s.get(t, page)
			for _, link := range regexp.MustCompile(`href="`+path+`(\?[^"]*)"`).FindAllStringSubmatch(text, -1) {
				address, err := url.Parse(path + html.UnescapeString(link[1]))
				require.NoError(t, err)
				if address.Query().Get(param) == value {
					status, text := s.get(t, address.String())
					assert.Equal(t, http.StatusOK, status)
					return text
				}
			}
			require.Fail(t, "no link leads there", "from %s to %s %q: %s", page, path, value, text)
			return ""
		}
		assert.Contains(t, follow("locks?sort=name", "lock", "name", name), "Held.")
		assert.Contains(t, follow("queues?sort=name", "queue", "name", "queue:"+name), "0 delayed, 1 ready")
		assert.Contains(t, follow("queue?name="+url.QueryEscape("queue:"+name), "message", "id", name), "<td>ready</td>")
		assert.Contains(t, follow("queue?name="+url.QueryEscape("queue:"+name), "queue", "state", "dead"), "No message is dead.")
		assert.Contains(t, follow("message?name="+url.QueryEscape("queue:"+name)+"&id="+url.QueryEscape(name), "queue", "name", "queue:"+name), "0 delayed, 1 ready")
	}
}

func TestKindsWithoutAPageAreNotLinked(t *testing.T) {
	for kind, page := range map[string]string{
		"lock": "lock", "fair_lock": "lock", "rw_lock": "lock", "multi_lock": "lock", "semaphore": "semaphore", "permits": "semaphore",
		"latch": "latch", "barrier": "barrier", "queue": "queue", "scheduler": "scheduler", "election": "election", "once": "", "limiter": "",
	} {
		var b strings.Builder
		require.NoError(t, templates.ExecuteTemplate(&b, "object", map[string]string{"Kind": kind, "Name": "a&b"}))
		words := strings.ReplaceAll(kind, "_", " ")
		want := words + ` <a href="` + page + `?name=a%26b">a&amp;b</a>`
		if page == "" {
			want = words + " a&amp;b"
		}
		assert.Equal(t, want, b.String())
	}
}
