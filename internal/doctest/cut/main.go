// Command cut writes the code that markdown files show anew from the Go files that it comes from. It runs at the top of
// the module; see [doctest.Rewrite] for the markers that it follows.
package main

import (
	"fmt"
	"os"

	"github.com/redlatch/redlatch/internal/doctest"
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
	after, err := doctest.Rewrite(os.DirFS("."), string(before))
	if err != nil || after == string(before) {
		return err
	}
	return os.WriteFile(path, []byte(after), 0o644)
}
