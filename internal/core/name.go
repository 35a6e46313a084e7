package core

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/errs"
)

// CheckName returns an error that wraps [errs.ErrInvalid] unless all keys and channels of an object of this name fall
// into one slot, on every topology.
//
// Redis takes the text between the first { and the first } after it as the hash tag, if it is not empty. A name with
// a tag of its own must keep it in every derived key; a name without one is put into braces, and must not end them.
func CheckName(name string) error {
	if err := CheckText(name); err != nil {
		return err
	}
	before, tagged, opened := strings.Cut(name, "{")
	if strings.Contains(before, "}") {
		return fmt.Errorf("%w: the name %q has a } outside a hash tag", errs.ErrInvalid, name)
	}
	if !opened {
		return nil
	}
	tag, rest, closed := strings.Cut(tagged, "}")
	switch {
	case !closed:
		return fmt.Errorf("%w: the name %q has a { that is not closed", errs.ErrInvalid, name)
	case tag == "":
		return fmt.Errorf("%w: the name %q has an empty hash tag", errs.ErrInvalid, name)
	case strings.ContainsAny(rest, "}"):
		return fmt.Errorf("%w: the name %q has a } outside a hash tag", errs.ErrInvalid, name)
	}
	return nil
}

// CheckUserName returns the error of [CheckName] for an object's name, which its user gave without the client's prefix.
func CheckUserName(given, name string) error {
	if given == "" { // the prefix alone is no name
		name = ""
	}
	return CheckName(name)
}

// MaxKey is the longest key below an object's name, in bytes.
const MaxKey = 512

// CheckKey returns an error that wraps [errs.ErrInvalid] unless the key may stand below an object's name.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("%w: the key has %d bytes, not 1 to %d", errs.ErrInvalid, len(key), MaxKey)
	}
	return nil
}

// Keyed returns the Redis key for a key below an object's name; the prefix ends with a colon. The length of the name keeps "a" with the
// key "b:c" apart from "a:b" with "c".
func Keyed(prefix, name, key string) string {
	prefix += strconv.Itoa(len(name)) + ":"
	if strings.Contains(name, "{") {
		return prefix + name + ":" + key
	}
	return prefix + "{" + name + ":" + key + "}"
}

// KeyedName returns the object's name in a Redis key of [Keyed]; ok is false for any other key.
func KeyedName(prefix, redisKey string) (name string, ok bool) {
	size, rest, _ := strings.Cut(strings.TrimPrefix(redisKey, prefix), ":")
	length, err := strconv.Atoi(size)
	if err != nil || length < 1 || length >= len(rest) {
		return "", false
	}
	if name = rest[:length]; !strings.Contains(name, "}") { // no hash tag of its own
		name = rest[1 : length+1]
	}
	return name, strings.HasPrefix(redisKey, strings.TrimSuffix(Keyed(prefix, name, ""), "}"))
}

// CheckText returns an error that wraps [errs.ErrInvalid] unless the name is text of a length that a name may have.
func CheckText(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", errs.ErrInvalid)
	case len(name) > errs.MaxName:
		return fmt.Errorf("%w: the name has %d bytes, more than %d", errs.ErrInvalid, len(name), errs.MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name is not valid UTF-8", errs.ErrInvalid)
	case strings.ContainsFunc(name, isControl):
		return fmt.Errorf("%w: the name %q has a control character", errs.ErrInvalid, name)
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// UserName returns the name of an object as its user gave it, without the client's prefix.
func (c *Core) UserName(key string) string { return strings.TrimPrefix(key, c.Prefix) }

// Prefixed returns the key or channel that the wire format derives from a name by a prefix.
func Prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// Suffixed returns the key that the wire format derives from a name by a suffix.
func Suffixed(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// maxClientName is the longest name of a client, in bytes: with what follows it an owner id stays within the 64 bytes up to which Redis
// keeps a small hash compact.
const maxClientName = 28

// CheckClientName returns an error that wraps [errs.ErrInvalid] unless a client's id may begin with the name.
func CheckClientName(name string) error {
	if len(name) > maxClientName || !clientID(name) {
		return fmt.Errorf("%w: the client name %.100q is not of 1 to %d letters, digits, dots, hyphens and underscores", errs.ErrInvalid, name, maxClientName)
	}
	return nil
}

// NewID returns a client id that no other client has: the client's name, a dot, and 16 hexadecimal digits. It begins owner ids.
func (c *Config) NewID() string {
	unique := make([]byte, UniqueSize)
	_, _ = rand.Read(unique) // it never fails
	if c.ClientName != nil {
		return *c.ClientName + "." + hex.EncodeToString(unique)
	}
	host, _ := os.Hostname() // empty if it is not known
	return defaultName(host, os.Getpid()) + "." + hex.EncodeToString(unique)
}

// UniqueSize is the number of bytes in a client id that tell it from all others.
const UniqueSize = 8

// Unique returns the bytes that the id of this client ends with, in hexadecimal digits.
func (c *Core) Unique() []byte { return c.unique }

// defaultName returns as much of the end of a host's name as fits beside the number of the process.
func defaultName(host string, pid int) string {
	host = strings.Map(func(r rune) rune {
		if clientID(string(r)) {
			return r
		}
		return '-'
	}, cmp.Or(host, "host"))
	process := "." + strconv.Itoa(pid)
	return host[max(0, len(host)+len(process)-maxClientName):] + process
}

// CheckOwner returns an error that wraps [errs.ErrInvalid] unless id has the form of an owner id: a client's id, a colon and a number.
func CheckOwner(id string) error {
	client, sequence, _ := strings.Cut(id, ":")
	n, err := strconv.ParseUint(sequence, 10, 64)
	if len(client) > maxClientID || !clientID(client) || err != nil || strconv.FormatUint(n, 10) != sequence {
		return fmt.Errorf("%w: the owner id %.100q is not of the form <client id>:<number>", errs.ErrInvalid, id)
	}
	return nil
}

// IsClientID reports whether the id has the form of a client's: a name, a dot and 16 hexadecimal digits.
func IsClientID(id string) bool {
	dot := strings.LastIndexByte(id, '.')
	if dot < 1 || !clientID(id[:dot]) || len(id) > maxClientID {
		return false
	}
	unique, err := hex.DecodeString(id[dot+1:])
	return err == nil && len(unique) == UniqueSize
}

// EscapePattern returns the pattern of Redis that matches the text alone.
func EscapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// maxClientID is the longest client id, in bytes, that is known of any client.
const maxClientID = 64

func clientID(id string) bool {
	return id != "" && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '.' && r != '-' && r != '_'
	})
}
