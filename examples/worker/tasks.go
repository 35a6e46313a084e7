package main

import (
	"time"

	"github.com/redlatch/redlatch/rexecutor"
)

// The tasks: a name, the types of the arguments and of the result, and what holds for each submission. In a service they stand in a package
// that both those who submit and those who work import. A result of struct{} is none.
//
//nolint:gochecknoglobals // both sides have the same
var (
	// A mail server may be busy: a mail is tried again after 100 ms, 200 ms, and so on.
	sendMail = rexecutor.NewTask[mail, struct{}]("mail:send", rexecutor.WithMaxAttempts(8), rexecutor.WithTimeout(10*time.Second),
		rexecutor.WithBackoff(func(attempt int) time.Duration { return time.Duration(attempt) * 100 * time.Millisecond }))

	chargeInvoice = rexecutor.NewTask[invoice, struct{}]("invoice:charge")

	buildReport = rexecutor.NewTask[period, report]("report:build", rexecutor.WithExpiry(time.Minute))
)

type mail struct{ To, Subject string }

type invoice struct {
	Number   int
	Customer string
}

type period struct{ Month string }

type report struct{ Invoices int }
