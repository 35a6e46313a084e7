package redistest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// injected counts the faults that the tests of this binary have made.
//
//nolint:gochecknoglobals // One per test binary is what it is for.
var injected struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

// Injected counts a fault that a test makes. [Run] prints the counts under go test -v, and make soak adds them up.
func Injected(fault string) {
	injected.mu.Lock()
	defer injected.mu.Unlock()
	if injected.counts == nil {
		injected.counts = map[string]int{}
	}
	injected.counts[fault]++
}

// InjectedLine begins the line of the counts.
const InjectedLine = "redistest: injected "

func printInjected() {
	injected.mu.Lock()
	defer injected.mu.Unlock()
	if len(injected.counts) == 0 || !testing.Verbose() {
		return
	}
	text, err := json.Marshal(injected.counts)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s%s\n", InjectedLine, text)
}
