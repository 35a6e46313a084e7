package redistest

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Long skips the test unless REDLATCH_LONG=1 asks for the long ones: those that take more than 3 s alone.
func Long(tb testing.TB) {
	tb.Helper()
	if os.Getenv("REDLATCH_LONG") != "1" {
		Skip(tb, "long: set REDLATCH_LONG=1")
	}
}

// Skip skips the test and appends the reason to the file that REDLATCH_SKIPPED names, from which make test counts.
func Skip(tb testing.TB, reason string) {
	tb.Helper()
	if name := os.Getenv("REDLATCH_SKIPPED"); name != "" {
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := fmt.Fprintln(file, reason); err != nil {
			tb.Error(err)
		}
		if err := file.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Skip(reason)
}

// parallel is how many tests of a binary run at once: more than there are CPUs, since most of them wait.
const parallel = "8"

// setParallel sets -parallel unless the command line does.
func setParallel() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", parallel)
}
