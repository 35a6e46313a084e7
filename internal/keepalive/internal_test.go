package keepalive

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// A million leases are a supported load, in groups that may each have one member.
func TestMemberAndGroupStaySmall(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Member{}), uintptr(72))
	assert.LessOrEqual(t, unsafe.Sizeof(group{}), uintptr(208))
}
