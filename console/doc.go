// Package console is a web page for people who operate redlatch: what is held, who holds it and since when, who waits, which
// queues grow, and what was lost.
//
//	mux.Handle("/locks/", http.StripPrefix("/locks", console.Handler(client)))
//
// It has no login: put it behind that of your service, since names of locks may be private too. It only reads, unless
// [WithActions] lets it free locks and change queues. The pages need neither JavaScript nor a network; with JavaScript they
// follow what happens.
//
// What only a holder knows, such as since when it holds a lock, its client is asked: see [redlatch.Client.Ask]. Whoever may
// publish on the channels of clients can forge such an answer.
package console
