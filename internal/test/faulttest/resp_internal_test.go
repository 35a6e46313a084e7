package faulttest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRepliesAreSplitIntoFrames(t *testing.T) {
	for _, tc := range []struct {
		raw   string
		kind  byte
		items int
		head  string
	}{
		{"+OK\r\n", '+', 0, ""},
		{"-ERR no\r\n", '-', 0, ""},
		{":-5\r\n", ':', 0, ""},
		{"$-1\r\n", '$', 0, ""},
		{"$4\r\na\r\nb\r\n", '$', 0, ""},
		{"*-1\r\n", '*', 0, ""},
		{"*0\r\n", '*', 0, ""},
		{"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n", '*', 3, "message"},
		{">2\r\n+subscribe\r\n:1\r\n", '>', 2, "subscribe"},
		{"%1\r\n+a\r\n*2\r\n:1\r\n_\r\n", '%', 1, "a"},
		{"~1\r\n#t\r\n", '~', 1, "t"},
		{"|1\r\n+ttl\r\n:3\r\n,1.5\r\n", ',', 0, ""},
		{"=6\r\ntxt:ab\r\n", '=', 0, ""},
		{"(123456789012345678901234567890\r\n", '(', 0, ""},
	} {
		p := newParser(strings.NewReader(tc.raw + tc.raw))
		for range 2 {
			f, err := p.reply()
			require.NoError(t, err, "%q", tc.raw)
			assert.Equal(t, frame{[]byte(tc.raw), tc.kind, tc.items, tc.head}, f)
		}
		_, err := p.reply()
		require.ErrorIs(t, err, io.EOF)
	}
}

func TestRequestsAreSplitIntoArguments(t *testing.T) {
	const raw = "*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n"
	p := newParser(strings.NewReader(raw + "PING hello\r\n\r\n" + raw))
	for _, want := range [][]string{{"ECHO", "\r\n"}, {"PING", "hello"}, {}, {"ECHO", "\r\n"}} {
		_, cmd, err := p.request()
		require.NoError(t, err)
		assert.Equal(t, want, cmd)
	}
}

func TestBrokenFramesAreErrors(t *testing.T) {
	for _, raw := range []string{
		"\r\n", "?\r\n", "$x\r\n", "$-2\r\n", "*99999999999\r\n", "$2\r\nabcd\r\n",
		strings.Repeat("*1\r\n", 100), "+" + strings.Repeat("x", 2<<20),
	} {
		_, err := newParser(strings.NewReader(raw)).reply()
		require.ErrorIs(t, err, errFrame, "%.20q", raw)
	}
	for _, raw := range []string{"+O", "$5\r\nab", "*2\r\n:1\r\n", "|1\r\n+a\r\n:1\r\n"} {
		_, err := newParser(strings.NewReader(raw)).reply()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", raw)
	}
}

func FuzzReply(f *testing.F) {
	for _, seed := range []string{"+OK\r\n:1\r\n", "*2\r\n$1\r\na\r\n$-1\r\n", "|1\r\n+a\r\n:1\r\n>1\r\n+x\r\n", "%1\r\n+a\r\n#f\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		splits(t, data, func(p *parser) ([]byte, error) {
			reply, err := p.reply()
			return reply.raw, err
		})
	})
}

func FuzzRequest(f *testing.F) {
	for _, seed := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\r\n", "*0\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		splits(t, data, func(p *parser) ([]byte, error) {
			raw, _, err := p.request()
			return raw, err
		})
	})
}

// splits checks that the frames are the start of data, without a gap, and that each is a frame by itself.
func splits(t *testing.T, data []byte, next func(*parser) ([]byte, error)) {
	var all []byte
	p := newParser(bytes.NewReader(data))
	for {
		raw, err := next(p)
		if err != nil {
			if !errors.Is(err, errFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%v", err)
			}
			return
		}
		all = append(all, raw...)
		if !bytes.HasPrefix(data, all) {
			t.Fatalf("frames %q of %q", all, data)
		}
		again, err := next(newParser(bytes.NewReader(raw)))
		if err != nil || !bytes.Equal(again, raw) {
			t.Fatalf("%q alone is %q, %v", raw, again, err)
		}
	}
}
