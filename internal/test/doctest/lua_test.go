package doctest_test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// maxLuaBody is the number of lines of code that a script may have.
const maxLuaBody = 80

var (
	luaListed = regexp.MustCompile(`(?m)^-- (KEYS|ARGV)\[([^\]]+)\] +\S`)
	// What Redis takes for a key, though it is none, has a call refused while its slot moves to another node.
	luaNoKey   = regexp.MustCompile(`(?m)^-- (KEYS\[[^\]]+\]) .*\b(channel|prefix|begin with)\b`)
	luaReturns = regexp.MustCompile(`(?m)^-- Returns\b`)
	luaIndexed = regexp.MustCompile(`\b(KEYS|ARGV)(?:\[([^\]]*)\])?`)
	luaLocal   = regexp.MustCompile(`^local [^=]*=`)
	luaNumber  = regexp.MustCompile(`^\d+$`)
)

func TestLuaScriptsKeepTheirForm(t *testing.T) {
	for _, name := range files(t, func(name string) bool { return path.Ext(name) == ".lua" }) {
		complaints := checkLua(path.Base(name), read(t, name))
		if !slices.Contains(channelsAmongKeys, path.Dir(name)) {
			complaints = append(complaints, checkKeys(read(t, name))...)
		}
		if !slices.Contains(buildersOfKeys, name) {
			complaints = append(complaints, checkBuilt(read(t, name), namedKeys[name]...)...)
		}
		for _, complaint := range complaints {
			assert.Fail(t, "the script breaks a rule of Lua files", "%s: %s", name, complaint)
		}
	}
}

// channelsAmongKeys are the folders whose scripts still have channels among their keys.
var channelsAmongKeys = []string{"benchmarks"}

// checkKeys returns which of the keys that a header lists are no keys: a channel needs no slot, and a prefix has none.
func checkKeys(src string) (found []string) {
	for _, match := range luaNoKey.FindAllStringSubmatch(src, -1) {
		found = append(found, fmt.Sprintf("%s is a %s: it belongs into ARGV", match[1], strings.Replace(match[2], "begin with", "prefix", 1)))
	}
	return found
}

// buildersOfKeys are the scripts that use a key which was not given to them. Redisson's wire format has a key for each level of a
// reader, whose name holds the reader's owner id and the number of the level; a script learns both from the hash of the lock.
var buildersOfKeys = []string{"rrwlock/keep.lua", "rrwlock/reader.lua", "rrwlock/release.lua", "rrwlock/renew.lua"}

// namedKeys are the keys in functions that scripts share, which they are passed, and those that a script chooses among its own.
var namedKeys = map[string][]string{
	"grid/rcache/entry.lua":      {"key"},
	"internal/grid/guard.lua":    {"key", "fence"},
	"internal/grid/info.lua":     {"'usage'"},
	"internal/fair/enqueue.lua":  {"queue", "timeouts"},
	"internal/fair/head.lua":     {"queue", "timeouts"},
	"internal/queue/bury.lua":    {"keys.bodies", "keys.meta", "hash"},
	"internal/queue/ended.lua":   {"done", "receipts", "bodies"},
	"internal/queue/expire.lua":  {"due", "queue.due", "flight", "claims", "dead"},
	"internal/queue/group.lua":   {"due", "flight", "groups", "places"},
	"internal/queue/order.lua":   {"due", "groups", "places"},
	"internal/queue/history.lua": {"errors"},
	"internal/queue/idle.lua":    {"meta"},
	"internal/queue/lanes.lua":   {"due"},
	"internal/queue/nack.lua":    {"m.at and due or dead"},
	"internal/queue/next.lua":    {"flight"},
	"internal/queue/numbers.lua": {"meta"},
	"internal/queue/once.lua":    {"call.meta", "call.record"},
	"internal/queue/place.lua":   {"meta", "due", "flight", "bodies", "claims", "errors"},
	"internal/queue/removed.lua": {"due", "places", "set"},
	"internal/queue/replace.lua": {"meta", "dead", "due", "flight", "bodies", "claims", "errors", "done"},
	"internal/queue/rest.lua":    {"meta", "waiters"},
	"internal/queue/room.lua":    {"meta"},
	"internal/queue/series.lua":  {"series"},
	"internal/queue/tasks.lua":   {"due", "waiters"},
	"internal/queue/try.lua":     {"due", "groups", "places", "waiters"},
	"internal/queue/wake.lua":    {"meta", "waiters"},
	"rbarrier/inspect.lua":       {"places"},
	"rbarrier/leave.lua":         {"places"},
	"rbarrier/rounds.lua":        {"ended", "places"},
	"rscheduler/hash.lua":        {"meta", "job"},
	"rscheduler/plan.lua":        {"jobs", "job"},
}

var (
	luaComment  = regexp.MustCompile(`(?m)--.*$`)
	luaCall     = regexp.MustCompile(`redis\.p?call\b(?:\('(\w+)'(?:\)|, ([^,)]+)))?`)
	luaAssigned = regexp.MustCompile(`(?m)^\s*(?:local )?(\w+(?:, \w+)*) =\s+((?:[^\n]+,\n)*[^\n]+)`)
	luaComma    = regexp.MustCompile(`,\s+`)
	luaEach     = regexp.MustCompile(`for \w+, (\w+) in ipairs\(KEYS\)`)
	luaKey      = regexp.MustCompile(`^KEYS\[[\w +]+\]$`)
)

// checkBuilt returns the keys of commands that are neither known nor assigned from the keys that a script was given, and nothing else:
// on a cluster they may be in another slot, and a user who is limited to some keys may not have them.
func checkBuilt(src string, known ...string) (found []string) {
	src = luaComment.ReplaceAllString(src, "")
	given := map[string]bool{}
	for _, match := range luaEach.FindAllStringSubmatch(src, -1) {
		given[match[1]] = true
	}
	for _, match := range luaAssigned.FindAllStringSubmatch(src, -1) {
		values := luaComma.Split(match[2], -1)
		for i, name := range strings.Split(match[1], ", ") {
			before, again := given[name]
			given[name] = (before || !again) && i < len(values) && luaKey.MatchString(values[i])
		}
	}
	for _, match := range luaCall.FindAllStringSubmatch(src, -1) {
		command, key := match[1], strings.TrimSpace(match[2])
		switch {
		case command == "":
			found = append(found, "a call does not name its command")
		case strings.EqualFold(command, "publish"), strings.EqualFold(command, "time"):
		case !given[key] && !luaKey.MatchString(key) && !slices.Contains(known, key):
			found = append(found, fmt.Sprintf("%s: the key %s is not one that was given", command, key))
		}
	}
	return found
}

func TestKeysThatAreNotGivenAreFound(t *testing.T) {
	const src = `local lock, other = KEYS[1],
  KEYS[2]
local owner, lease = ARGV[1], tonumber(ARGV[2])
local level, long = owner .. ':level', string.format('%s:long', owner)
local list = table.concat({ owner, 'list' }, ':')
redis.call('hset', lock, owner, lease)
redis.call('get', level)
redis.call('get', long)
redis.call('get', list)
redis.call('get', table.concat({ owner }))
redis.pcall('del', owner)
redis.call('set', lock .. ':x', 1)
redis.call('get', ARGV[1])
redis.call('publish', owner .. ':channel', 0)
for i, key in ipairs(KEYS) do
  redis.call('get', key)
  redis.call('get', KEYS[i + 1])
end
redis.call('get', how.key) -- known
pcall(redis.call, 'get', owner)
other = string.format('%s:x', other)
redis.call('del', other)`
	assert.Equal(t, []string{
		"get: the key level is not one that was given", "get: the key long is not one that was given",
		"get: the key list is not one that was given", "get: the key table.concat({ owner } is not one that was given",
		"del: the key owner is not one that was given", "set: the key lock .. ':x' is not one that was given",
		"get: the key ARGV[1] is not one that was given", "a call does not name its command",
		"del: the key other is not one that was given",
	}, checkBuilt(src, "how.key"))
	for _, name := range buildersOfKeys {
		assert.NotEmpty(t, checkBuilt(read(t, name)), "%s builds no key: it need not be listed", name)
	}
	for name, known := range namedKeys {
		for i, key := range known {
			assert.NotEmpty(t, checkBuilt(read(t, name), slices.Delete(slices.Clone(known), i, i+1)...), "%s: %s need not be listed", name, key)
		}
	}
}

// checkLua returns what is wrong with a script: with its header, with the header against the body, with the body.
func checkLua(name, src string) []string {
	lines := strings.Split(strings.TrimRight(src, "\n"), "\n")
	end := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "--") })
	if end < 0 {
		return []string{"no body"}
	}
	header, body := strings.Join(lines[:end], "\n"), lines[end:]

	var found []string
	if !strings.HasPrefix(header, "-- "+name+": ") {
		found = append(found, fmt.Sprintf("the header does not begin with %q", "-- "+name+": "))
	}
	if !luaReturns.MatchString(header) {
		found = append(found, "the header does not say what it Returns")
	}
	code, complaints := stripLua(body)
	if n := len(code) - blank(code); n > maxLuaBody {
		found = append(found, fmt.Sprintf("%d lines of code, more than %d", n, maxLuaBody))
	}
	found = append(found, complaints...)
	for _, table := range []string{"KEYS", "ARGV"} {
		found = append(found, compareLua(table, header, strings.Join(code, "\n"))...)
	}
	return append(found, lateLua(code)...)
}

// compareLua holds what the header lists of one table against what the body uses. An index that is no number, in the
// header a list such as KEYS[2..n], stands for elements whose count the script learns as it runs.
func compareLua(table, header, code string) []string {
	listed, listedMany := luaIndices(table, luaListed.FindAllStringSubmatch(header, -1))
	used, usedMany := luaIndices(table, luaIndexed.FindAllStringSubmatch(code, -1))
	var found []string
	for _, i := range slices.Sorted(maps.Keys(used)) {
		if !listed[i] && !listedMany {
			found = append(found, fmt.Sprintf("the header does not list %s[%d]", table, i))
		}
	}
	for _, i := range slices.Sorted(maps.Keys(listed)) {
		if !used[i] && !usedMany {
			found = append(found, fmt.Sprintf("the body does not use %s[%d]", table, i))
		}
		if i > 1 && !listed[i-1] && !listedMany {
			found = append(found, fmt.Sprintf("the header lists %s[%d] but not %s[%d]", table, i, table, i-1))
		}
	}
	if listedMany != usedMany {
		found = append(found, fmt.Sprintf("a list of %s stands in the header: %t, in the body: %t", table, listedMany, usedMany))
	}
	return found
}

// luaIndices returns the numbers among the indices of one table, and whether there are others or bare uses of it.
func luaIndices(table string, matches [][]string) (numbers map[int]bool, many bool) {
	numbers = map[int]bool{}
	for _, match := range matches {
		if match[1] != table {
			continue
		}
		if i, err := strconv.Atoi(match[2]); err == nil {
			numbers[i] = true
		} else {
			many = true
		}
	}
	return numbers, many
}

// lateLua returns the numbered keys and arguments that occur below the assignments that name them.
func lateLua(code []string) []string {
	var found []string
	naming := true
	for _, line := range code {
		blank, continued := strings.TrimSpace(line) == "", strings.HasPrefix(line, " ")
		naming = naming && (blank || continued || luaLocal.MatchString(line) && !strings.Contains(line, "function"))
		if naming {
			continue
		}
		for _, match := range luaIndexed.FindAllStringSubmatch(line, -1) {
			if luaNumber.MatchString(match[2]) {
				found = append(found, match[0]+" occurs below the names at the top")
			}
		}
	}
	return found
}

// stripLua returns the lines without comments and without what stands in quotes, and what is wrong with their form.
func stripLua(lines []string) (code, found []string) {
	for n, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if strings.Contains(line, "\t") || indent%2 != 0 {
			found = append(found, fmt.Sprintf("line %d of the body: not indented by two spaces", n+1))
		}
		stripped, double := stripLuaLine(line)
		if double {
			found = append(found, fmt.Sprintf("line %d of the body: double quotes", n+1))
		}
		code = append(code, stripped)
	}
	return code, found
}

// blank returns how many of the lines are empty.
func blank(code []string) (n int) {
	for _, line := range code {
		if strings.TrimSpace(line) == "" {
			n++
		}
	}
	return n
}

func stripLuaLine(line string) (code string, double bool) {
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
				out.WriteByte(c)
			}
		case strings.HasPrefix(line[i:], "--"):
			return out.String(), double
		default:
			if c == '"' || c == '\'' {
				quote = c
				double = double || c == '"'
			}
			out.WriteByte(c)
		}
	}
	return out.String(), double
}

func TestChannelsAndPrefixesAreNoKeys(t *testing.T) {
	assert.Equal(t, []string{"KEYS[2] is a channel: it belongs into ARGV", "KEYS[3] is a prefix: it belongs into ARGV"},
		checkKeys("-- KEYS[1]  the lock\n-- KEYS[2]  channel of its waiters\n-- KEYS[3]  what the keys begin with\n-- ARGV[1]  channel\n"))
}

func TestLuaRulesAreEnforced(t *testing.T) {
	const header = "-- a.lua: do it.\n--\n-- KEYS[1]  the lock\n-- ARGV[1]  owner\n-- ARGV[2]  lease, ms\n--\n-- Returns  1\n"
	const names = "local lock = KEYS[1]\nlocal owner, lease = ARGV[1],\n  tonumber(ARGV[2])\n"
	const many = "-- a.lua: do it.\n-- KEYS[1..n]  locks\n-- ARGV[1]  lease\n-- ARGV[2..n+1]  owners\n-- Returns  n\n"
	for name, tc := range map[string]struct {
		src  string
		want []string
	}{
		"fine":      {header + names + "\n-- Why \"so\": KEYS[9].\nif lock then\n  return 'KEYS[3] \"x\" -- \\' ARGV[4]'\nend\n", nil},
		"fine list": {many + "local lease = ARGV[1]\nfor i = 1, #KEYS do\n  redis.call('hget', KEYS[i], ARGV[i + 1])\nend\n", nil},
		"no body":   {header, []string{"no body"}},
		"other name": {
			strings.Replace(header, "a.lua", "b.lua", 1) + names,
			[]string{`the header does not begin with "-- a.lua: "`},
		},
		"no reply": {strings.Replace(header, "Returns", "Gives", 1) + names, []string{"the header does not say what it Returns"}},
		"unlisted": {header + names + "local x = ARGV[3]\n", []string{"the header does not list ARGV[3]"}},
		"unused":   {header + "local lock, owner = KEYS[1], ARGV[1]\n", []string{"the body does not use ARGV[2]"}},
		"gap": {
			"-- a.lua: x.\n-- KEYS[2]  y\n-- Returns  1\nlocal y = KEYS[2]\n",
			[]string{"the header lists KEYS[2] but not KEYS[1]"},
		},
		"unlisted list": {header + names + "return #KEYS\n", []string{"a list of KEYS stands in the header: false, in the body: true"}},
		"unused list": {
			strings.Replace(header, "KEYS[1]", "KEYS[1..n]", 1) + names,
			[]string{"a list of KEYS stands in the header: true, in the body: false"},
		},
		"late": {header + names + "redis.call('del', KEYS[1])\n", []string{"KEYS[1] occurs below the names at the top"}},
		"late in a function": {
			header + names + "local f = function()\n  return ARGV[1]\nend\n",
			[]string{"ARGV[1] occurs below the names at the top"},
		},
		"double quotes": {header + names + "return \"x\"\n", []string{"line 4 of the body: double quotes"}},
		"tab":           {header + names + "if x then\n\ty()\nend\n", []string{"line 5 of the body: not indented by two spaces"}},
		"not long":      {header + names + strings.Repeat("x()\n\n-- y\n", 72), nil},
		"long":          {header + names + strings.Repeat("x()\n", 78), []string{"81 lines of code, more than 80"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, checkLua("a.lua", tc.src))
		})
	}
}
