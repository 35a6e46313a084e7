package console_test

import (
	"errors"
	"log"
	"net/http"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/console"
	"github.com/redlatch/redlatch/embedded"
)

func ExampleHandler() {
	client, err := embedded.Open(redlatch.WithCallSites())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mountConsole(http.NewServeMux(), client)
	// Output:
}

// snippet: mountConsole
func mountConsole(mux *http.ServeMux, client *redlatch.Client) {
	mux.Handle("/locks/", onlyOperators(http.StripPrefix("/locks", console.Handler(client,
		console.WithActions(func(r *http.Request, a console.Action) error { // without this option the console only reads
			if a.Verb == "purge" {
				return errors.New("nobody deletes jobs here")
			}
			return nil
		}),
		console.WithUser(userOf), // for the log; without it the user of basic authentication
	))))
}

// end snippet

// onlyOperators is the login of a service.
func onlyOperators(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if userOf(r) == "" {
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func userOf(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }
