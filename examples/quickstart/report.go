package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

func heading(format string, args ...any) { fmt.Printf("\n"+format+"\n\n", args...) }

// list names orders in a few words.
func list(orders []order) string {
	if len(orders) == 0 {
		return "nothing: no order is unpaid"
	}
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = strconv.Itoa(o.id)
	}
	return "orders " + strings.Join(ids, ", ")
}

// compare prints how often each order was closed. It is an error if the lock did not make that once.
func compare(ctx context.Context, locked, unlocked *shop) error {
	heading("How often was each order closed?")
	fmt.Println("   order   items   with the lock   without")
	wrong, items := 0, 0
	for _, o := range allOrders() {
		n := locked.closed(ctx, o)
		fmt.Printf("%8d%8d%16d%10d\n", o.id, o.items, n, unlocked.closed(ctx, o))
		if n != 1 {
			wrong++
		}
		items += o.items
	}
	back := func(s *shop) int {
		n, _ := s.rdb.Get(ctx, s.key("stock")).Int() // nothing put back: no key
		return n
	}
	fmt.Printf("\nItems put back into stock: %d of %d with the lock, %d without.\n", back(locked), items, back(unlocked))
	if wrong > 0 || back(locked) != items {
		return fmt.Errorf("%d orders were not closed exactly once under the lock", wrong)
	}
	return nil
}
