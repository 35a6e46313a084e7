// Command cut writes what markdown files take from the code anew: the code that they show (see [doctest.Rewrite] for the
// markers), and the tests of each failure class (see [doctest.ListClasses]); and docs/api.txt, what the module exports. It
// runs at the top of the module.
package main

import (
	"fmt"
	"os"

	"github.com/redlatch/redlatch/internal/test/doctest"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := rewrite(path); err != nil {
			fmt.Fprintf(os.Stderr, "cut: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func rewrite(path string) error {
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after, err := written(path, string(before))
	if err != nil || after == string(before) {
		return err
	}
	return os.WriteFile(path, []byte(after), 0o644)
}

// written returns what the file should be.
func written(path, before string) (string, error) {
	switch path {
	case "docs/api.txt":
		api, err := doctest.API(".")
		return doctest.List(api), err
	case "docs/failure-classes.md":
		classes, err := doctest.FindClasses(os.DirFS("."))
		if err != nil {
			return "", err
		}
		before = doctest.ListClasses(classes, before)
	}
	return doctest.Rewrite(os.DirFS("."), before)
}
