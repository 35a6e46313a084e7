package core

import (
	"strings"
	"time"
)

// Free is what the scripts that look at a lock answer as the rest of the lease of one that nobody holds.
const Free = -2

// MostListed is how many waiters or holders an Info lists, so that no call of a script takes long. Docs name the number.
const MostListed = 100

// Left returns the rest of a lease that a script answered in ms, which is negative for a key without a TTL.
func Left(ms int64) time.Duration {
	if ms < 0 {
		return time.Duration(ms)
	}
	return time.Duration(ms) * time.Millisecond
}

// ClientOf returns the part of an owner id that says whose it is.
func ClientOf(owner string) string {
	client, _, _ := strings.Cut(owner, ":")
	return client
}
