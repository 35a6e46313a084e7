package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestChartsSayWhatHappenedInTheHour(t *testing.T) {
	minutes := make([]rdelayedqueue.Minute, 60)
	minutes[0] = rdelayedqueue.Minute{Offered: 4, Done: 2, Failed: 1}
	minutes[59] = rdelayedqueue.Minute{Offered: 1, Done: 4, Dead: 2, Lateness: 1500 * time.Millisecond}
	charts := hourOf("queue", minutes, 0)
	assert.Equal(t, "5 offered, at most 4 a minute; 6 done, at most 4 a minute", charts[0].Text())
	assert.Equal(t, "1 attempt failed; 2 messages became dead", charts[1].Text())
	assert.Equal(t, "1 attempt failed; 2 tasks became dead", hourOf("executor", minutes, 0)[1].Text())
	assert.Equal(t, "claimed up to 1.5s late", charts[2].Text())
	assert.Equal(t, "M0 40h3v-40h-3zM236 40h3v-10h-3z", charts[0][0].Shape)
	assert.Regexp(t, `^M2 20\.0L6 40\.0.*L238 0\.0$`, charts[0][1].Shape)
	assert.Equal(t, []string{"M0 40h3v-20h-3z", "M236 40h3v-40h-3z"}, []string{charts[1][0].Shape, charts[1][1].Shape})
	assert.Empty(t, hourOf("queue", make([]rdelayedqueue.Minute, 60), 0)[2][0].Shape, "nothing has happened")
	waits := hourOf("queue", make([]rdelayedqueue.Minute, 60), 2*time.Minute)[2]
	assert.Equal(t, "claimed up to 0s late, and one has waited for 2m0s", waits.Text())
	assert.Equal(t, "M232 40h3v-20h-3zM236 40h3v-40h-3z", waits[0].Shape, "nobody claims, and the lag grows")
}

func TestPageOfAQueueHasItsLastHour(t *testing.T) {
	s := newSite(t)
	bury(t, s.client, "mails", func(string) string { return "no luck" }, "m-1", "m-2")
	_, text := s.get(t, "queue?name=mails")
	assert.Regexp(t, `2 offered, at most [12] a minute; 0 done`, text)
	assert.Contains(t, text, "2 messages became dead")
	_, text = s.get(t, "message?name=mails&id=m-1")
	assert.Regexp(t, `(?s)Timeline.*client\?id=.* took [^:]*: <span class="bad">no luck</span></li>\s*<li><time [^>]*>\d s ago</time>.*: died</li>`, text)
}
