// Package rtopic provides topics: every process that subscribes to one receives the values that others publish.
//
//	prices := redlatch.GetTopic[Price](client, "prices")
//	sub, err := prices.Subscribe(ctx)
//	if err != nil {
//		return err
//	}
//	defer sub.Close()
//	for price, err := range sub.All() {
//		var gap *rtopic.Gap
//		switch {
//		case errors.As(err, &gap): // values are missing; what follows is complete again
//			reload()
//		case err != nil:
//			return err
//		default:
//			show(price)
//		}
//	}
//	...
//	receivers, err := prices.Publish(ctx, Price{"ACME", 17}) // in any process
//
// # What is promised
//
// A subscription receives each value at most once, in the order in which the server published the values of the topic. When
// Subscribe has returned, it receives every later value, until a [Gap] says that values are missing: since the connection
// was lost, or since the loop is slower than the topic. After a Gap it goes on with the values that follow. A Gap of a lost
// connection comes when the subscription is confirmed again: what a loop reads elsewhere after that is no older than what
// it has missed.
//
// All subscriptions of a client share one connection, and those of one topic one subscription in Redis. They have no
// goroutine of their own. A slow loop holds up nothing but itself.
//
// # What is not promised
//
// Redis keeps no values: what is published while nobody subscribes is lost, and so is what is published while a connection
// is lost. For values that must not be lost use a queue.
//
// Redis closes a connection to which it cannot send fast enough (client-output-buffer-limit pubsub, by default 32 MB, or 8
// MB for a minute). That is a Gap of all topics of the client, and it delays the wake-ups of its other objects, which come
// on the same connection unless the client uses sharded channels. Give a topic of many megabytes a second a client of its
// own.
//
// On a cluster Redis forwards values from node to node. What is lost there, if the link between two nodes breaks, leaves no
// Gap.
//
// # Redisson
//
// A topic is an RTopic of the same name, and a pattern topic an RPatternTopic, if both sides use the same codec:
// codec.Text is Redisson's StringCodec, codec.JSON its TypedJsonJacksonCodec. On a cluster topics use plain channels
// like these, whatever redlatch.WithShardedWakeups says; values of an RShardedTopic are not received.
package rtopic
