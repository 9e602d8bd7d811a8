package wal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/oncelog/oncelog/record"
)

func TestGet(t *testing.T) {
	l, _ := openMem(t, Options{TimestampAfterMax: Never})
	appendN(t, l, 0, 3)                                 // 0 to 2
	mustAppend(t, l, openTxnBatch(t, 1, 0, "a0", "a1")) // 3, 4
	endTxn(t, l, 1, record.Abort)                       // 5
	mustAppend(t, l, openTxnBatch(t, 2, 0, "c"))        // 6
	endTxn(t, l, 2, record.Commit)                      // 7
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: 20})
	if err := b.Append(1, record.Record{Value: []byte("20")}); err != nil {
		t.Fatal(err)
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsFollower(p, 0); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, openTxnBatch(t, 3, 0, "open")) // 21
	appendN(t, l, 22, 23)                           // 22, behind an open transaction
	if _, err := l.IncrementLogStartOffset(1); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]string{1: "1", 2: "2", 6: "c", 20: "20"} {
		if s, err := l.Get(offset); err != nil || s.Offset != offset || string(s.Value) != want {
			t.Errorf("offset %d: %+v, %v", offset, s, err)
		}
	}
	for offset, want := range map[int64]NoRecordReason{3: Aborted, 4: Aborted, 5: Control, 7: Control, 8: Missing, 19: Missing,
		21: NotCommitted, 22: NotCommitted} {
		var none *NoRecordError
		if _, err := l.Get(offset); !errors.As(err, &none) || none.Reason != want || !errors.Is(err, ErrNoRecord) {
			t.Errorf("offset %d: %v, want %v", offset, err, want)
		}
	}
	for _, offset := range []int64{-1, 0, 23, 1 << 40} {
		if _, err := l.Get(offset); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Get(1); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestReadRecords(t *testing.T) {
	l, _ := openMem(t, Options{SegmentBytes: 400, TimestampAfterMax: Never})
	appendN(t, l, 0, 10)
	mustAppend(t, l, openTxnBatch(t, 1, 0, "a")) // 10
	endTxn(t, l, 1, record.Abort)                // 11
	from := int64(0)
	for _, want := range []struct {
		n    int
		next int64
	}{{4, 4}, {4, 8}, {2, 12}, {0, 12}} {
		list, next, err := l.ReadRecords(from, 4)
		if err != nil || len(list) != want.n || next != want.next {
			t.Errorf("from %d: %d records, next %d, %v; want %+v", from, len(list), next, err, want)
		}
		for i, s := range list {
			if string(s.Value) != fmt.Sprint(from+int64(i)) {
				t.Errorf("%+v", s)
			}
		}
		from = next
	}
	if _, _, err := l.ReadRecords(13, 1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("%v", err)
	}
	if _, _, err := l.ReadRecords(0, 0); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
