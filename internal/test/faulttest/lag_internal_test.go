package faulttest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSteadyRepeatsWhatTheMachineMayHaveSpoilt(t *testing.T) {
	errBad := errors.New("bad")
	for what, tc := range map[string]struct {
		stills []time.Duration
		errs   []error
		runs   int
		want   error
	}{
		"good":                     {[]time.Duration{0}, []error{nil}, 1, nil},
		"good on a busy machine":   {[]time.Duration{time.Minute}, []error{nil}, 1, nil},
		"bad on a calm machine":    {[]time.Duration{100 * time.Millisecond}, []error{errBad}, 1, errBad},
		"spoilt, then good":        {[]time.Duration{101 * time.Millisecond, 0}, []error{errBad, nil}, 2, nil},
		"spoilt, then calm":        {[]time.Duration{101 * time.Millisecond, 400 * time.Millisecond}, []error{errBad, errBad}, 2, errBad},
		"bad whatever the machine": {[]time.Duration{time.Minute, time.Minute, time.Minute}, []error{errBad, errBad, errBad}, 3, errBad},
	} {
		runs, lease := 0, time.Second
		err := steady(lease, 10, func(given time.Duration) (time.Duration, error) {
			require.Equal(t, lease, given, what)
			runs++
			lease *= steadyStretch
			return tc.stills[runs-1], tc.errs[runs-1]
		})
		require.Equal(t, tc.want, err, what)
		require.Equal(t, tc.runs, runs, what)
	}
}
