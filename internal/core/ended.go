package core

import "context"

// EndedContext returns a context that has ended, with that cause: the one of a hold that does not exist.
func EndedContext(cause error) context.Context {
	ctx, end := context.WithCancelCause(context.Background()) //nolint:forbidigo // it ends here
	end(cause)
	return ctx
}
