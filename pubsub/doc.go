// Package pubsub routes wake-up messages: one subscription connection carries any number of channels to any number of
// listeners.
//
// A [Router] opens its connection when the first listener joins a channel, subscribes and unsubscribes in batches, and
// closes the connection when no channel was wanted for half a minute. It runs two goroutines at most, whatever the number
// of channels and listeners, and none once the connection was closed for lack of channels.
//
// # What is promised
//
// A listener hears [Listener.Subscribed] when its channel's subscription is confirmed, and once more after every
// reconnection. From each confirmation on it hears every message that Redis sends on this connection, in order: the
// router itself drops none. Subscribing never fails; without permission or without Redis there is only no confirmation
// yet, and the router goes on trying in the background.
//
// # What is not promised
//
// Redis publishes at most once: what was published while the connection was down, or before the confirmation, is lost.
// A message is therefore a hint, and Subscribed means "look again".
package pubsub
