//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// Freeze is not supported on this system.
func Freeze(*os.Process) error { return errors.ErrUnsupported }

// Thaw has nothing to do on this system.
func Thaw(*os.Process) error { return nil }
