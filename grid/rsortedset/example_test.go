package rsortedset_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rsortedset"
)

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if err := showBest(ctx, client); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ann 31
	// cyd 27
}

func showBest(ctx context.Context, client *redlatch.Client) error {
	scores := rsortedset.New[string](client, "scores")
	for name, score := range map[string]float64{"ann": 31, "bob": 12, "cyd": 27} {
		if _, err := scores.Add(ctx, name, score, rsortedset.IfGreater()); err != nil {
			return err
		}
	}
	best, err := scores.RangeDesc(ctx, 0, 1)
	for _, e := range best {
		fmt.Println(e.Value, e.Score)
	}
	return err
}
