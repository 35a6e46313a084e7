package redlatchprom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchprom"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

// binary returns the path of a program of Prometheus, or skips the test.
func binary(t *testing.T, name string) string {
	t.Helper()
	found, err := exec.LookPath(name)
	if err != nil && os.Getenv("REDLATCH_REQUIRE_PROMETHEUS") != "" {
		require.NoError(t, err, "REDLATCH_REQUIRE_PROMETHEUS is set")
	}
	if err != nil {
		t.Skipf("skipped: %s is not installed", name)
	}
	return found
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool := binary(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// Each alert leads to the page of the runbook that its row in the table there names, and that page says what the alert means.
func TestAlertsLeadToTheRunbook(t *testing.T) {
	alerts, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	runbook, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	pages := map[string]string{}
	for _, page := range strings.Split(string(runbook), "\n### ")[1:] {
		title, text, _ := strings.Cut(page, "\n")
		words := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), "")
		pages[strings.ReplaceAll(words, " ", "-")] = text
	}
	rules := regexp.MustCompile(`(?s)- alert: (\w+).*?runbook: (docs/operations\.md#(\S+))\s+runbook_url: (\S+)`).FindAllStringSubmatch(string(alerts), -1)
	require.Len(t, rules, strings.Count(string(alerts), "- alert:"))
	for _, rule := range rules {
		alert, page := rule[1], rule[3]
		assert.Equal(t, "https://github.com/redlatch/redlatch/blob/main/"+rule[2], rule[4], alert)
		row := regexp.MustCompile("(?m)^\\| `" + alert + "` \\|.*$").FindString(pages["alerts"])
		assert.Contains(t, row, "(#"+page+") | `redlatch ", "%s: its row has the page and a command", alert)
		opening, _, _ := strings.Cut(pages[page], "\n```") // before the first command
		assert.Contains(t, opening, "`"+alert+"` means: ", page)
	}
}

// dashboard is the part of dashboard.json that tests look at.
type dashboard struct {
	Templating struct{ List []struct{ Name string } }
	Panels     []struct {
		ID          int
		Title, Type string
		GridPos     position
		Targets     []struct{ Expr, RefID string }
	}
}

type position struct{ X, Y, W, H int }

func (p position) overlaps(o position) bool {
	return p.X < o.X+o.W && o.X < p.X+p.W && p.Y < o.Y+o.H && o.Y < p.Y+p.H
}

func readDashboard(t *testing.T) (board dashboard, text string) {
	t.Helper()
	file, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(file, &board))
	require.NotEmpty(t, board.Panels)
	return board, string(file)
}

// Grafana ignores keys that it does not know, shows no panel of an unknown type, and only one of two panels with one id.
func TestDashboardIsOneOfGrafana(t *testing.T) {
	board, text := readDashboard(t)
	var all any
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	assert.Subset(t, strings.Fields(`title uid schemaVersion version editable tags time.from time.to refresh timezone annotations.list
		templating.list.name templating.list.label templating.list.type templating.list.datasource.type templating.list.datasource.uid
		templating.list.query templating.list.query.query templating.list.query.refId templating.list.includeAll templating.list.multi
		templating.list.allValue templating.list.current templating.list.current.text templating.list.current.value templating.list.refresh
		panels.id panels.title panels.type panels.datasource.type panels.datasource.uid panels.gridPos.x panels.gridPos.y panels.gridPos.w
		panels.gridPos.h panels.fieldConfig.defaults.unit panels.fieldConfig.overrides panels.options
		panels.targets.refId panels.targets.expr panels.targets.legendFormat panels.targets.datasource.type panels.targets.datasource.uid`), keysOf(all, ""))
	variables := map[string]bool{"__rate_interval": true, "__all": true}
	for _, v := range board.Templating.List {
		variables[v.Name] = true
	}
	for _, used := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(text, -1) {
		assert.True(t, variables[used[1]], used[0])
	}
	ids := map[int]bool{}
	for i, p := range board.Panels {
		assert.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		assert.Contains(t, []string{"timeseries", "stat", "gauge", "table", "heatmap"}, p.Type, p.Title)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for _, other := range board.Panels[:i] {
			assert.False(t, p.GridPos.overlaps(other.GridPos), "%s and %s", p.Title, other.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			assert.False(t, refs[target.RefID], "%s %s", p.Title, target.RefID)
			refs[target.RefID] = true
		}
	}
}

// keysOf returns the paths to the values of a JSON document.
func keysOf(v any, path string) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			all = append(all, keysOf(value, strings.TrimPrefix(path+"."+key, "."))...)
		}
	case []any:
		for _, value := range v {
			all = append(all, keysOf(value, path)...)
		}
	}
	if len(all) == 0 { // of a plain value, or an empty one
		return []string{path}
	}
	return all
}

// expressions returns what the dashboard and the alerts ask for.
func expressions(t *testing.T) []string {
	t.Helper()
	all := panelExpressions(t)
	text, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`(?m)^        expr: (>\n(?:          .*\n)+|.*)`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.Join(strings.Fields(strings.TrimPrefix(found[1], ">")), " "))
	}
	return all
}

// panelExpressions returns what the dashboard asks for, with values for its variables.
func panelExpressions(t *testing.T) (all []string) {
	t.Helper()
	board, _ := readDashboard(t)
	values := strings.NewReplacer("$__rate_interval", "1m", "$kind", ".*", "$name", ".*")
	for _, p := range board.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			all = append(all, values.Replace(target.Expr))
		}
	}
	return all
}

func TestDashboardAndAlertsAskForMetricsThatExist(t *testing.T) {
	known := map[string]bool{}
	descriptions := make(chan *prometheus.Desc, 100)
	redlatchprom.New().Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		name := regexp.MustCompile(`fqName: "([^"]*)"`).FindStringSubmatch(d.String())
		require.NotNil(t, name)
		for _, suffix := range []string{"", "_bucket", "_count", "_sum"} {
			known[name[1]+suffix] = true
		}
	}
	asked := expressions(t)
	require.Greater(t, len(asked), 30)
	for _, expr := range asked {
		names := regexp.MustCompile(`\bredlatch_\w+`).FindAllString(expr, -1)
		assert.NotEmpty(t, names, expr)
		for _, name := range names {
			assert.True(t, known[name], "%s in %s", name, expr)
		}
	}
}

// A real Prometheus understands all that the dashboard and the alerts ask for, and finds what clients under load have done: each
// expression of the dashboard has series. Those of an alert have none unless it fires.
func TestPrometheusScrapesClientsUnderLoad(t *testing.T) {
	program := binary(t, "prometheus")
	metrics := redlatchprom.New(redlatchprom.WithNames("orders", "mail"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	client, err := redlatch.Open(t.Context(), redistest.Start(t).URL(), redlatch.WithObserver(metrics.Observer()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	queue := redlatch.GetDelayedQueue[string](client, "mail")
	t.Cleanup(metrics.Watch(client))
	t.Cleanup(metrics.WatchQueue(queue))
	executor := rexecutor.New(client, "media")
	require.NoError(t, rexecutor.NewTask[int, struct{}]("resize").Send(t.Context(), executor, 1))
	t.Cleanup(metrics.WatchExecutor(executor))
	service := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(service.Close)
	load(t, client, queue)

	api := startPrometheus(t, program, strings.TrimPrefix(service.URL, "http://"))
	deadline := time.Now().Add(time.Minute)
	var missing []string
	for {
		missing = nil
		for _, expr := range append(panelExpressions(t),
			`rate(redlatch_acquire_seconds_count{kind="lock",name="orders",result="ok"}[1m]) > 0`,
			`rate(redlatch_hold_seconds_count{kind="lock",name="orders"}[1m]) > 0`,
			`rate(redlatch_handle_seconds_count{kind="queue",name="mail",result="ok"}[1m]) > 0`,
			`redlatch_queue_up{kind="queue",name="mail"} == 1`,
			`rate(redlatch_cache_hits_total{kind="cache",name="",from="near"}[1m]) > 0`,
			`redlatch_queue_messages{kind="queue",name="mail",state="ready"} >= 0`,
			`rate(redlatch_script_seconds_count{script="rlock.acquire"}[1m]) > 0`,
		) {
			if n, err := api.query(t, expr); err != nil || n == 0 {
				missing = append(missing, fmt.Sprintf("%s: %d, %v", expr, n, err))
			}
		}
		if len(missing) == 0 {
			break
		}
		require.True(t, time.Now().Before(deadline), "%v", missing)
		pause(t, 500*time.Millisecond)
	}
	for _, expr := range expressions(t) { // those of the alerts too
		_, err := api.query(t, expr)
		assert.NoError(t, err, expr)
	}
}

// load has a client acquire a lock, handle messages, read a cache, and hold another lock for which it waits too, until the test ends.
func load(t *testing.T, c *redlatch.Client, q *rdelayedqueue.Queue[string]) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 4)
	go func() {
		ended <- c.GetLock("report").Do(context.WithoutCancel(ctx), func(context.Context) error {
			_, _ = c.GetLock("report").Lock(ctx) // until the test ends
			return nil
		})
	}()
	go func() {
		for ctx.Err() == nil {
			_ = c.GetLock("orders").Do(ctx, func(ctx context.Context) error {
				_, err := q.Offer(ctx, "work", 0)
				return err
			})
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		ended <- nil
	}()
	go func() {
		ended <- q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[string]) error { return nil })
	}()
	go func() {
		users := rcache.New(c, "users", func(context.Context, int) (string, error) { return "Ann", nil }, rcache.WithNear(10), rcache.WithTTL(time.Second))
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = users.Get(ctx, i%5) // fewer keys than are kept near
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		stop()
		for range cap(ended) {
			assert.NoError(t, <-ended)
		}
	})
}

// pause waits a moment, or until the test ends.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// server is a Prometheus.
type server struct{ url string }

// startPrometheus starts one that scrapes a target each second.
func startPrometheus(t *testing.T, program, target string) server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	dir := t.TempDir()
	rules, err := filepath.Abs("alerts.yaml")
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - job_name: redlatch\n    static_configs: [{targets: [%q]}]\n", rules, target)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	var log bytes.Buffer
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait() // its data goes with the test
		if t.Failed() {
			t.Log(log.String())
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return server{url: "http://" + address}
}

// query returns how many series an expression has.
func (s server) query(t *testing.T, expr string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	require.NoError(t, err)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = reply.Body.Close() }()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, errors.New(answer.Error)
	}
	return len(answer.Data.Result), nil
}
