// Package counter sends a client's operations on counters so that each of them takes effect exactly once.
//
// A counter has no owners: Redis cannot tell a repeated operation from a second one. So the operations of one client on
// one name form an operation log. They go out one batch at a time, each batch under a number that rises. One key of the
// client beside the object records the last number and its reply, and a batch whose number is recorded is answered from
// there. The next batch goes out only when the last one is answered. A batch without a certain answer is sent again under
// its number, and then records its number even if it changes nothing, so that a late sending of it has no effect. Until a
// repetition is answered its outcome is unknown, whatever error a repetition meets. A batch that was given up without an
// answer leaves the recording to the next batch. If none follows before the log is idle, a late sending may still be
// carried out.
//
// What is asked for while a batch is in flight forms the next one: a busy log costs few round trips. A log exists while
// there is something to send, and has no goroutine.
//
// Concurrency properties: operations are carried out in the order of Put. Answers are delivered outside all mutexes, in
// that order, and before the next batch is made. A Manager's mutexes are leaves.
package counter
