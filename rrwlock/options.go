package rrwlock

// Option is a setting of a read-write lock.
type Option interface{ set(o *options) }

type setting func(*options)

func (s setting) set(o *options) { s(o) }

// options are the settings of a lock.
type options struct {
	passes bool // new readers enter while writers wait
}

// WithoutWriterPreference lets new readers in while a writer waits. Readers then wait less, and a stream of readers
// keeps writers out for as long as it lasts. By default a waiting writer holds back readers that have no hold yet.
//
// It applies to the readers that are acquired through this *Lock. Readers of one name in one client share a wait queue,
// so use it for all of them or for none.
func WithoutWriterPreference() Option { return setting(func(o *options) { o.passes = true }) }
