package checkpoint

import (
	"bytes"
	"fmt"
	"strconv"
)

// lines walks over the content of a checkpoint file.
type lines struct {
	path string
	rest []byte // what was not read yet
	line int    // number of the line that next returned last, from 1
}

// next returns the next line without its end. The caller checked that something is left.
func (r *lines) next() ([]byte, error) {
	r.line++
	line, rest, ended := bytes.Cut(r.rest, []byte{'\n'})
	if bytes.IndexByte(line, 0) >= 0 {
		// The length of a file can reach the disk without its data; what was lost reads as zeros.
		return nil, r.corrupt("zero bytes where text belongs: the file was renamed or extended before its data was on disk")
	}
	if !ended {
		return nil, r.corrupt("no line end: the file was cut here")
	}
	r.rest = rest
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if i := bytes.IndexFunc(line, func(c rune) bool { return c == '\r' || c > '~' }); i >= 0 {
		return nil, r.corrupt("byte 0x%02x, which no checkpoint contains", line[i])
	}
	return line, nil
}

// cut reports whether the last line has no end.
func (r *lines) cut() bool { return len(r.rest) > 0 && r.rest[len(r.rest)-1] != '\n' }

// number reads a line that is one non-negative decimal number of 32 bits.
func (r *lines) number(what string) (int64, error) {
	line, err := r.next()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(line), 10, 32)
	if err != nil || n < 0 {
		return 0, r.corrupt("%s: %q instead of a number from 0", what, clip(line))
	}
	return n, nil
}

// fields splits a line into exactly want fields. White space before the first one counts as an empty field, as it does
// in Kafka.
func (r *lines) fields(line []byte, want int) ([]string, error) {
	parts := bytes.FieldsFunc(line, isSpace)
	if len(parts) != want || isSpace(rune(line[0])) {
		return nil, r.corrupt("%q instead of %d fields", clip(line), want)
	}
	out := make([]string, want)
	for i, p := range parts {
		out[i] = string(p)
	}
	return out, nil
}

// isSpace reports whether c separates fields. It is the class \s of Java's regular expressions without the line ends.
func isSpace(c rune) bool { return c == ' ' || c == '\t' || c == '\v' || c == '\f' }

func (r *lines) corrupt(format string, args ...any) error {
	return &CorruptError{Path: r.path, Line: r.line, Reason: fmt.Sprintf(format, args...)}
}

// clip keeps an error text readable when a damaged file is one long line.
func clip(line []byte) []byte {
	const most = 80
	if len(line) > most {
		return line[:most]
	}
	return line
}
