package rratelimiter

import "errors"

// ErrExceeds is returned (wrapped) by Allow and Wait for more tokens than the capacity, and by Wait when the deadline of its
// context would be over before the tokens are there. Nothing was taken.
var ErrExceeds = errors.New("more than the rate allows")
