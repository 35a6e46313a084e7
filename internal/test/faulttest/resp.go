package faulttest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of a frame, so that a broken one cannot exhaust the memory.
const (
	maxLine  = 1 << 20
	maxBulk  = 512 << 20
	maxItems = 1 << 20
	maxDepth = 32
)

var errFrame = errors.New("malformed frame")

// frame is one reply or push of a server, with the bytes that it came in.
type frame struct {
	raw   []byte
	kind  byte   // the type, such as '$' or '>'
	items int    // elements of an aggregate
	head  string // first element of an aggregate where that is a string
}

// parser splits a stream of RESP2 or RESP3 into frames.
type parser struct {
	r   *bufio.Reader
	raw []byte // the frame so far
}

func newParser(r io.Reader) *parser { return &parser{r: bufio.NewReaderSize(r, 64<<10)} }

// buffered reports whether more bytes are at hand without another read.
func (p *parser) buffered() bool { return p.r.Buffered() > 0 }

// request reads a command, in the form of clients or of one typed by hand. The command is empty for an empty line.
func (p *parser) request() (raw []byte, cmd []string, err error) {
	p.raw = nil
	line, err := p.line()
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(line, "*") {
		return p.raw, strings.Fields(line), nil
	}
	n, err := count(line[1:], maxItems)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		arg, err := p.argument()
		if err != nil {
			return nil, nil, unexpected(err)
		}
		cmd = append(cmd, arg)
	}
	return p.raw, cmd, nil
}

func (p *parser) argument() (string, error) {
	line, err := p.line()
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(line, "$") {
		return "", fmt.Errorf("%w: argument %q", errFrame, line)
	}
	return p.bulk(line[1:])
}

// reply reads a reply or a push.
func (p *parser) reply() (frame, error) {
	p.raw = nil
	f, _, err := p.value(0)
	if err != nil && len(p.raw) > 0 {
		err = unexpected(err)
	}
	f.raw = p.raw
	return f, err
}

// value reads one value; text is what it says if it is a string.
func (p *parser) value(depth int) (f frame, text string, err error) {
	if depth > maxDepth {
		return f, "", fmt.Errorf("%w: nested too deep", errFrame)
	}
	line, err := p.line()
	if err != nil {
		return f, "", err
	}
	if line == "" {
		return f, "", fmt.Errorf("%w: empty line", errFrame)
	}
	f.kind = line[0]
	switch f.kind {
	case '+', '-', ':', ',', '#', '_', '(':
		return f, line[1:], nil
	case '$', '=', '!':
		text, err = p.bulk(line[1:])
		return f, text, err
	case '*', '~', '>', '%', '|':
		err = p.aggregate(&f, line[1:], depth)
		if f.kind == '|' && err == nil {
			// Attributes stand before the value that they belong to.
			return p.value(depth + 1)
		}
		return f, "", err
	}
	return f, "", fmt.Errorf("%w: type %q", errFrame, f.kind)
}

func (p *parser) aggregate(f *frame, size string, depth int) error {
	n, err := count(size, maxItems)
	if err != nil {
		return err
	}
	f.items = n
	if f.kind == '%' || f.kind == '|' {
		n *= 2
	}
	for i := range n {
		_, text, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		if i == 0 {
			f.head = text
		}
	}
	return nil
}

// bulk reads a string of so many bytes, as far as they come.
func (p *parser) bulk(size string) (string, error) {
	if size == "-1" {
		return "", nil
	}
	n, err := count(size, maxBulk)
	if err != nil {
		return "", err
	}
	from := len(p.raw)
	var data bytes.Buffer
	_, err = io.CopyN(&data, p.r, int64(n)+2)
	p.raw = append(p.raw, data.Bytes()...)
	if err != nil {
		return "", err
	}
	if !bytes.HasSuffix(p.raw, []byte("\r\n")) {
		return "", fmt.Errorf("%w: string of %d bytes goes on", errFrame, n)
	}
	return string(p.raw[from : from+n]), nil
}

// line reads up to a line's end, and returns it without that.
func (p *parser) line() (string, error) {
	from := len(p.raw)
	for {
		part, err := p.r.ReadSlice('\n')
		p.raw = append(p.raw, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
		if len(p.raw)-from > maxLine {
			return "", fmt.Errorf("%w: line of more than %d bytes", errFrame, maxLine)
		}
	}
	return strings.TrimRight(string(p.raw[from:]), "\r\n"), nil
}

// count reads a size; -1, which stands for nothing, has no elements.
func count(size string, limit int) (int, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < -1 || n > limit {
		return 0, fmt.Errorf("%w: size %q", errFrame, size)
	}
	return max(n, 0), nil
}

// unexpected turns an end within a frame into the error that says so.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
