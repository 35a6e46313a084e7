package codec_test

import (
	"fmt"
	"log"

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
