// Package rbarrier provides barriers at which a number of participants wait for each other, in any processes.
//
//	barrier := client.GetBarrier("start", 3)
//	err := barrier.Await(ctx) // returns when three have called it
//
// A [Barrier] has round after round: the first n calls make one, the next n the next. A [DoubleBarrier] is for work
// that n participants begin and end together. Info of either tells who has arrived, and so how many are missing.
//
// # What is promised
//
// A round ends alike for all its participants: it is complete when all are there, or it is broken ([ErrBroken]) when
// one of them gives up before, since its context ends or its client closes, or dies, which is noticed 4 to 7 s later,
// or sooner if its client has a lease of less than 5 s (redlatch.WithWatchdogTimeout). The next round starts afresh.
// Only a call that gives up in the moment in which the round becomes complete, or whose answer was lost
// (redlatch.ErrUnknown, or redlatch.ErrClosed if its client closes), returns its own error while the others return nil.
//
// The number of participants is that of the first one. Whoever expects another number is redlatch.ErrInvalid, until the
// barrier has not been used for a minute.
//
// # What is not promised
//
// Redis that loses its data breaks the rounds, and so does a participant that it does not hear of for 5 s, or its
// client's lease if that is less, by its clock, such as a stopped process. A master that fails over may have forgotten
// who has arrived: then the round is broken for those. Redis remembers the last 20,000 participants of ended rounds,
// for a minute: one that has not learned by then how its round has ended gets ErrBroken.
//
// # In Redis
//
// Each participant that waits keeps its place by a call about once a second, or each fifth of a shorter lease, which
// also finds what a lost message has not said. Calls of one client at the same time share a round trip. All keys expire
// within a minute after the last call.
package rbarrier
