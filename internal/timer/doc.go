// Package timer schedules very many timers on one goroutine, and runs what they start: setting and stopping one takes
// constant time and allocates nothing, whether a hundred are set or a million.
//
// # Guarantees
//
// Time is cut into ticks of a millisecond. A timer fires with the first tick that begins at its time or after it: never early, and
// late by less than 1 ms and what the scheduler, and the batches before it, take. A timer whose Stop returned true is not delivered.
//
// The goroutine starts with the first Set. It sleeps until the next tick for which there is something to do, and without
// end while no timer is set; a Stop does not shorten a sleep, so that one idle wake-up may follow it.
//
// # Structure
//
// Four levels of 256 slots hold the timers: slots of 1 ms, 256 ms, 65.5 s and 4.66 h. A timer sits in the finest level
// that reaches its time, and moves to a finer one when its slot begins. One beyond the last level, 49 days away, waits in the
// farthest slot and is placed again from there.
//
// # The clock
//
// The wheel takes its time from a function of the caller, which may jump ahead of the time by which goroutines sleep: a
// suspended machine's does. So the wheel wakes to read it once a second while timers are set, and what a jump made due
// fires within that second. In an idle process that costs 0.1 ms of processor time a second, most of it the runtime's.
//
// # Limits
//
// Timers that fire together come in no particular order. After many timers were set for one far slot, moving them takes
// about a tenth of a second per million; those among them that are due first are late by up to that, others are not.
package timer
