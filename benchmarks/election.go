package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/relection"
)

const electionKey = "leader"

// electionSession is an election as a lock: to lock is to be elected, and to unlock to resign.
type electionSession struct{ *redlatchSession }

func openElection(_ context.Context, s setup) (session, error) {
	r, err := newRedlatch(s, reentrantLock)
	if err != nil {
		return nil, err
	}
	return electionSession{r}, nil
}

func (s electionSession) handle(key string) handle {
	return &electionHandle{election: s.client.GetElection(key)}
}

type electionHandle struct {
	election *relection.Election
	lead     *relection.Leadership
}

func (h *electionHandle) Lock(ctx context.Context) (err error) {
	h.lead, err = h.election.Campaign(ctx)
	return err
}

func (h *electionHandle) Unlock(ctx context.Context) error { return h.lead.Resign(ctx) }

// leaderTask is a process that leads until it is killed.
type leaderTask struct {
	Addr  string        `json:"addr"`
	Lease time.Duration `json:"lease"`
}

// leadUntilKilled is the task of a worker that is killed. It is ready when it leads.
func leadUntilKilled(ctx context.Context, task leaderTask, ready func() time.Time) (int64, error) {
	s, err := newRedlatch(setup{Addr: task.Addr, Lease: task.Lease}, reentrantLock)
	if err != nil {
		return 0, err
	}
	lead, err := s.client.GetElection(electionKey).Campaign(ctx)
	if err != nil {
		return 0, err
	}
	ready()
	return lead.Term(), nil
}

// elections measures how soon the next one leads, after the leader was killed, and after it resigned.
func elections(ctx context.Context, b *bench) ([]row, error) {
	killed, err := electAfterKill(ctx, b)
	if err != nil {
		return nil, err
	}
	resigned, err := electAfterResign(ctx, b)
	return append([]row{killed}, resigned...), err
}

func electAfterKill(ctx context.Context, b *bench) (row, error) {
	length, rounds := 1500*time.Millisecond, 8
	if b.config.quick {
		length, rounds = time.Second, 2
	}
	var took []float64 // ms
	for round := range rounds {
		// It is killed at different times since the last renewal.
		d, err := killLeader(ctx, b, length, length+length/3*time.Duration(round)/time.Duration(rounds))
		if err != nil {
			return row{}, err
		}
		took = append(took, d.Seconds()*1000)
	}
	progress("kill -9 of the leader: the next one leads after %s ms", figure(slices.Max(took)))
	return row{
		Measure: fmt.Sprintf("kill -9 of the leader, %s lease: the next one leads, median / worst, ms", length),
		Cells:   map[string][]float64{electionName: {median(took), slices.Max(took)}},
		Rounds:  samples{electionName: took},
		Targets: []target{atMost("ms (lease + 200 ms), worst", float64(length.Milliseconds()+200), slices.Max(took))},
	}, nil
}

// killLeader returns the time from the end of the leader's process until a candidate in this one leads.
func killLeader(ctx context.Context, b *bench, length, held time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	leader, err := startWorker(ctx, "leader", leaderTask{b.server.addr, length})
	if err != nil {
		return 0, err
	}
	defer leader.end()
	if err := leader.awaitReady(); err != nil {
		return 0, err
	}
	s, err := newRedlatch(setup{Addr: b.server.addr, Lease: length}, reentrantLock)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close(), b.server.empty(ctx)) }()
	e := s.client.GetElection(electionKey)
	before, err := e.Leader(ctx)
	if err != nil {
		return 0, err
	}
	var at time.Time
	var lead *relection.Leadership
	elected := make(chan error, 1)
	go func() { // ends with ctx at the latest; the receive below waits for it
		var err error
		lead, err = e.Campaign(ctx)
		at = time.Now()
		elected <- err
	}()
	time.Sleep(held) // renewed meanwhile, or the candidate is elected before the kill
	killed := time.Now()
	leader.end()
	if err := <-elected; err != nil {
		return 0, err
	}
	took = at.Sub(killed)
	switch {
	case took < length/4:
		err = fmt.Errorf("the next one led %s after the kill of a leader that was renewed", took)
	case lead.Term() <= before.Term:
		err = fmt.Errorf("term %d came after %d", lead.Term(), before.Term)
	}
	return took, errors.Join(err, lead.Resign(ctx))
}

// electAfterResign measures the time from a Resign to the next leader beside a hand-off of locks, as the section handoff does.
func electAfterResign(ctx context.Context, b *bench) ([]row, error) {
	duels, _, err := duelsOf(ctx, b, electionName, redlatchName, fairName)
	if err != nil {
		return nil, err
	}
	rows := handoffRows("Resign, or a hand-off of a lock, between two idle clients", duels)
	handoffs := rows[0].Cells
	ratio := handoffs[electionName][0] / handoffs[redlatchName][0]
	progress("Resign: %s hand-offs' time", figure(ratio))
	rows[0].Targets = []target{atMost("× hand-off of the reentrant lock, p50", 2, ratio)}
	return rows, b.server.empty(ctx)
}
