package rbarrier_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	faulttest.RegisterChild("arrival", arrival)
	faulttest.RegisterChild("participation", participation)
	faulttest.RunChildIfAsked()
	os.Exit(redistest.Run(m))
}
