package doctest_test

import (
	"go/ast"
	"go/parser"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/test/doctest"
)

// widest is how many characters a line of prose in a document may have.
const widest = 120

var (
	backquoted  = regexp.MustCompile("`([^`\n]+)`")
	qualified   = regexp.MustCompile(`^(\w+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)(?:\[\w+\])?(?:\(.*\))?(?:\{\})?$`)
	optionOrErr = regexp.MustCompile(`^((?:With|Without|Err)[A-Z]\w*)(?:\(.*\))?$`)
	ofReceiver  = regexp.MustCompile(`^(client|hold|permit)\.([A-Z]\w*)(?:\(.*\))?$`)
	testName    = regexp.MustCompile(`^(?:Test|Example|Fuzz)[A-Z_]?\w*$`)
)

// receivers are the types of the variables that documents use.
var receivers = map[string]string{"client": "redlatch.Client", "hold": "rlock.Hold", "permit": "rsemaphore.Permit"}

func markdown(name string) bool { return path.Ext(name) == ".md" }

func TestDocumentsAreOfTheirSize(t *testing.T) {
	for name, limit := range map[string]int{"README.md": 10 << 10, "ARCHITECTURE.md": 24 << 10, "CONTRIBUTING.md": 4 << 10} {
		assert.LessOrEqual(t, len(read(t, name)), limit, "%s: move details to docs/", name)
	}
}

func TestReadmeNamesTheServersThatCIRuns(t *testing.T) {
	makefile, readme := read(t, "Makefile"), read(t, "README.md")
	servers := regexp.MustCompile(`(?m)^SERVERS +:= (.*)$`).FindStringSubmatch(makefile)
	steps := regexp.MustCompile(`(?m)^CI_STEPS +:= (.*)$`).FindStringSubmatch(makefile)
	require.NotNil(t, servers)
	require.NotNil(t, steps)
	for _, server := range strings.Fields(servers[1]) {
		if server == "installed" { // Debian's, which .ci/run installs
			assert.Contains(t, readme, "Redis 7.0")
			assert.Regexp(t, `(?m) nested( |$)`, steps[1], "CI runs a step on it")
			continue
		}
		name, version, _ := strings.Cut(server, "-")
		assert.Contains(t, readme, strings.ToUpper(name[:1])+name[1:]+" "+version)
		assert.Contains(t, steps[1], "@"+server, "CI runs a step on it")
	}
}

func TestOperationsListTheCommandsThatAServerNeeds(t *testing.T) {
	found := regexp.MustCompile("(?s)`redlatch.Check` asks for.*?\n```text\n(.*?)```").FindStringSubmatch(read(t, "docs/operations.md"))
	require.NotNil(t, found)
	commands := strings.Fields(strings.ToUpper(strings.Join(new(core.Core).Commands(), " ")))
	slices.Sort(commands)
	assert.Equal(t, commands, strings.Fields(found[1]))
}

func TestCodeInDocumentsIsCutFromExamples(t *testing.T) {
	for _, name := range files(t, markdown) {
		before := read(t, name)
		after, err := doctest.Rewrite(repository(), before)
		if assert.NoError(t, err, name) {
			assert.Equal(t, after, before, "%s: make readme mends it", name)
		}
	}
}

// TestProseIsWrapped leaves out CHANGELOG.md, whose entries are a line each or wrap as their writers like.
func TestProseIsWrapped(t *testing.T) {
	for _, name := range files(t, func(name string) bool { return markdown(name) && name != "CHANGELOG.md" }) {
		fenced := false
		for n, line := range strings.Split(read(t, name), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			if fenced || !strings.Contains(line, " ") || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "[") {
				continue
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(line), widest, "%s:%d", name, n+1)
		}
	}
}

// TestNamesInDocumentsExist reads what stands between backquotes. CHANGELOG.md names what is gone; the two documents that
// compare redlatch with other libraries, or with what it might have been, name options that are not its own.
func TestNamesInDocumentsExist(t *testing.T) {
	public := publicNames(t)
	options := map[string]bool{}
	for name := range public {
		options[name[strings.LastIndex(name, ".")+1:]] = true
	}
	others := []string{"docs/migrating.md", "docs/decisions.md"}
	for _, name := range files(t, func(name string) bool { return markdown(name) && name != "CHANGELOG.md" }) {
		prose := fences.ReplaceAllString(read(t, name), "")
		for _, code := range backquoted.FindAllStringSubmatch(prose, -1) {
			if found := qualified.FindStringSubmatch(code[1]); found != nil && public[found[1]+"."] {
				assert.True(t, public[found[1]+"."+found[2]], "%s: `%s` is not exported", name, code[1])
			}
			if found := ofReceiver.FindStringSubmatch(code[1]); found != nil {
				assert.True(t, public[receivers[found[1]]+"."+found[2]], "%s: `%s` is no method", name, code[1])
			}
			if found := optionOrErr.FindStringSubmatch(code[1]); found != nil && !slices.Contains(others, name) {
				assert.True(t, options[found[1]], "%s: `%s` is in no package", name, code[1])
			}
		}
	}
}

func TestTestsNamedInDocumentsExist(t *testing.T) {
	tests := testNames(t)
	for _, name := range files(t, func(name string) bool { return markdown(name) && name != "CHANGELOG.md" }) {
		for _, code := range backquoted.FindAllStringSubmatch(fences.ReplaceAllString(read(t, name), ""), -1) {
			if testName.MatchString(code[1]) {
				assert.True(t, tests[code[1]], "%s: no test %s", name, code[1])
			}
		}
	}
}

// testNames returns the names of all tests and examples.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, name := range files(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		for _, decl := range parse(t, read(t, name), parser.SkipObjectResolution).Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && testName.MatchString(fn.Name.Name) {
				found[fn.Name.Name] = true
			}
		}
	}
	return found
}

// publicNames returns what the public packages export: "rlock." for each package, "rlock.Lock", and "rlock.Lock.Name" for
// methods and fields.
func publicNames(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, name := range files(t, goFile) {
		file := parse(t, read(t, name), parser.SkipObjectResolution)
		if isTest(name, file) || file.Name.Name == "main" || internal(name) || strings.HasSuffix(name, "_test.go") {
			continue
		}
		pkg := file.Name.Name
		found[pkg+"."] = true
		for _, exported := range exportedNames(file) {
			found[pkg+"."+exported] = true
		}
	}
	return found
}

func exportedNames(file *ast.File) []string {
	var found []string
	add := func(prefix string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				found = append(found, prefix+id.Name)
			}
		}
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				add("", decl.Name)
			} else {
				add(receiver(decl.Recv.List[0].Type).Name+".", decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					add("", spec.Names...)
				case *ast.TypeSpec:
					add("", spec.Name)
					for _, member := range members(spec.Type) {
						add(spec.Name.Name+".", member.Names...)
					}
				}
			}
		}
	}
	return found
}

// members returns the fields of a struct and the methods of an interface.
func members(typ ast.Expr) []*ast.Field {
	switch typ := typ.(type) {
	case *ast.StructType:
		return typ.Fields.List
	case *ast.InterfaceType:
		return typ.Methods.List
	}
	return nil
}
