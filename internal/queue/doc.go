// Package queue is the delayed queue on bytes: its layout in Redis, which states.md shows, its scripts, and how a client
// waits for messages without asking again and again. Package rdelayedqueue gives it types.
//
// What one redlatch client does with one queue goes through a [client], which exists only while there is something to do. It has
// batchers, which gather the offers, acknowledgements and the like of all goroutines into few script calls, and one claimer, which
// claims messages for all who want some. A claimer whose claim finds less than is wanted is told when to come back, hears wake-ups until
// then, and costs nothing.
//
// A script that makes a message due earlier publishes the wake-up itself, so that none is lost with a reply or a process. What
// changes the queue and may be repeated carries a number of its client, see [callNumber]. In every script all that an ACL may
// forbid comes before the first change that matters: an error reply says that the message is where it was.
package queue
