package doctest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, name := range files(t, goFile) {
		file := parse(t, read(t, name), parser.ParseComments|parser.SkipObjectResolution)
		if isTest(name, file) || file.Name.Name == "main" || internal(name) {
			continue
		}
		for _, complaint := range undocumented(file) {
			assert.Fail(t, "doc comment does not begin with the name", "%s: %s", name, complaint)
		}
	}
}

func TestUndocumentedNamesAreFound(t *testing.T) {
	file := parse(t, `package p

// Good is one.
type Good struct{}

// Reads something.
func (Good) Read() {}

func (*Good) Write() {}

func (*bad[T]) Close() {}

type bad[T any] struct{}

// Errors of the package.
var (
	// ErrA is returned.
	ErrA = 1
	ErrB = 2
)

// MaxA and MaxB bound.
const MaxA, MaxB = 1, 2

type Wide interface{}
`, parser.ParseComments)
	assert.Equal(t, []string{"Read", "Write", "ErrB", "Wide"}, undocumented(file))
}

func TestPackagesDependOneWay(t *testing.T) {
	for _, name := range files(t, goFile) {
		file := parse(t, read(t, name), parser.ImportsOnly)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if why := forbidden(name, file, imported); why != "" {
				assert.Fail(t, why, "%s imports %s", name, imported)
			}
		}
	}
}

func TestPackagesWithTestsLookForGoroutinesThatAreLeft(t *testing.T) {
	looks := map[string]bool{} // package directory -> whether one of its tests does
	for _, name := range files(t, goFile) {
		if strings.HasSuffix(name, "_test.go") {
			text := read(t, name)
			found := strings.Contains(text, "goleak.VerifyTestMain(m") || strings.Contains(text, "redistest.Run(m")
			looks[path.Dir(name)] = looks[path.Dir(name)] || found
		}
	}
	for dir, found := range looks {
		assert.True(t, found, "%s has no TestMain with goleak", dir)
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	const miniredis, rlock = "github.com/alicebob/miniredis/v2", module + "/rlock"
	for _, tc := range []struct {
		file, pkg, imported string
		allowed             bool
	}{
		{"embedded/server.go", "embedded", miniredis, true},
		{"redlatchtest/redlatchtest.go", "redlatchtest", miniredis, true},
		{"redlatchtest/redlatchtest.go", "redlatchtest", "testing", true},
		{"rlock/lock_test.go", "rlock_test", miniredis, true},
		{"internal/test/redistest/server.go", "redistest", miniredis, true},
		{"examples/quickstart/main.go", "main", miniredis, false},
		{"internal/core/core.go", "core", rlock, false},
		{"internal/core/internal_test.go", "core", rlock, false},
		{"internal/core/core.go", "core", module, false},
		{"internal/find/find.go", "find", rlock, true},
		{"internal/inspect/inspect.go", "inspect", rlock, true},
		{"internal/test/locktest/suite.go", "locktest", rlock, true},
		{"internal/test/locktest/suite.go", "locktest", "testing", true},
		{"client.go", "redlatch", rlock, true},
		{"rlock/lock.go", "rlock", "testing/synctest", false},
	} {
		why := forbidden(tc.file, parse(t, "package "+tc.pkg, parser.ImportsOnly), tc.imported)
		assert.Equal(t, tc.allowed, why == "", "%s imports %s: %s", tc.file, tc.imported, why)
	}
}

// forbidden says why the file must not import the package, if so.
func forbidden(name string, file *ast.File, imported string) string {
	objects := []string{"rlock", "rfairlock", "rrwlock", "rmultilock", "rsemaphore", "rlatch", "rdelayedqueue", "rtopic", "rratelimiter", "ronce", "relection", "rid", "rbarrier", "rscheduler"}
	object := imported == module || slices.Contains(objects, strings.TrimPrefix(imported, module+"/"))
	switch {
	case slices.Contains([]string{"internal/find", "internal/inspect"}, path.Dir(name)) && object: // are above the objects
		return ""
	case internal(name) && object && !strings.HasSuffix(file.Name.Name, "test"):
		return "only test suites, find and inspect, below internal, know an object package"
	case isTest(name, file):
		return ""
	case path.Dir(name) == "redlatchtest": // is for users' tests
		return ""
	case strings.HasPrefix(imported, "github.com/alicebob/miniredis") && path.Dir(name) != "embedded":
		return "only embedded, redlatchtest and tests use miniredis"
	case imported == "testing" || strings.HasPrefix(imported, "testing/"):
		return "test code stays out of the library"
	}
	return ""
}

func internal(name string) bool { return strings.HasPrefix(name, "internal/") }

// isTest reports whether the file is a test or part of a test suite.
func isTest(name string, file *ast.File) bool {
	return strings.HasSuffix(name, "_test.go") || internal(name) && strings.HasSuffix(file.Name.Name, "test")
}

// undocumented returns the exported names that no comment of their own begins with.
func undocumented(file *ast.File) []string {
	var found []string
	check := func(doc *ast.CommentGroup, names ...*ast.Ident) {
		exported := slices.DeleteFunc(names, func(id *ast.Ident) bool { return !id.IsExported() })
		if len(exported) == 0 {
			return
		}
		begins := func(id *ast.Ident) bool {
			rest, ok := strings.CutPrefix(doc.Text(), id.Name)
			return ok && strings.IndexAny(rest, " ,.\n") == 0
		}
		if !slices.ContainsFunc(exported, begins) {
			found = append(found, exported[0].Name)
		}
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil || receiver(decl.Recv.List[0].Type).IsExported() {
				check(decl.Doc, decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				checkSpec(decl, spec, check)
			}
		}
	}
	return found
}

// checkSpec checks one type, or the constants or variables declared together. The comment of a declaration without
// parentheses counts as that of its only spec.
func checkSpec(decl *ast.GenDecl, spec ast.Spec, check func(*ast.CommentGroup, ...*ast.Ident)) {
	own := func(doc *ast.CommentGroup) *ast.CommentGroup {
		if doc == nil && !decl.Lparen.IsValid() {
			return decl.Doc
		}
		return doc
	}
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		check(own(spec.Doc), spec.Name)
	case *ast.ValueSpec:
		check(own(spec.Doc), slices.Clone(spec.Names)...)
	}
}

// receiver returns the name of a method's type.
func receiver(expr ast.Expr) *ast.Ident {
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e
		default:
			return ast.NewIdent("_")
		}
	}
}

func parse(t *testing.T, src string, mode parser.Mode) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", src, mode)
	require.NoError(t, err)
	return file
}

// What is not about a client itself belongs into another package, such as internal/events and internal/presence.
func TestCoreIsSmall(t *testing.T) {
	sources := files(t, func(name string) bool {
		return path.Dir(name) == "internal/core" && path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go")
	})
	assert.LessOrEqual(t, len(sources), 11, "files")
	methods := 0
	for _, name := range sources {
		methods += len(methodOfCore.FindAllString(read(t, name), -1))
	}
	assert.LessOrEqual(t, methods, 45, "methods of Core")
	assert.Positive(t, methods)
}

var methodOfCore = regexp.MustCompile(`(?m)^func \(\w+ \*?Core\) `)
