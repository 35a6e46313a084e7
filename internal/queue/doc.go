// Package queue is the delayed queue on bytes: its layout in Redis, its scripts, and how a client waits for messages
// without asking again and again. Package rdelayedqueue gives it types.
//
// What one client does with one queue goes through a [hub], which exists only while there is something to do: it gathers
// offers, acknowledgements and the like of all goroutines into few script calls, and has one [lane], which claims messages for
// all who want some. A lane that finds nothing due asks Redis when to come back, hears wake-ups until then, and costs nothing.
package queue
