// Package option applies the options of a call.
//
// Public packages declare an option as an interface with an unexported method, and implement it by a function:
//
//	type Option interface{ set(o *options) }
//
//	type setting func(*options)
//
//	func (s setting) set(o *options) { s(o) }
//
//	func WithTTL(d time.Duration) Option { return setting(func(o *options) { o.ttl = d }) }
//
// An option that fits several places has one such method for each of them.
package option

import "github.com/redlatch/redlatch/internal/errs"

// Apply calls set for each option, in order, with to. It returns [errs.ErrNilOption] at the first option that is nil. O is
// an interface, and set its method: option.Apply(opts, &o, Option.set).
func Apply[O, S any](opts []O, to *S, set func(O, *S)) error {
	for _, opt := range opts {
		if any(opt) == nil {
			return errs.ErrNilOption
		}
		set(opt, to)
	}
	return nil
}
