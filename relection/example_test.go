package relection_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/relection"
)

func Example() {
	ctx := context.Background()
	client, err := embedded.Open() // in production: redlatch.Open(ctx, "redis://...")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	election := client.GetElection("scheduler")

	lead, err := election.Campaign(ctx, relection.WithValue("web-3:8080")) // blocks until elected
	if err != nil {
		log.Fatal(err)
	}
	leader, err := election.Leader(ctx) // in any process
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(leader.Value, leader.Term == lead.Term())

	if err := lead.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = election.Leader(ctx)
	fmt.Println(errors.Is(err, relection.ErrNoLeader))
	// Output:
	// web-3:8080 true
	// true
}

// Run is all that a process needs which leads whenever it can.
func ExampleElection_Run() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// snippet: run
	err = client.GetElection("scheduler").Run(ctx, func(ctx context.Context, term int64) error {
		fmt.Println("leading") // under ctx, which ends with the leadership; term goes along with what is written
		stop()
		<-ctx.Done()
		return nil
	}, relection.WithValue("web-3:8080"))
	// end snippet
	fmt.Println(err)
	// Output:
	// leading
	// <nil>
}

// Observe follows the leader.
func ExampleElection_Observe() {
	ctx := context.Background()
	client, err := embedded.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	election := client.GetElection("scheduler")
	lead, err := election.Campaign(ctx, relection.WithValue("web-3:8080"))
	if err != nil {
		log.Fatal(err)
	}

	// snippet: observe
	for leader, err := range election.Observe(ctx) {
		switch {
		case errors.Is(err, relection.ErrNoLeader):
			fmt.Println("nobody leads")
			return
		case err != nil:
			log.Fatal(err)
		}
		fmt.Println("ask", leader.Value)
		if err := lead.Resign(ctx); err != nil { // so that this example ends
			log.Fatal(err)
		}
	}
	// end snippet
	// Output:
	// ask web-3:8080
	// nobody leads
}
