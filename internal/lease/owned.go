package lease

import "github.com/redlatch/redlatch/internal/names"

// Owned are the owner ids that are in use in a client, by the names of their locks: those that callers chose, and those that
// an unsettled try haunts. The client's registries of locks share one, since the kinds keep their owners in the same hash:
// under one id leases of one name would take each other over, and what settles a try of one would end another.
// It is safe for concurrent use.
type Owned struct {
	byName *names.Table[map[ownID]*stand] // the stand that haunts an id, or nil
}

// ownID is an owner id of a name. A share that is taken beside a lease has the same one.
type ownID struct {
	owner  string
	beside bool
}

// NewOwned returns a set without any.
func NewOwned() *Owned { return &Owned{names.New[map[ownID]*stand]()} }

// take has an id be in use, unless it is already.
func (o *Owned) take(name string, id ownID) bool {
	p := o.byName.Part(name)
	p.Lock()
	defer p.Unlock()
	if _, used := p.Of[name][id]; used {
		return false
	}
	put(p, name, id, nil)
	return true
}

// haunt has an unsettled try of a stand keep an id in use.
func (o *Owned) haunt(name string, id ownID, by *stand) {
	p := o.byName.Part(name)
	p.Lock()
	defer p.Unlock()
	put(p, name, id, by)
}

// get returns the stand that haunts an id, if one does, and whether the id is in use.
func (o *Owned) get(name string, id ownID) (by *stand, used bool) {
	p := o.byName.Part(name)
	p.Lock()
	defer p.Unlock()
	by, used = p.Of[name][id]
	return by, used
}

// free has an id be in use no more.
func (o *Owned) free(name string, id ownID) {
	p := o.byName.Part(name)
	p.Lock()
	defer p.Unlock()
	ids := p.Of[name]
	delete(ids, id)
	if len(ids) == 0 {
		delete(p.Of, name)
	}
}

func put(p *names.Part[map[ownID]*stand], name string, id ownID, by *stand) {
	ids := p.Of[name]
	if ids == nil {
		ids = map[ownID]*stand{}
		p.Of[name] = ids
	}
	ids[id] = by
}
