package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isPlain tells whether a terminal shows s as it is: every character can be printed, and none is part of an escape
// sequence or changes the direction of what follows.
func isPlain(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// quote returns a name as it is, or in quotes with escapes where it is not plain.
func quote(name string) string {
	if isPlain(name) {
		return name
	}
	return strconv.Quote(name)
}

// escape returns text with everything that is not plain as escapes of Go.
func escape(s string) string {
	if isPlain(s) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// escapeLines makes one plain line of text that may have several, as joined errors have.
func escapeLines(s string) string { return escape(strings.ReplaceAll(s, "\n", "; ")) }

// count is a number with the noun that belongs to it.
func count[T ~int | ~int64](n T, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	case strings.HasSuffix(noun, "ch"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// writeJSON writes a value as one document, indented.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(plainWriter{w})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// writeJSONLine writes a value as one line.
func writeJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(plainWriter{w})
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// plainWriter escapes in JSON what encoding/json leaves as it is and a terminal may act upon: the second set of control
// characters, and the invisible ones. All of these can only be inside strings.
type plainWriter struct{ w io.Writer }

// Write implements io.Writer. Every call must carry whole characters.
func (p plainWriter) Write(b []byte) (int, error) {
	s := string(b)
	plain := func(r rune) bool { return r == '\n' || unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return p.w.Write(b)
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case plain(r):
			out.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	if _, err := io.WriteString(p.w, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}
