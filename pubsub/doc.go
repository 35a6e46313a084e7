// Package pubsub routes wake-up messages: one subscription connection carries any number of channels for any number of
// listeners.
//
// A [Router] opens its connection when the first listener joins a channel, subscribes and unsubscribes in batches, and
// closes the connection when it has had no channels for half a minute. It runs two goroutines at most, for any number
// of channels and listeners, and none after it has closed an unused connection. [Shards] does the same on a cluster with a
// Router for each master, for channels whose messages reach that master alone.
//
// A router also carries patterns (PSUBSCRIBE), each like a channel.
//
// # What is promised
//
// [Listener.Subscribed] is called when the channel's subscription is confirmed, and again after every reconnection.
// From a confirmation on, the listener receives every message that Redis sends on the connection, in order: the router
// drops none until [Lost] says that the subscription has ended, for listeners that implement it. A connection that fails
// says so at once, and one that falls silent within 20 s. Subscribing never fails: without permission or without Redis it is not confirmed, and the router keeps
// trying in the background.
//
// # What is not promised
//
// Redis publishes at most once: a message published while the connection is down, or before the confirmation, is lost.
// A message is therefore a hint, and Subscribed means "look again".
package pubsub
