package rrwlock

// Option is a setting of a read-write lock.
type Option func(*options)

// options are what a lock was asked for with.
type options struct {
	passes bool // new readers do not heed waiting writers
}

// WithoutWriterPreference lets new readers in while a writer waits: they wait less, and a stream of them keeps writers out for
// as long as it lasts. Without it a writer that waits holds back readers who have no hold yet, for as long as it waits.
//
// It decides what the readers do that are acquired through this very *Lock. Readers of one name in one client stand in one line, so
// use it for all of them or for none.
func WithoutWriterPreference() Option { return func(o *options) { o.passes = true } }
