// Package redistest starts real Redis and Valkey servers for tests: single ones, replicas, clusters and Sentinel groups.
//
// Every server listens on a free port of 127.0.0.1, keeps nothing on disk and ends with its test. On Linux it also ends
// when the test binary is killed. Tests are skipped where no server is installed, unless REDLATCH_REQUIRE_REDIS=1
// asks for a failure instead. Tests that take seconds call [Long] and run with REDLATCH_LONG=1 only.
package redistest
