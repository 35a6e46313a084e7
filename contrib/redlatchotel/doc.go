// Package redlatchotel has the traces and metrics of redlatch clients for OpenTelemetry.
//
//	telemetry, err := redlatchotel.New()
//	...
//	client, err := redlatch.Open(ctx, url, redlatch.WithObserver(telemetry.Observer()))
//
// There is a span for each call that acquires a lock or permit, for each call that offers messages, and for each handler of a
// message, which is a child of the offer: the context of the trace travels with the message. [WithScripts] adds one, and a
// metric, for each script that is sent to Redis. Attributes and metrics for messages and for Redis are those of OpenTelemetry's
// semantic conventions where they fit.
//
// Of several observers that begin spans this one has to be the last option: a span is found by the context that the last of them
// has returned.
package redlatchotel
