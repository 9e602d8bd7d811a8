package dump

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// encoder writes JSON piece by piece. The first error of the writer stays; what is written after it goes nowhere.
type encoder struct {
	w     *bufio.Writer
	buf   []byte
	comma bool // a value is there already in the present object or array
	err   error
}

func newEncoder(w io.Writer) *encoder { return &encoder{w: bufio.NewWriterSize(w, 64<<10)} }

func (e *encoder) flush() error {
	if err := e.w.Flush(); e.err == nil {
		e.err = err
	}
	return e.err
}

// value writes one value that was made with append functions.
func (e *encoder) value(p []byte) {
	if e.comma && e.err == nil {
		e.err = e.w.WriteByte(',')
	}
	e.comma = true
	e.put(p)
}

func (e *encoder) put(p []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(p)
	}
	e.buf = p[:0]
}

func (e *encoder) begin(c byte) {
	e.value(append(e.buf[:0], c))
	e.comma = false
}

func (e *encoder) end(c byte) {
	e.put(append(e.buf[:0], c))
	e.comma = true
}

func (e *encoder) key(k string) {
	e.str(k)
	e.put(append(e.buf[:0], ':'))
	e.comma = false
}

func (e *encoder) int(v int64)  { e.value(strconv.AppendInt(e.buf[:0], v, 10)) }
func (e *encoder) bool(v bool)  { e.value(strconv.AppendBool(e.buf[:0], v)) }
func (e *encoder) null()        { e.value(append(e.buf[:0], "null"...)) }
func (e *encoder) str(s string) { e.value(AppendString(e.buf[:0], s)) }

func (e *encoder) keyInt(k string, v int64) {
	e.key(k)
	e.int(v)
}

func (e *encoder) keyBool(k string, v bool) {
	e.key(k)
	e.bool(v)
}

func (e *encoder) keyStr(k, v string) {
	e.key(k)
	e.str(v)
}

// keyNull writes keys that have no value.
func (e *encoder) keyNull(keys ...string) {
	for _, k := range keys {
		e.key(k)
		e.null()
	}
}

// inlineLimit is the longest key or value that is written out.
const inlineLimit = 4096

// blob writes bytes: null, base64, or size and digest.
func (e *encoder) blob(p []byte) {
	switch {
	case p == nil:
		e.null()
	case len(p) <= inlineLimit:
		e.base64(p)
	default:
		sum := sha256.Sum256(p)
		e.begin('{')
		e.keyInt("size", int64(len(p)))
		e.keyStr("sha256", hex.EncodeToString(sum[:]))
		e.end('}')
	}
}

func (e *encoder) base64(p []byte) {
	b := append(e.buf[:0], '"')
	b = base64.StdEncoding.AppendEncode(b, p)
	e.value(append(b, '"'))
}

// AppendString appends s as a JSON string. Whatever a terminal might act upon is escaped: control characters, the invisible
// ones that change the direction of text, and all else that is not printable. What is not UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			dst = appendEscape(appendEscape(dst, hi), lo)
		default:
			dst = appendEscape(dst, r)
		}
	}
	return append(dst, '"')
}

func appendEscape(dst []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
