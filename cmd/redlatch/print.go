package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"golang.org/x/term"
)

// safe returns a text in which nothing controls a terminal.
func safe(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func oneLine(text string) string { return strings.ReplaceAll(safe(text), "\n", `\n`) }

// print writes a value as JSON, or as the text that the function writes.
func (a *app) print(v any, text func(w io.Writer) error) error {
	if a.json {
		return a.encode(snake(reflect.ValueOf(v)))
	}
	return a.table(a.out, text)
}

// list is print for a table whose last column is long, such as errors: on a terminal its lines are cut.
func (a *app) list(v any, text func(w io.Writer) error) error {
	out, _ := a.out.(*os.File)
	if a.json || out == nil {
		return a.print(v, text)
	}
	width, _, err := term.GetSize(int(out.Fd()))
	if err != nil || width <= 0 { // it is no terminal, or one that does not know
		return a.print(v, text)
	}
	var b strings.Builder
	if err := a.table(&b, text); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if runes := []rune(strings.TrimSuffix(line, "\n")); len(runes) > width {
			line = string(runes[:width-1]) + "…\n"
		}
		if _, err := io.WriteString(a.out, line); err != nil {
			return err
		}
	}
	return nil
}

// encode prints a value as JSON. What is not printable is escaped there too.
func (a *app) encode(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) { // what is escaped stands in a string, as the rest is ASCII that can be printed
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	_, err = fmt.Fprintln(a.out, b.String())
	return err
}

// table has its columns aligned.
func (a *app) table(to io.Writer, text func(w io.Writer) error) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if err := text(w); err != nil {
		return err
	}
	return w.Flush()
}

// line prints what was seen just now: as JSON with the time under "at", or a text after the time.
func (a *app) line(v any, text func() string) error {
	if a.json {
		all := map[string]any{"at": time.Now()}
		fields(reflect.ValueOf(v), all)
		return a.encode(all)
	}
	_, err := fmt.Fprintln(a.out, time.Now().Format(time.TimeOnly), oneLine(text()))
	return err
}

// row writes the cells of a table's row.
func row(w io.Writer, cells ...any) error {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if d, ok := c.(time.Duration); ok {
			c = d.Round(time.Millisecond)
		}
		texts[i] = oneLine(fmt.Sprint(c))
	}
	_, err := fmt.Fprintln(w, strings.Join(texts, "\t"))
	return err
}

// snake returns a value for JSON whose keys are the names of the fields in snake case. Durations are texts, as 1.5s.
func snake(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case time.Time:
		if x.IsZero() { // not known
			return nil
		}
		return x
	case []byte, json.RawMessage:
		return x
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return snake(v.Elem())
	case reflect.Struct:
		all := map[string]any{}
		fields(v, all)
		return all
	case reflect.Map:
		return v.Interface() // what a message says
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = snake(v.Index(i))
		}
		return all
	}
	return v.Interface()
}

func fields(v reflect.Value, to map[string]any) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			fields(v.Field(i), to)
		case f.IsExported():
			to[snakeCase(f.Name)] = snake(v.Field(i))
		}
	}
}

func snakeCase(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		starts := unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if starts && name != "IDs" {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
