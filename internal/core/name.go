package core

import (
	"fmt"
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

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// UserName returns the name of an object as its user gave it, without the client's prefix.
func (e *Core) UserName(key string) string { return strings.TrimPrefix(key, e.Prefix) }

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

// Tag returns a string that is equal only for keys of one slot.
func Tag(key string) string {
	_, tagged, opened := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(tagged, "}"); opened && closed && tag != "" {
		return tag
	}
	return key
}

// CheckOwner returns an error that wraps [errs.ErrInvalid] unless id may be an owner id of the caller's own.
func CheckOwner(id string) error {
	switch {
	case id == "" || len(id) > 200:
		return fmt.Errorf("%w: the owner id has %d bytes, not 1 to 200", errs.ErrInvalid, len(id))
	case strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' }):
		return fmt.Errorf("%w: the owner id %q is not printable ASCII without blanks and braces", errs.ErrInvalid, id)
	case id == "mode" || strings.HasSuffix(id, ":write"):
		return fmt.Errorf("%w: the owner id %q is reserved", errs.ErrInvalid, id)
	}
	return nil
}
