package wal

import (
	"context"
	"errors"
	"math"
	"testing"
)

type reading struct {
	Sensor string
	Value  float64
}

func TestTyped_KeepsWhatIsAppended(t *testing.T) {
	l, _ := openMem(t, Options{})
	typed := NewTyped[string, reading](l, String{}, JSON[reading]{})
	want := []TypedRecord[string, reading]{
		{Key: "a", Value: reading{"x", 1.5}},
		{Key: "a", NoValue: true},
		{NoKey: true, Value: reading{"y", 2}},
		{Key: "", Value: reading{}},
	}
	if r, err := typed.Append(want...); err != nil || r.Last != 3 {
		t.Fatal(r, err)
	}
	n := 0
	for r, err := range typed.Records(0) {
		w := want[n]
		if err != nil || r.Offset != int64(n) || r.Key != w.Key || r.Value != w.Value || r.NoKey != w.NoKey || r.NoValue != w.NoValue {
			t.Errorf("%+v, %v; want %+v", r, err, w)
		}
		if g, err := typed.Get(r.Offset); err != nil || g.Value != r.Value || g.Time != r.Time {
			t.Errorf("%+v, %v", g, err)
		}
		n++
	}
	if s, err := l.Get(3); err != nil || s.Key == nil {
		t.Errorf("an empty key became null: %+v, %v", s, err)
	}
	if n != len(want) {
		t.Errorf("%d records", n)
	}
	nan := TypedRecord[string, reading]{Value: reading{Value: math.NaN()}}
	if _, err := typed.Append(want[0], nan); !errors.Is(err, ErrInvalidArgument) || l.Offsets().LogEnd != 4 {
		t.Errorf("%v, log end %d", err, l.Offsets().LogEnd)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is none of the type is told by its offset, and the loop goes on.
func TestTyped_DecodeError(t *testing.T) {
	l, _ := openMem(t, Options{})
	typed := NewTyped[int32, int64](l, Int32{}, Int64{})
	if _, err := typed.Append(TypedRecord[int32, int64]{Key: -1, Value: math.MinInt64}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(Record{Key: []byte("long"), Value: []byte("not eight")}, Record{Key: []byte("long!"), Value: []byte("no")}); err != nil {
		t.Fatal(err)
	}
	if _, err := typed.Append(TypedRecord[int32, int64]{Key: 7, Value: 8}); err != nil {
		t.Fatal(err)
	}
	var parts []string
	var good []int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for r, err := range typed.Tail(ctx, 0) {
		var e *DecodeError
		switch {
		case errors.As(err, &e):
			if e.Offset != r.Offset {
				t.Errorf("%v at offset %d", err, r.Offset)
			}
			parts = append(parts, e.Part)
		case err != nil:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		default:
			good = append(good, r.Value)
		}
		if r.Offset == 3 {
			cancel()
		}
	}
	if len(parts) != 2 || parts[0] != "value" || parts[1] != "key" || len(good) != 2 || good[0] != math.MinInt64 || good[1] != 8 {
		t.Errorf("%v, %v", parts, good)
	}
	if _, err := typed.Get(1); !errors.As(err, new(*DecodeError)) {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
