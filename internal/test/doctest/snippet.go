package doctest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

var (
	marker = regexp.MustCompile(`(?m)^<!-- code: .*-->$`)
	block  = regexp.MustCompile("(?ms)^(?:<!-- code: (\\S+#\\w+) -->\n+)?```go\n(.*?)^```$")
	output = regexp.MustCompile(`(?mi)^\s*// (unordered )?output:`)
)

// Rewrite returns markdown with the content of each Go block replaced by the code that its marker names. A marker is a
// line of its own before the block:
//
//	<!-- code: rlock/example_test.go#ExampleLock -->
//
// The name is that of a function, whose body is taken up to its "// Output:" comment, or of a region between the lines
// "// snippet: name" and "// end snippet". A Go block without a marker is an error, as is a marker without a block or
// without code. All errors are returned, joined; the blocks that they concern are left as they are.
func Rewrite(source fs.FS, markdown string) (string, error) {
	var out strings.Builder
	var errs []error
	markers, end := len(marker.FindAllString(markdown, -1)), 0
	for _, at := range block.FindAllStringSubmatchIndex(markdown, -1) {
		code, err := "", errors.New("a Go block without a marker")
		if at[2] >= 0 {
			markers--
			code, err = Cut(source, markdown[at[2]:at[3]])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", 1+strings.Count(markdown[:at[0]], "\n"), err))
			continue
		}
		out.WriteString(markdown[end:at[4]] + code + "\n")
		end = at[5]
	}
	if markers != 0 {
		errs = append(errs, fmt.Errorf("%d markers that no Go block follows", markers))
	}
	return out.String() + markdown[end:], errors.Join(errs...)
}

// Cut returns the code that ref, a file's path and a name joined by #, stands for, without the indentation that its
// lines share.
func Cut(source fs.FS, ref string) (string, error) {
	path, name, _ := strings.Cut(ref, "#")
	src, err := fs.ReadFile(source, path)
	if err != nil {
		return "", err
	}
	code, ok := region(string(src), name)
	if !ok {
		if code, err = body(src, name); err != nil {
			return "", fmt.Errorf("%s: %w", ref, err)
		}
	}
	code = dedent(code)
	if code == "" {
		return "", fmt.Errorf("%s: no code", ref)
	}
	return code, nil
}

// region returns the lines between "// snippet: name" and the next "// end snippet".
func region(src, name string) (string, bool) {
	var lines []string
	inside := false
	for line := range strings.Lines(src) {
		switch text := strings.TrimSpace(line); {
		case text == "// snippet: "+name:
			inside = true
		case inside && text == "// end snippet":
			return strings.Join(lines, ""), true
		case inside:
			lines = append(lines, line)
		}
	}
	return "", false
}

// body returns what stands between the braces of the function, up to its output comment.
func body(src []byte, name string) (string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.ParseComments)
	if err != nil {
		return "", err
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || fn.Body == nil || fn.Name.Name != name {
			continue
		}
		code := string(src[fset.Position(fn.Body.Lbrace).Offset+1 : fset.Position(fn.Body.Rbrace).Offset])
		if at := output.FindStringIndex(code); at != nil {
			code = code[:at[0]]
		}
		return code, nil
	}
	return "", errors.New("neither a function nor a snippet of that name")
}

// dedent drops blank lines around code, the markers of regions in it, and the tabs that all its lines begin with.
func dedent(code string) string {
	lines := slices.DeleteFunc(strings.Split(code, "\n"), func(line string) bool {
		text := strings.TrimSpace(line)
		return strings.HasPrefix(text, "// snippet: ") || text == "// end snippet"
	})
	shared := -1
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if tabs := len(line) - len(strings.TrimLeft(line, "\t")); shared < 0 || tabs < shared {
			shared = tabs
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line[min(max(shared, 0), len(line)):], " \t")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}
