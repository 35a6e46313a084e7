package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

// departing is a kind that tells of each call by which a waiter leaves, before it is sent.
type departing struct {
	bare
	leaving chan struct{}
	before  func()
}

func (l departing) Leave(key, _ any) *script.Call {
	l.before()
	l.leaving <- struct{}{}
	return script.New("return 0").Call(1, key)
}

// A try that was given up may run in Redis after the call that takes its waiter out, and be answered before that one is. What
// it was granted is only freed by a call that was sent after its answer.
func TestWaiterLeavesAgainAfterTheAnswerToALateTry(t *testing.T) {
	mini := miniredis.RunT(t)
	var p *stand
	var once sync.Once
	answered := func() { once.Do(func() { p.Late(script.New("return 1").Call(1, "orders")) }) }
	kind := departing{leaving: make(chan struct{}, 10), before: answered}
	s := spaceOf(t, kind, mini.Addr(), core.Config{Lease: time.Minute})
	name := s.Name("orders")
	p = name.stand(&Options{})
	p.asked = true
	p.unanswered(s.core.Clock.Now() + time.Minute)
	p.leave()
	<-kind.leaving
	select {
	case <-kind.leaving:
	case <-time.After(10 * time.Second):
		assert.Fail(t, "it has not left again")
	}
}
