package interop_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWatchdogsKeepEveryKindBeyondItsLease(t *testing.T) {
	renewed := []kind{plain, fenced, fair, write, reading, multi}
	everywhere(t, atOnce(func(t *testing.T, p *place) { keeps(t, p, renewed, append(renewed[:6:6], permit)) }))
}

func TestWatchdogsKeepARedLockBeyondItsLease(t *testing.T) {
	onThreeServers(t, atOnce(func(t *testing.T, p *place) { keeps(t, p, []kind{red}, []kind{red}) }))
}

// keeps has each side hold all these kinds at once while the other one waits for longer than a lease.
func keeps(t *testing.T, p *place, inJava, inGo []kind) {
	t.Helper()
	g, j := p.goSide(t), p.javaSide()
	type held struct {
		kind
		attempt *attempt
		holder  side
		got     chan bool
	}
	var all []*held
	begin := func(holder, other side, kinds []kind) {
		for _, k := range kinds {
			name := k.made(t, g)
			h := &held{kind: k, attempt: hold(t, holder, k, name), holder: holder, got: make(chan bool, 1)}
			all = append(all, h)
			go func() { // ends with the wait
				got, err := other.try(k.rival(), name, lease+lease/2)
				assert.NoError(t, err)
				h.got <- got
			}()
		}
	}
	begin(j, g, inJava)
	begin(g, j, inGo)
	for _, h := range all {
		assert.False(t, <-h.got, "%s of %s was free", h.java, h.holder)
	}
	for _, h := range all {
		require.NoError(t, h.attempt.release(), "%s of %s", h.java, h.holder)
	}
}

// rival is what cannot be held beside this kind.
func (k kind) rival() kind {
	if k.java == reading.java {
		return write
	}
	return k
}
