package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/oncelog/oncelog/wal"
)

// maxLineBytes bounds a line of the input.
const maxLineBytes = 16 << 20

// inputRecord is a record of the input and about what it takes.
type inputRecord struct {
	record wal.Record
	size   int
}

// input is the records of a reader. The channel is closed at its end; then err tells why it ended.
type input struct {
	records chan inputRecord
	ended   error // set before the channel is closed
}

func (in *input) err() error { return in.ended }

// readRecords reads in a goroutine of its own, since a read cannot be interrupted. It ends with the input or the context.
func readRecords(ctx context.Context, r io.Reader, o *appendOptions) *input {
	in := &input{records: make(chan inputRecord, 1024)}
	go func() {
		defer close(in.records)
		in.ended = in.read(ctx, r, o)
	}()
	return in
}

func (in *input) read(ctx context.Context, r io.Reader, o *appendOptions) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		rec, err := parseLine(line, o)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		select {
		case in.records <- inputRecord{record: rec, size: len(line) + 32}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readLine returns the next line without its end, in memory of its own. An empty line is a record with an empty value.
func readLine(r *bufio.Reader) ([]byte, error) {
	line := []byte{}
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece...)
		if len(line) > maxLineBytes {
			return nil, fmt.Errorf("longer than %d bytes", maxLineBytes)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case err != nil:
			return nil, err
		default:
			return line[:len(line)-1], nil
		}
	}
}

func parseLine(line []byte, o *appendOptions) (wal.Record, error) {
	if o.format == "lines" {
		if o.separator != "" {
			if key, value, found := bytes.Cut(line, []byte(o.separator)); found {
				return wal.Record{Key: key, Value: value}, nil
			}
		}
		return wal.Record{Value: line}, nil
	}
	var j recordJSON
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return wal.Record{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return wal.Record{}, errors.New("something follows the object")
	}
	return j.record()
}

// absolute is a path from the root. Where the system does not know the working directory the path stays as it is, and
// opening it says so.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
