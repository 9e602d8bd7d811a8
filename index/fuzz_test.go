package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

func seeds(f *testing.F) {
	for _, s := range []string{
		goldenOffsets, goldenTimes, goldenTxn, goldenTxn + goldenTxn, "", "00", "0000000000000000", "000000000000000000000000",
		"00000001 00000000 ffffffff 00000008", goldenOffsets + "00000000000000000000", "ffffffffffffffffffffffff",
	} {
		f.Add(unhex(f, s), int64(150))
	}
}

// Whatever a file holds: no panic, the promised bounds, and entries that read as they are written.
func FuzzOffset(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, p []byte, target int64) {
		const base = 100
		m := vfstest.NewMem()
		put(t, m, "/a.index", p)
		for _, kafka := range []bool{false, true} {
			x := openOffset(t, m, "/a.index", base, Config{ReadOnly: true, KafkaOpen: kafka})
			e, err := x.Lookup(target)
			if err != nil {
				wantIs(t, err, ErrCorrupt)
			} else if e.Offset < base || e.Offset > max(target, base) || e.Position < 0 {
				t.Fatalf("Lookup(%d) = %v", target, e)
			}
			if e, found, err := x.UpperBound(OffsetPosition{}, int32(target)); err != nil {
				wantIs(t, err, ErrCorrupt)
			} else if found && e.Position < int32(target) {
				t.Fatalf("UpperBound(%d) = %v", target, e)
			}
			var again []byte
			for e, err := range x.All() {
				ok(t, err)
				again = binary.BigEndian.AppendUint32(again, uint32(e.Offset-base))
				again = binary.BigEndian.AppendUint32(again, uint32(e.Position))
			}
			if !bytes.Equal(again, p[:len(again)]) || len(p)-len(again)-len(p)%8 != 8*x.ZeroTail() {
				t.Fatalf("reads as % x, is % x", again, p)
			}
			if rest := p[len(again) : len(p)-len(p)%8]; !bytes.Equal(rest, make([]byte, len(rest))) {
				t.Fatalf("the tail % x is not zeros", rest)
			}
			if x.CheckEntries(1<<31) != nil {
				continue
			}
			ok(t, x.SanityCheck())
			w := openOffset(t, m, "/b.index", base, Config{})
			ok(t, w.Reset())
			for e := range x.All() {
				ok(t, w.Append(e.Offset, e.Position))
			}
			ok(t, w.Trim())
			if got := get(t, m, "/b.index"); !bytes.Equal(got, again) {
				t.Fatalf("written again as % x, was % x", got, again)
			}
		}
	})
}

func FuzzTime(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, p []byte, target int64) {
		const base = 100
		m := vfstest.NewMem()
		put(t, m, "/a.timeindex", p)
		for _, kafka := range []bool{false, true} {
			x := openTime(t, m, "/a.timeindex", base, Config{ReadOnly: true, KafkaOpen: kafka})
			e, err := x.Lookup(target)
			if err != nil {
				wantIs(t, err, ErrCorrupt)
			} else if e.Offset < base || e.Timestamp > max(target, NoTimestamp) || e.Timestamp < NoTimestamp {
				t.Fatalf("Lookup(%d) = %v", target, e)
			}
			var again []byte
			for e, err := range x.All() {
				ok(t, err)
				again = binary.BigEndian.AppendUint64(again, uint64(e.Timestamp))
				again = binary.BigEndian.AppendUint32(again, uint32(e.Offset-base))
			}
			if !bytes.Equal(again, p[:len(again)]) || len(p)-len(again)-len(p)%12 != 12*x.ZeroTail() {
				t.Fatalf("reads as % x, is % x", again, p)
			}
			if x.CheckEntries(1<<40) != nil {
				continue
			}
			ok(t, x.SanityCheck())
			w := openTime(t, m, "/b.timeindex", base, Config{})
			ok(t, w.Reset())
			for e := range x.All() {
				ok(t, w.MaybeAppend(e.Timestamp, e.Offset, true))
			}
			ok(t, w.Trim())
			if got := get(t, m, "/b.timeindex"); !bytes.Equal(got, again) {
				t.Fatalf("written again as % x, was % x", got, again)
			}
		}
	})
}

func FuzzTxn(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, p []byte, target int64) {
		const base = 100
		m := vfstest.NewMem()
		put(t, m, "/a.txnindex", p)
		for _, kafka := range []bool{false, true} {
			x := openTxn(t, m, "/a.txnindex", base, Config{ReadOnly: true, KafkaOpen: kafka})
			var again []byte
			var err error
			for e, e2 := range x.All() {
				if err = e2; err == nil {
					again = appendTxn(again, e)
				}
			}
			if !bytes.Equal(again, p[:len(again)]) {
				t.Fatalf("reads as % x, is % x", again, p)
			}
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupportedVersion) {
				t.Fatal(err)
			}
			if err == nil && len(again) != len(p)-len(p)%34 {
				t.Fatalf("read %d bytes of %d", len(again), len(p))
			}
			txns, _, cerr := x.Collect(target, target+100)
			for _, e := range txns {
				if e.LastOffset < target {
					t.Fatalf("Collect(%d) has %v", target, e)
				}
			}
			if cerr != nil && err == nil {
				t.Fatal(cerr)
			}
			if err != nil || kafka {
				continue
			}
			w := openTxn(t, m, "/b.txnindex", base, Config{})
			ok(t, w.Reset())
			for e := range x.All() {
				ok(t, w.Append(e))
			}
			if got := get(t, m, "/b.txnindex"); !bytes.Equal(got, again) {
				t.Fatalf("written again as % x, was % x", got, again)
			}
		}
	})
}
