// Package faulttest breaks things on purpose, and watches what comes of it.
//
// A [Proxy] stands between a client and a server and loses, delays and cuts what passes. A [Child] is another process
// that can be killed or stopped at any point. A [Witness] keeps a record of who was in a critical section, a [Monitor]
// of all commands that name a key. [LeakCheck] looks for what a test left on a server.
package faulttest
