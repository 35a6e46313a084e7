package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// order is one that a user has placed. What becomes of it is paid or closed.
type order struct {
	ID    string
	Items int

	paid      bool
	closed    int // times
	delivered int // times that a worker got its job
}

// shop is the database of this example: it closes an order once, however often it is told to.
type shop struct {
	name  string // of the queue
	start time.Time

	mu     sync.Mutex // guards all below
	stock  int
	orders map[string]*order
	died   bool // a worker has
}

func (s *shop) say(who, format string, args ...any) {
	fmt.Printf("%6.2f s  %-9s %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// place takes an order, and its items out of stock.
func (s *shop) place(id string, items int) order {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &order{ID: id, Items: items}
	s.orders[id] = o
	s.stock -= items
	return *o
}

func (s *shop) pay(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[id].paid = true
}

// begin notes a delivery, and reports whether its worker is to die of it. The first one does.
func (s *shop) begin(id string) (dies bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[id].delivered++
	dies = !s.died
	s.died = s.died || dies
	return dies
}

// close closes an order that is neither paid nor closed, and puts its items back.
func (s *shop) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[id]
	if o.paid || o.closed > 0 {
		return
	}
	o.closed++
	s.stock += o.Items
}

// report prints what became of the orders, and returns an error if that does not add up.
func (s *shop) report() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var placed, sold, paid, closed, wrong, again int
	for _, o := range s.orders {
		placed += o.Items
		switch {
		case o.paid && o.closed == 0:
			paid++
			sold += o.Items
		case !o.paid && o.closed == 1:
			closed++
		default:
			wrong++
		}
		if o.delivered > 1 {
			again++
		}
	}
	fmt.Printf("\n%20s %6s\n", "orders placed", fmt.Sprint(len(s.orders)))
	fmt.Printf("%20s %6d\n%20s %6d\n%20s %6d\n", "paid", paid, "closed unpaid", closed, "neither or both", wrong)
	fmt.Printf("%20s %6d\n%20s %6d\n", "delivered again", again, "items in stock", s.stock)
	fmt.Printf("\n%d items were in stock, %d were ordered, %d of these sold: %d are left.\n", 100, placed, sold, 100-sold)
	if wrong > 0 || paid+closed != orders || s.stock != 100-sold || again == 0 {
		return errors.New("the table does not add up")
	}
	return nil
}
