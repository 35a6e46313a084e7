package script

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/errs"
)

// noContext is what go-redis keeps in a command for its own formatting; no call waits on it.
//
//nolint:gochecknoglobals // a constant in all but name
var noContext = context.Background() //nolint:forbidigo // as above

// ErrNoAnswer is the error of a call whose own limit ran out.
var ErrNoAnswer = errors.New("no answer in time")

// CutOff reports whether it was the call's own limit or context that ended it: it says nothing of the server.
func CutOff(err error) bool {
	return errors.Is(err, ErrNoAnswer) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Outcome is what is known of a call after it returned.
type Outcome int

const (
	// Done says that the script ran and answered.
	Done Outcome = iota
	// NotDone says that the script did not take effect, and never will.
	NotDone
	// Unknown says that the script may have run, or may still run.
	Unknown
)

// ErrNotSent is wrapped by the error of a call that was given up before it was sent.
var ErrNotSent = errors.New("not sent")

// Judge tells what an error says about the call that returned it.
//
// An error reply means that the script did not run or stopped at the failing command. READONLY, OOM, MISCONF and
// NOREPLICAS come at the first write only: Redis lets a script go on that has written. Whatever else can fail, a PUBLISH
// and the look at a key's type included, a script has to do before its first write, so that neither leaves anything
// behind; a command that the user may not run at all is found by core's probe. A broken or silent connection means
// nothing at all.
func Judge(err error) Outcome {
	switch {
	case err == nil, err == redis.Nil: //nolint:errorlint // a wrapped one is a Sentinel's, which does not know the master
		return Done
	case errors.Is(err, errs.ErrUnknown): // of who judged before
		return Unknown
	case errors.Is(err, errs.ErrUnavailable):
		return NotDone
	case isReply(err), errors.Is(err, ErrNotSent), isDial(err):
		return NotDone
	case Crowded(err), errors.Is(err, redis.ErrClosed):
		return NotDone
	}
	return Unknown
}

// Transient reports whether an error that means NotDone may go away by itself: the server is loading, failing over,
// moving a slot, or the pool or the queue is busy.
func Transient(err error) bool {
	if errors.Is(err, ErrNoAnswer) || Crowded(err) || isDial(err) {
		return true
	}
	for _, prefix := range transient {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return Parted(err)
}

// transient are prefixes of replies, less the ERR that some have before them.
//
//nolint:gochecknoglobals // a constant list
var transient = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "NOREPLICAS",
	"max number of clients reached",
}

// Passing reports whether a call was certainly not carried out, for a reason that may go away by itself: it may be sent again.
func Passing(err error) bool { return Judge(err) == NotDone && Transient(err) }

// Final reports whether a call was certainly not carried out, for a reason that stays.
func Final(err error) bool { return Judge(err) == NotDone && !Transient(err) }

// Parted reports whether Redis could not run a call since some of its keys have moved to another node and others have
// not: a call for each key alone can be run.
func Parted(err error) bool {
	if redis.HasErrorPrefix(err, "TRYAGAIN") {
		return true
	}
	if !isReply(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, nonLocal) || strings.Contains(text, rehashing)
}

// Mixed reports whether Redis may have refused a call for some of its keys: the user may not touch one of them any more, or
// the server is one of a cluster, which go-redis was not told, and the keys are of several slots.
func Mixed(err error) bool { return says(err, "crossslot", "permissions to access", "can't access") }

// What servers say to a script that looks at a key which has moved to another node.
const (
	nonLocal  = "access a non local key"                                     // Redis 7.0, and Valkey in another sentence
	rehashing = "undeclared keys were accessed during rehashing of the slot" // Redis 8
)

// Refused reports whether no connection could be made.
func Refused(err error) bool { return isDial(err) }

// ErrTurnedAway is wrapped by the error of a call for whose connection the server had no place.
var ErrTurnedAway = errors.New("the server closed a new connection")

// Crowded reports whether there was no connection to be had: none of the pool came free in time, or the server has no place for one.
func Crowded(err error) bool {
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, ErrTurnedAway)
}

// Silent reports whether Redis has not answered, be it the call or its connection: it may do so later.
func Silent(err error) bool { return Judge(err) == Unknown || Crowded(err) }

// Unwritable reports whether Redis refuses writes: it is full, cannot save, is a replica, or has too few replicas.
func Unwritable(err error) bool {
	return slices.ContainsFunc(unwritable, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// unwritable are prefixes of replies to a write.
//
//nolint:gochecknoglobals // a constant list
var unwritable = []string{"OOM", "MISCONF", "READONLY", "NOREPLICAS"}

// WrongType reports whether a script met a key of another kind. Miniredis wraps the reply of an inner command into a text of its own,
// so the word may stand anywhere.
func WrongType(err error) bool {
	return isReply(err) && strings.Contains(err.Error(), "WRONGTYPE")
}

// Lacking reports whether Redis does not know a command or subcommand, or does not allow it to the user.
func Lacking(err error) bool {
	return NoCommand(err) || says(err, "noperm", "acl failure", "can't run this command", "can't publish to the channel")
}

// NoCommand reports whether Redis does not know a command or subcommand.
func NoCommand(err error) bool {
	return says(err, "unknown command", "unknown redis command", "unknown subcommand")
}

// NoNumber reports whether a command was to add to what is not a number, or not one that fits.
func NoNumber(err error) bool {
	return says(err, "value is not an integer", "value is not a valid float", "value is not a float")
}

// says reports whether an error is a reply of Redis that has one of the sentences.
func says(err error, sentences ...string) bool {
	if !isReply(err) {
		return false
	}
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc(sentences, func(sentence string) bool { return strings.Contains(text, sentence) })
}

// inner is the error reply of a command that a script ran, less what Redis says of the script.
type inner struct {
	text  string
	reply error // as it came
}

func (e inner) Error() string { return e.text }

func (e inner) Unwrap() error { return e.reply }

// RedisError marks it as a reply, for go-redis.
func (inner) RedisError() {}

// unwrap returns the reply of the command at which a script stopped. Redis 7 adds the script's digest and line to it, Valkey 9 the line,
// and Redis 6 puts it at the end of a text of its own:
//
//	OOM command not allowed when used memory > 'maxmemory'. script: 1c549828, on @user_script:29.
//	OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:29.
//	ERR Error running script (call to f_0): @user_script:29: @user_script: 29: -OOM command not allowed
func unwrap(err error) error {
	if err == nil || !isReply(err) {
		return err
	}
	text := err.Error()
	if at := strings.LastIndex(text, " script: "); at >= 0 && strings.Contains(text[at:], " on @user_script:") {
		return inner{text[:at], err}
	}
	at := strings.LastIndex(text, "@user_script: ")
	if at < 0 {
		return err
	}
	_, text, found := strings.Cut(text[at+len("@user_script: "):], ": ")
	switch {
	case !found:
		return err
	case strings.HasPrefix(text, "The user executing the script"):
		text = "NOPERM " + text // which later versions say themselves
	}
	return inner{strings.TrimPrefix(text, "-"), err}
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isDial reports whether no connection was made: refused, or no TLS by the first word or the certificate of the other side.
func isDial(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	var first tls.RecordHeaderError
	if errors.As(err, &first) {
		return first.Conn != nil // nil after a handshake
	}
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate)
}
