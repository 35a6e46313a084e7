package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/relection"
)

func TestElectionsAreShown(t *testing.T) {
	s := newSite(t)
	e := s.client.GetElection(hostile)
	leader, err := e.Campaign(t.Context(), relection.WithValue("the <first>"))
	require.NoError(t, err)
	next := make(chan *relection.Leadership, 1)
	go func() {
		l, err := e.Campaign(t.Context(), relection.WithValue("the <second>"))
		assert.NoError(t, err)
		next <- l
	}()
	require.Eventually(t, func() bool {
		candidates, err := e.Candidates(t.Context())
		return err == nil && len(candidates) == 1 && candidates[0].Value != ""
	}, 10*time.Second, 10*time.Millisecond)
	_, text := s.get(t, "elections")
	address := "election?name=" + url.QueryEscape(hostile)
	assert.Contains(t, strings.ToLower(text), strings.ToLower(`href="`+address+`"`))
	assert.Contains(t, text, fmt.Sprintf("term %d, led by %s", leader.Term(), leader.ID()))
	shown := func() string {
		t.Helper()
		status, text := s.get(t, address)
		assert.Equal(t, http.StatusOK, status)
		assert.NotContains(t, text, "<script>document")
		return text
	}
	text = shown()
	assert.Regexp(t, `(?s)<code>`+leader.ID()+`</code>.*href="client\?id=`+s.client.ID()+`".*the &lt;first&gt;.*Candidates.*the &lt;second&gt;`, text)
	assert.Contains(t, text, fmt.Sprint("<td>", leader.Term(), "</td>"))
	require.NoError(t, leader.Resign(t.Context()))
	second := <-next
	text = shown()
	assert.Regexp(t, `(?s)<code>`+second.ID()+`</code>.*the &lt;second&gt;.*None\.`, text)
	require.NoError(t, second.Resign(t.Context()))
	assert.Contains(t, shown(), "Nobody leads.")
	status, _ := s.get(t, "election")
	assert.Equal(t, http.StatusBadRequest, status)
}
