package keepalive

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/core"
)

// A million leases are a supported load, in groups that may each have one member.
func TestMemberAndGroupStaySmall(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Member{}), uintptr(72))
	assert.LessOrEqual(t, unsafe.Sizeof(group{}), uintptr(208))
}

// held is a lease that is held.
type held struct {
	mu     sync.Mutex
	member Member
}

func (*held) Due(time.Duration)     {}
func (h *held) Mutex() *sync.Mutex  { return &h.mu }
func (*held) Ref() (key, owner any) { return nil, nil }
func (*held) Gone() bool            { return true }
func (*held) Verify()               {}
func (*held) HeldLocked() bool      { return true }
func (*held) ArmLocked()            {}

func (*held) RenewalLocked(time.Duration) (CallKey, time.Duration, bool) { return CallKey{}, 0, false }

// A hand-off may look at a lease between the end of its group's call and the news of that.
func TestMemberThatLeavesWhileItsRenewalFailsIsNotFresh(t *testing.T) {
	g := &group{renewer: &Renewer{core: &core.Core{Config: core.Config{Lease: 30 * time.Second}}}, phase: dissolved}
	h := &held{}
	h.member.Timer.Task = h
	h.member.group = g
	h.member.Leave()
	assert.False(t, h.member.Fresh())
	h.member.renewed(g, outcome{next: time.Second, state: failed})
	assert.False(t, h.member.Fresh())
	assert.Equal(t, time.Second, h.member.Next())
	h.member.renewed(g, outcome{end: time.Minute})
	assert.Equal(t, time.Minute, h.member.End(), "a late answer counts")
}
