// Package redlatchprom has the metrics of redlatch clients for Prometheus.
//
//	metrics := redlatchprom.New(redlatchprom.WithNames("orders", "mail"))
//	prometheus.MustRegister(metrics)
//	client, err := redlatch.Open(ctx, url, redlatch.WithObserver(metrics.Observer()))
//	...
//	defer metrics.Watch(client)()
//	defer metrics.WatchQueue(queue)()
//
// A name of an object is a label only if the program has said so: a million names of locks are no million time series. All
// other names are the empty label together. A queue that is watched is always a label of how many messages it has.
package redlatchprom
