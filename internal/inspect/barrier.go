package inspect

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rbarrier"
)

// Barriers are the barrier and the double barrier of a name.
type Barriers struct {
	Name  string
	InUse []rbarrier.Info // those of the two that are in use, the double one last
}

// BarriersOf asks for the state of the barriers of a name. A key of another program in place of one hides the other only if that is
// not in use.
func BarriersOf(ctx context.Context, c *redlatch.Client, name string) (Barriers, error) {
	b := Barriers{Name: name, InUse: []rbarrier.Info{}}
	var wrong error
	for _, get := range []func(context.Context) (rbarrier.Info, error){
		c.GetBarrier(name, 1).Info, c.GetDoubleBarrier(name, 1).Info, // whatever number they have
	} {
		i, err := get(ctx)
		switch {
		case errors.Is(err, redlatch.ErrWrongType):
			wrong = err
		case err != nil:
			return b, err
		case i.InUse():
			b.InUse = append(b.InUse, i)
		}
	}
	if len(b.InUse) > 0 {
		wrong = nil
	}
	return b, wrong
}
