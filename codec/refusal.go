package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// refusal is an error about bytes whose own text is not shown, because it may contain them.
type refusal struct {
	text  string
	cause error
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.cause }

// discreet hides the text of an error that may contain the payload, such as one of a type's own method.
func discreet(err error) error { return &refusal{fmt.Sprintf("refused with a %T", err), err} }

func jsonRefusal(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	case errors.As(err, &kind):
		plain := *kind
		plain.Value, _, _ = strings.Cut(kind.Value, " ") // the number itself follows
		return &refusal{plain.Error(), err}
	case errors.As(err, &syntax):
		return &refusal{fmt.Sprintf("syntax error at byte %d", syntax.Offset), err}
	}
	return discreet(err)
}

// msgpackRefusal keeps the errors of the MessagePack library, known by their prefix: they contain codes and lengths
// only.
func msgpackRefusal(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || strings.HasPrefix(err.Error(), "msgpack: ") {
		return err
	}
	return discreet(err)
}
