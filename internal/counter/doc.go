// Package counter sends a client's operations on counters so that each of them takes effect exactly once.
//
// A counter has no owners: Redis cannot tell a repeated operation from a second one. So the operations of one client on
// one name form a lane. They go out one batch at a time, each batch under a number that rises. One key of the client
// beside the object remembers the last number and its reply, and a batch whose number it has seen before is answered
// from there. The next batch goes only when the last one is answered. One whose answer was lost is repeated under its
// number, and then leaves its number even where it changes nothing, so that the lost one can do nothing when it arrives.
// One that was given up without an answer leaves that to the next batch. If none follows before the lane is idle, a lost
// one that arrives after all may still be carried out.
//
// What is asked for while a batch is under way forms the next one: a busy lane costs few round trips. A lane exists
// while there is something to send, and has no goroutine.
//
// Concurrency properties: operations are carried out in the order of Put. Answers are told outside all mutexes, in that
// order, and before the next batch is made. A Book's mutexes are leaves.
package counter
