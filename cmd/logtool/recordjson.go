package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// recordJSON is a record as cat writes it and append reads it. Both may be left out when reading, as may Timestamp and
// Headers: a key or value that is not there is null, a time that is not there is now.
type recordJSON struct {
	Offset    *int64      `json:"offset,omitempty"`    // append does not look at it
	Timestamp *int64      `json:"timestamp,omitempty"` // milliseconds
	Key       *bytesJSON  `json:"key"`
	Value     *bytesJSON  `json:"value"`
	Headers   [][2]header `json:"headers,omitempty"` // pairs of name and value
}

// bytesJSON is bytes in JSON: a string where they are UTF-8, else {"base64": "…"}.
type bytesJSON []byte

type base64JSON struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (b bytesJSON) MarshalJSON() ([]byte, error) {
	if utf8.Valid(b) {
		return json.Marshal(string(b))
	}
	return json.Marshal(base64JSON{b})
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *bytesJSON) UnmarshalJSON(p []byte) error {
	if len(p) > 0 && p[0] == '"' {
		var s string
		err := json.Unmarshal(p, &s)
		*b = bytesJSON(s)
		return err
	}
	var v struct {
		Base64 *[]byte `json:"base64"`
	}
	if err := json.Unmarshal(p, &v); err != nil || v.Base64 == nil {
		return errors.New(`bytes must be null, a string or {"base64": "…"}`)
	}
	*b = bytesJSON(*v.Base64)
	if *b == nil {
		*b = bytesJSON{}
	}
	return nil
}

// header is the name or the value of a header: bytes, or null.
type header struct{ p []byte }

// MarshalJSON implements json.Marshaler.
func (h header) MarshalJSON() ([]byte, error) {
	if h.p == nil {
		return []byte("null"), nil
	}
	return bytesJSON(h.p).MarshalJSON()
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *header) UnmarshalJSON(p []byte) error {
	h.p = nil
	if string(p) == "null" {
		return nil
	}
	return (*bytesJSON)(&h.p).UnmarshalJSON(p)
}

func optional(p []byte) *bytesJSON {
	if p == nil {
		return nil
	}
	return (*bytesJSON)(&p)
}

// jsonOf is a record for writing.
func jsonOf(offset int64, r *wal.Record) recordJSON {
	j := recordJSON{Offset: &offset, Key: optional(r.Key), Value: optional(r.Value)}
	if !r.Time.IsZero() {
		j.Timestamp = known(r.Time.UnixMilli())
	}
	for _, h := range r.Headers {
		j.Headers = append(j.Headers, [2]header{{[]byte(h.Key)}, {h.Value}})
	}
	return j
}

// record is what was read.
func (j *recordJSON) record() (wal.Record, error) {
	r := wal.Record{}
	if j.Key != nil {
		r.Key = *j.Key
	}
	if j.Value != nil {
		r.Value = *j.Value
	}
	if j.Timestamp != nil {
		if *j.Timestamp < 0 {
			return r, fmt.Errorf("timestamp %d is negative", *j.Timestamp)
		}
		r.Time = time.UnixMilli(*j.Timestamp)
	}
	for _, h := range j.Headers {
		if h[0].p == nil {
			return r, errors.New("the name of a header is null")
		}
		r.Headers = append(r.Headers, record.Header{Key: string(h[0].p), Value: h[1].p})
	}
	return r, nil
}
