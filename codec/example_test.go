package codec_test

import (
	"fmt"
	"log"
	"time"

	"github.com/redlatch/redlatch/codec"
)

func Example() {
	type order struct {
		Number int    `json:"number"`
		City   string `json:"city"`
	}
	data, err := codec.Marshal(codec.JSON{}, order{Number: 42, City: "Kyoto"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data))

	var back order
	if err := codec.Unmarshal(codec.JSON{}, data, &back); err != nil {
		log.Fatal(err)
	}
	fmt.Println(back.City)
	// Output:
	// {"number":42,"city":"Kyoto"}
	// Kyoto
}

// What redis-cli shows of values of several types.
func ExampleText() {
	type order struct {
		City string `json:"city"`
	}
	// snippet: text
	show(42)                                           // 42
	show(0.1)                                          // 0.1
	show("Kyoto")                                      // Kyoto
	show(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)) // 2026-09-01T12:00:00Z
	show(order{City: "Kyoto"})                         // {"city":"Kyoto"}
	// end snippet
	// Output:
	// 42
	// 0.1
	// Kyoto
	// 2026-09-01T12:00:00Z
	// {"city":"Kyoto"}
}

func show[T any](v T) {
	data, err := codec.Marshal(codec.Text{}, v)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data))
}
