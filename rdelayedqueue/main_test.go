package rdelayedqueue_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	registerChildren()
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}

func registerChildren() {}
