package doctest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxLine is how many characters a line of a generated list has at most.
const maxLine = 116

var (
	classHeading = regexp.MustCompile(`(?m)^## F(\d+)\b`)
	classTests   = regexp.MustCompile(`(?ms)^Tests: .*?(\n\n|\n?\z)`)
	classNamed   = regexp.MustCompile(`\bF0?(\d{1,2})\b`)
)

// Classes are the tests against each class of failures, by package: those whose comment names the class, as in "// F2, F25".
type Classes map[int]map[string][]string

// FindClasses reads the comments of all tests of the module and of interop, other nested modules excepted.
func FindClasses(source fs.FS) (Classes, error) {
	found := Classes{}
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && name != "interop" && nestedModule(source, name):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		return found.add(source, name)
	})
	return found, err
}

func nestedModule(source fs.FS, dir string) bool {
	_, err := fs.Stat(source, path.Join(dir, "go.mod"))
	return err == nil
}

func (c Classes) add(source fs.FS, name string) error {
	text, err := fs.ReadFile(source, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	pkg := path.Dir(name)
	if pkg == "." {
		pkg = "redlatch"
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
			continue
		}
		for class := range classesOf(fn) {
			if c[class] == nil {
				c[class] = map[string][]string{}
			}
			c[class][pkg] = append(c[class][pkg], fn.Name.Name)
		}
	}
	return nil
}

func classesOf(fn *ast.FuncDecl) map[int]bool {
	found := map[int]bool{}
	for _, number := range classNamed.FindAllStringSubmatch(fn.Doc.Text(), -1) {
		if class, err := strconv.Atoi(number[1]); err == nil {
			found[class] = true
		}
	}
	return found
}

// ListClasses returns markdown with the paragraph "Tests: ..." of each section "## F<n>" written anew.
func ListClasses(c Classes, markdown string) string {
	var out strings.Builder
	at := classHeading.FindAllStringSubmatchIndex(markdown, -1)
	begin := 0
	for i, class := range at {
		end := len(markdown)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		number, err := strconv.Atoi(markdown[class[2]:class[3]])
		if err != nil {
			continue
		}
		section := classTests.ReplaceAllString(markdown[class[0]:end], "")
		out.WriteString(markdown[begin:class[0]] + strings.TrimRight(section, "\n") + "\n\n" + c.list(number) + "\n")
		if end < len(markdown) {
			out.WriteString("\n")
		}
		begin = end
	}
	return out.String() + markdown[begin:]
}

// list returns the paragraph that names the tests of a class.
func (c Classes) list(class int) string {
	words := []string{"Tests:"}
	pkgs := slices.Sorted(maps.Keys(c[class]))
	for i, pkg := range pkgs {
		words = append(words, pkg)
		for j, test := range c[class][pkg] {
			after := ","
			switch {
			case j+1 < len(c[class][pkg]):
			case i+1 < len(pkgs):
				after = ";"
			default:
				after = "."
			}
			words = append(words, fmt.Sprintf("`%s`%s", test, after))
		}
	}
	if len(pkgs) == 0 {
		words = append(words, "none.")
	}
	return wrapped(words)
}

// wrapped joins words to lines.
func wrapped(words []string) string {
	lines := []string{words[0]}
	for _, word := range words[1:] {
		if last := &lines[len(lines)-1]; len(*last)+1+len(word) <= maxLine {
			*last += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return strings.Join(lines, "\n")
}
