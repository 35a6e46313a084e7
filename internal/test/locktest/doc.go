// Package locktest holds what the tests of all kinds of lock share: one conformance suite, the places where it runs, and
// an in-memory server in a bubble of fake time, whose connections can be watched and broken.
package locktest
