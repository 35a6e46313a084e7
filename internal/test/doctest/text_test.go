package doctest_test

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

var (
	machinePath = regexp.MustCompile(`(?:^|[\s"'` + "`" + `=(:])/(?:work|root|home|Users|tmp)/`)
	fences      = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```$")
	inlineCode  = regexp.MustCompile("`[^`\n]*`")
	mdLink      = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	heading     = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
)

func TestTextHoldsNoOddities(t *testing.T) {
	for _, name := range files(t, text) {
		for n, line := range strings.Split(read(t, name), "\n") {
			assert.True(t, utf8.ValidString(line), "%s:%d: not UTF-8", name, n+1)
			assert.NotRegexp(t, machinePath, line, "%s:%d: a path of one machine", name, n+1)
			if i := strings.IndexFunc(line, odd); i >= 0 {
				assert.Fail(t, "invisible or control character", "%s:%d: %+q", name, n+1, line[i:min(i+8, len(line))])
			}
		}
	}
}

// text reports whether people write the file by hand.
func text(name string) bool {
	return slices.Contains([]string{".go", ".lua", ".md", ".mod", ".sh", ".yml"}, path.Ext(name)) ||
		slices.Contains([]string{"Makefile", ".gitignore", ".ci/run"}, name)
}

// odd reports whether nobody sees the rune for what it is. A line's tabs are fine.
func odd(r rune) bool {
	return r != '\t' && (unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Zs, r) && r != ' ')
}

func TestMarkdownLinksLeadSomewhere(t *testing.T) {
	for _, name := range files(t, func(name string) bool { return path.Ext(name) == ".md" }) {
		prose := inlineCode.ReplaceAllString(fences.ReplaceAllString(read(t, name), ""), "")
		for _, link := range mdLink.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(link[1], ":") { // a scheme
				continue
			}
			file, fragment, _ := strings.Cut(link[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			_, err := fs.Stat(repository(), target)
			if assert.NoError(t, err, "%s: link to %s", name, link[1]) && fragment != "" && path.Ext(target) == ".md" {
				assert.Contains(t, anchors(read(t, target)), fragment, "%s: link to %s", name, link[1])
			}
		}
	}
}

// anchors returns the fragments that a markdown file's headings can be linked by.
func anchors(markdown string) []string {
	var found []string
	for _, title := range heading.FindAllStringSubmatch(fences.ReplaceAllString(markdown, ""), -1) {
		found = append(found, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, title[1]))
	}
	return found
}
