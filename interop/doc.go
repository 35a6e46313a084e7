// Package interop has the tests of this library beside real Redisson, in a module of its own. A Java process does what
// the tests tell it, so that all logic is in Go. They need redis-server, Java 17 and Maven, and are skipped without;
// REDLATCH_REQUIRE_JAVA=1 makes that a failure.
package interop
