package core

// Client is a client of the library, as the constructors of objects take it. Only *redlatch.Client implements it.
type Client interface {
	ID() string
	core() *Core
}

// Handle is a [Client], and makes one of what embeds it.
type Handle struct{ shared *Core }

// HandleOf returns the handle of a client with this core.
func HandleOf(c *Core) Handle { return Handle{c} }

// ID returns the id of the client.
func (h Handle) ID() string { return h.shared.ID }

func (h Handle) core() *Core { return h.shared }

// Of returns the core of a client. It panics if the client is nil.
func Of(c Client) *Core { return c.core() }
