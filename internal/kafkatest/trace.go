package kafkatest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

// Trace is one life of a partition log of Kafka: operations, and what Kafka's log class did.
type Trace struct {
	Name  string
	Kafka string // version
	Seed  int64
	Note  string // what it is about

	// CompareBytes is false where the broker compressed something itself: the bytes of .log, and everything that depends
	// on their number, then depend on the compressor.
	CompareBytes bool

	Config Settings // of the first operation, which is an open
	Ops    []Op
}

// TraceNames lists the traces that EachTrace walks over.
func TraceNames(t testing.TB) []string {
	t.Helper()
	names, err := traceSource.names(".jsonl", ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// EachTrace runs f as a subtest for each trace of the directory that ONCELOG_TRACES names, or else for each of those that
// the package carries.
func EachTrace(t *testing.T, f func(t *testing.T, tr *Trace)) {
	t.Helper()
	for _, name := range TraceNames(t) {
		t.Run(name, func(t *testing.T) { f(t, LoadTrace(t, name)) })
	}
}

// LoadTrace returns one trace. If the package does not carry it and the environment names no directory of traces, the
// test is skipped.
func LoadTrace(t testing.TB, name string) *Trace {
	t.Helper()
	p, err := traceSource.read(name, ".jsonl", ".jsonl.gz")
	if err == nil {
		var tr *Trace
		if tr, err = decodeTrace(p); err == nil {
			return tr
		}
		err = fmt.Errorf("trace %s: %w", name, err)
	}
	traceSource.unavailable(t, err)
	return nil
}

func decodeTrace(p []byte) (*Trace, error) {
	var tr *Trace
	number := 0
	for line := range bytes.Lines(p) {
		number++
		if tr == nil {
			var head header
			if err := strict(line, &head); err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			if head.Trace == "" || head.CompareBytes == nil {
				return nil, fmt.Errorf("line %d: not the header of a trace", number)
			}
			tr = &Trace{head.Trace, head.Kafka, head.Seed, head.Note, *head.CompareBytes, head.Config, nil}
			continue
		}
		op, err := decodeOp(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		op.Line = number
		tr.Ops = append(tr.Ops, op)
	}
	if tr == nil || len(tr.Ops) == 0 {
		return nil, errors.New("no operations")
	}
	if tr.Ops[0].Kind != "open" {
		return nil, fmt.Errorf("begins with %q", tr.Ops[0].Kind)
	}
	return tr, nil
}

// Failure is the part of an outcome that says whether the operation was refused.
type Failure struct {
	OK bool `json:"ok"`

	// Error is the simple name of Kafka's exception, such as OutOfOrderSequenceException; empty if OK.
	Error string `json:"error,omitzero"`

	// Code is its protocol error code. -1 is not meant for clients: an implementation may have its own error there.
	Code int16 `json:"code,omitzero"`

	// RecordErrors are the indexes of the records that were refused.
	RecordErrors []int `json:"recordErrors,omitzero"`
}

// Failure returns how the operation ended.
func (op *Op) Failure() Failure {
	var f Failure
	if err := json.Unmarshal(op.Out, &f); err != nil {
		panic(fmt.Sprintf("line %d: %v", op.Line, err)) // decodeOp has checked it
	}
	return f
}

// Outcome decodes the outcome of an operation into v, one of the …Outcome types; a field that v lacks is an error.
func (op *Op) Outcome(t testing.TB, v any) {
	t.Helper()
	if err := strict(op.Out, v); err != nil {
		t.Fatalf("line %d: outcome of %s: %v", op.Line, op.Kind, err)
	}
}
