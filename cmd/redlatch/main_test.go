package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDLATCH_TEST_COMMAND") != "" { // this program is the command, in a terminal that a test has made
		main()
	}
	if os.Getenv("REDLATCH_TEST_SIGNALS") != "" {
		tellSignals()
	}
	redis.SetLogger(silent{}) // as main does
	goleak.VerifyTestMain(m)
}

// tellSignals is a program that tells each signal, until SIGTERM.
func tellSignals() {
	signals := make(chan os.Signal, 100)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	fmt.Println("child of", os.Getppid())
	for s := range signals {
		fmt.Println("got", s)
		if s == syscall.SIGTERM {
			os.Exit(5)
		}
	}
}
