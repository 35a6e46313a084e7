package rsortedset_test

import (
	"context"
	"fmt"
	"log"

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

	scores := rsortedset.New[string](client, "scores")
	for name, score := range map[string]float64{"ann": 31, "bob": 12, "cyd": 27} {
		if _, err := scores.Add(ctx, name, score, rsortedset.IfGreater()); err != nil {
			log.Fatal(err)
		}
	}
	best, err := scores.RangeDesc(ctx, 0, 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range best {
		fmt.Println(e.Value, e.Score)
	}
	// Output:
	// ann 31
	// cyd 27
}
