package main

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

//go:embed queue_note.lua
var queueNoteSource string

const notesKey = "notes:{" + queueLock + "}"

// turnTask is what one process does of a fair lock's order.
type turnTask struct {
	Addr       string `json:"addr"`
	Goroutines int    `json:"goroutines"`
	Turns      int    `json:"turns"` // for each goroutine
}

// takeTurns is the task of a worker whose goroutines queue for a fair lock, and note down who is there when they have it. It returns
// how often that was.
func takeTurns(ctx context.Context, task turnTask, ready func() time.Time) (int, error) {
	s, err := newRedlatch(setup{Addr: task.Addr, Lease: lease}, fairLock)
	if err != nil {
		return 0, err
	}
	sha, err := s.rdb.ScriptLoad(ctx, queueNoteSource).Result()
	if err != nil {
		return 0, errors.Join(err, s.close())
	}
	note := func(ctx context.Context) error {
		return s.rdb.EvalSha(ctx, sha, []string{queueLock, queueKey, notesKey}).Err()
	}
	time.Sleep(time.Until(ready()))
	var running errgroup.Group
	for range task.Goroutines {
		h := s.handle(queueLock)
		running.Go(func() error {
			for range task.Turns {
				if err := h.Lock(ctx); err != nil {
					return err
				}
				if err := errors.Join(note(ctx), h.Unlock(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = running.Wait()
	return task.Goroutines * task.Turns, errors.Join(err, s.close())
}
