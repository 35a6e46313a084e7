package inspect

import (
	"context"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rbarrier"
)

// Barriers are the barrier and the double barrier of a name, which may both be in use.
type Barriers struct {
	Name    string
	Barrier *rbarrier.Info // nil if it is not in use
	Double  *rbarrier.Info // likewise
}

// BarriersOf asks for the state of the barriers of a name.
func BarriersOf(ctx context.Context, c *redlatch.Client, name string) (Barriers, error) {
	b := Barriers{Name: name}
	barrier, err := c.GetBarrier(name, 1).Info(ctx) // whatever number it has
	if err != nil {
		return b, err
	}
	double, err := c.GetDoubleBarrier(name, 1).Info(ctx)
	if barrier.Participants > 0 {
		b.Barrier = &barrier
	}
	if double.Participants > 0 {
		b.Double = &double
	}
	return b, err
}

// InUse returns those that are in use.
func (b *Barriers) InUse() (all []*rbarrier.Info) {
	for _, one := range []*rbarrier.Info{b.Barrier, b.Double} {
		if one != nil {
			all = append(all, one)
		}
	}
	return all
}
