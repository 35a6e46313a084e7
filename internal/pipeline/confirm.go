package pipeline

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed touch.lua
var touchSource string

var touch = script.Embedded("redlatch.touch", &touchSource) //nolint:gochecknoglobals // a constant in all but name

// Confirmation is who has to confirm what a call wrote, and how long the call waits for them after the master did it.
type Confirmation struct {
	Replicas int // that must have it; 0 for the master's append-only file
	Timeout  time.Duration
}

// Command returns the command that waits for the confirmation.
func (c Confirmation) Command() string {
	if c.Replicas > 0 {
		return "wait"
	}
	return "waitaof"
}

// ask adds the command to a pipeline. The result is called after that has ended; it returns why the confirmation is missing.
func (c Confirmation) ask(ctx context.Context, pipe redis.Pipeliner) (missing func() error) {
	if c.Replicas > 0 {
		wait := pipe.Do(ctx, "wait", c.Replicas, script.Millis(c.Timeout))
		return func() error {
			n, err := wait.Int()
			if err != nil || n >= c.Replicas {
				return err
			}
			return fmt.Errorf("by %d of %d replicas within %v", n, c.Replicas, c.Timeout)
		}
	}
	wait := pipe.Do(ctx, "waitaof", 1, 0, script.Millis(c.Timeout))
	return func() error {
		copies, err := wait.Int64Slice()
		if err != nil || len(copies) > 0 && copies[0] > 0 {
			return err
		}
		return fmt.Errorf("by the master's disk within %v", c.Timeout)
	}
}

// ConfirmationTime returns how much longer than others a call may take that has to be confirmed.
func (b *Batcher) ConfirmationTime() time.Duration {
	total := time.Duration(0)
	for _, c := range b.Confirmations {
		total += c.Timeout
	}
	return total
}

// sendConfirmed sends calls and waits until what they wrote is confirmed. It must use one connection of one node for both, so on a
// cluster it cannot leave it to go-redis to find the node: a call whose key is elsewhere returns a redirection.
func (b *Batcher) sendConfirmed(calls []*script.Call) {
	longer := b.ConfirmationTime()
	ctx, cancel := context.WithDeadline(b.life, b.flushEnd(time.Now().Add(b.limit+longer)))
	defer cancel()
	nodes := map[*redis.Client][]*script.Call{} // one, but before the layout is known and for keys that have moved since
	for _, call := range calls {
		node, err := b.nodeOf(ctx, call)
		if err != nil {
			call.SetErr(fmt.Errorf("%w: %w: %w", script.ErrNotSent, script.ErrNoAnswer, err))
			b.Reload()
			continue
		}
		nodes[node] = append(nodes[node], call)
	}
	for node, calls := range nodes {
		b.confirmedPipeline(ctx, b.hooked(boundedClient(node, longer)), calls)
	}
}

// nodeOf returns the client of the master that has the call's key.
func (b *Batcher) nodeOf(ctx context.Context, call *script.Call) (*redis.Client, error) {
	if b.cluster == nil {
		node, _ := b.rdb.(*redis.Client)
		return node, nil
	}
	node, err := b.cluster.MasterForKey(ctx, call.Key())
	if err == nil {
		b.known.Store(true)
	}
	return node, err
}

// confirmedPipeline sends calls to the node of their keys. All scripts go with their text: one that the node does not know would cost
// the time of the confirmation twice.
func (b *Batcher) confirmedPipeline(ctx context.Context, node *redis.Client, calls []*script.Call) {
	defer b.observeAll(ctx, calls)()
	b.flushes.Add(1)
	pipe := node.Pipeline()
	touches := make([]*script.Call, len(calls)) // a key of each: what becomes of one call says nothing of the others
	for i, call := range calls {
		call.Resend()
		_ = pipe.Process(ctx, call) // it only queues
		touches[i] = touch.Call(1, call.Key())
		touches[i].Resend()
		_ = pipe.Process(ctx, touches[i])
	}
	missing := make([]func() error, len(b.Confirmations))
	for i, c := range b.Confirmations {
		missing[i] = c.ask(ctx, pipe)
	}
	_, err := pipe.Exec(ctx)
	var unconfirmed error
	for _, missing := range missing {
		unconfirmed = cmp.Or(unconfirmed, missing())
	}
	for i, call := range calls {
		b.unanswered(call, err)
		b.layout.doubt(call.Err())
		switch why := cmp.Or(touches[i].Err(), unconfirmed); {
		case redirected(call.Err()): // go-redis sees no redirection of a single node's client
			b.Reload()
		case call.Err() == nil && why != nil:
			call.Unconfirmed = fmt.Errorf("%w: %w", errs.ErrNotConfirmed, why)
		}
	}
}
