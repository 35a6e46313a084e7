package locker

// Sealed is embedded in this module's kinds of lock, by an alias with a small letter: it gives them the unexported method of
// rlock.Locker, and names the lock for a multi-lock.
type Sealed struct {
	name *Name // nil for a lock that is made of others
}

// Seal returns what a lock of the given name embeds.
func Seal(n *Name) Sealed { return Sealed{n} }

func (s Sealed) sealed() *Name { return s.name }

// Locker is the part of rlock.Locker that only this module's locks have.
type Locker interface{ sealed() *Name }

// NameOf returns the name of a lock; nil if it is made of others, or of nothing.
func NameOf(l Locker) *Name { return l.sealed() }
