package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const events = `{"Action":"start","Package":"example/a"}
{"Action":"run","Package":"example/a","Test":"TestGood"}
{"Action":"attr","Package":"example/a","Test":"TestGood/part","Key":"rounds","Value":"40"}
{"Action":"attr","Package":"example/a","Test":"TestGood","Key":"rounds","Value":"2"}
{"Action":"skip","Package":"example/a","Test":"TestGood/part"}
{"Action":"pass","Package":"example/a","Test":"TestGood"}
{"Action":"run","Package":"example/a","Test":"TestSkipped"}
{"Action":"skip","Package":"example/a","Test":"TestSkipped"}
{"Action":"output","Package":"example/a","Output":"redistest: injected {\"reply lost\":3}\n"}
{"Action":"pass","Package":"example/a","Elapsed":3}
{"Action":"run","Package":"example/b","Test":"TestBad"}
{"Action":"fail","Package":"example/b","Test":"TestBad/part"}
{"Action":"fail","Package":"example/b","Test":"TestBad"}
{"Action":"fail","Package":"example/b","Elapsed":1}
`

func TestResultsAreThoseOfTheEvents(t *testing.T) {
	got := map[string]result{}
	failed, err := collect(strings.NewReader(events), func(pkg string, r result) error {
		got[pkg] = r
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"example/b"}, failed)
	assert.Equal(t, map[string]result{
		"example/a": {Passed: true, Seconds: 3, Tests: map[string]outcome{"TestGood": {Rounds: 42}, "TestSkipped": {Skipped: true}}, Faults: map[string]int{"reply lost": 3}},
		"example/b": {Seconds: 1, Tests: map[string]outcome{"TestBad": {Failed: true}}},
	}, got)
}

func TestLongCountsRunOnce(t *testing.T) {
	old, young := step{server: "old"}, step{server: "young"}
	long := step{server: "old", long: true}
	tests := func(packages map[string]map[string]outcome) map[string]result {
		results := map[string]result{}
		for pkg, tests := range packages {
			results[pkg] = result{Tests: tests}
		}
		return results
	}
	results := map[step]map[string]result{
		old:   tests(map[string]map[string]outcome{"a": {"TestOnce": {}, "TestMany": {Rounds: 3}, "TestClock": {Skipped: true}}, "b": {"TestMany": {Rounds: 2}}}),
		young: tests(map[string]map[string]outcome{"a": {"TestOnce": {}, "TestMany": {Rounds: 3}, "TestClock": {Rounds: 4}}, "b": {"TestMany": {Rounds: 2}}}),
	}
	assert.Equal(t, map[string][]string{"a": {"TestMany"}, "b": {"TestMany"}}, counting(long, results))
	results[long] = tests(map[string]map[string]outcome{"a": {"TestMany": {Rounds: 30}}, "b": {"TestMany": {Rounds: 20}}})
	assert.Equal(t, map[string][]string{"a": {"TestClock"}}, counting(step{server: "young", long: true}, results))
}

// A package that stopped at a failure ran only some of its tests with the long counts, or none: those that it missed count as open.
func TestPackageHasPassedOnlyWithAllItsTests(t *testing.T) {
	r := result{Passed: true, Tests: map[string]outcome{"TestMany": {Rounds: 30}}}
	assert.True(t, r.passed(nil))
	assert.True(t, r.passed([]string{"TestMany"}))
	assert.False(t, r.passed([]string{"TestMany", "TestMissed"}))
	r.Passed = false
	assert.False(t, r.passed(nil))
}

func TestReportCountsWhatFailed(t *testing.T) {
	t.Chdir("../../..")
	const pkg, test = "github.com/redlatch/redlatch/internal/test/scenario", "TestFailoverGrantsNoConfirmedLockTwice"
	old, young, server := step{server: "redis-6.2.14"}, step{server: "valkey-9.1.2"}, step{server: "valkey-9.1.2", long: true}
	text, err := report("abc", 100*time.Second, []step{old, young, server}, map[step]map[string]result{
		old:   {pkg: {Seconds: 60, Tests: map[string]outcome{test: {Rounds: 3}, "TestOther": {}}}},
		young: {pkg: {Seconds: 120, Tests: map[string]outcome{test: {Skipped: true}, "TestOther": {}}}},
		server: {pkg: {
			Tests:  map[string]outcome{test: {Failed: true, Rounds: 7}},
			Faults: map[string]int{"server killed": 9},
		}},
	})
	require.NoError(t, err)
	assert.Contains(t, text, "| a | Redis 6.2.14 | 2 | 0 | 0 | 1 |\n")
	assert.Contains(t, text, "| b | Valkey 9.1.2 | 1 | 0 | 1 | 2 |\n")
	assert.Contains(t, text, "| b | Valkey 9.1.2, long counts | 0 | 1 | 0 | 0 |\n")
	assert.Contains(t, text, "\n3 minutes of tests in all. The last run took 2 minutes by the clock:")
	assert.Contains(t, text, "| F9 | TestFailoverGrantsNoConfirmedLockTwice, internal/test/scenario | a | 3 | b | 7 | 1 |\n")
	assert.Contains(t, text, "| server killed | 0 | 9 |\n")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			assert.LessOrEqual(t, len(strings.TrimSpace(line)), 120, "as in all documents")
		}
	}
	assert.Regexp(t, `\| F1 \| .* \|  \| \|  \| \| 0 \|\n`, text, "it did not run")
}

func TestReportTellsWhatFailedBefore(t *testing.T) {
	t.Chdir("../../..")
	server := step{server: "valkey-9.1.2"}
	r := result{Tests: map[string]outcome{"TestBad": {Failed: true}, "TestGood": {}}, Earlier: []string{"TestWorse"}}
	assert.Equal(t, []string{"TestWorse", "TestBad"}, r.failures(module+"/rlock"))
	r.Passed = true
	assert.Equal(t, []string{"TestWorse"}, r.failures(module+"/rlock"))
	assert.Equal(t, []string{"rlock"}, result{}.failures(module+"/rlock"), "a leak, for example")
	text, err := report("abc", 100*time.Second, []step{server}, map[step]map[string]result{server: {module + "/rlock": r}})
	require.NoError(t, err)
	assert.Contains(t, text, "\n- TestWorse, rlock, on Valkey 9.1.2\n")
}
