// Package rscheduler runs scheduled jobs: each tick once, on one of many processes.
package rscheduler
