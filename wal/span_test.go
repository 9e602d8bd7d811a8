package wal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// A segment whose offsets span 2^31 has no place in an index. Every open for writing refuses it, whatever is there of its
// indexes, and tells so by type; an open for reading says that one for writing is refused, and reads it.
func TestOpen_SegmentSpansTooMuch(t *testing.T) {
	for _, layout := range []struct {
		name        string
		marker, log bool // closed in order; another segment behind it
		indexes     bool
		over        int64
	}{
		{"unclean", false, false, false, 1},
		{"clean", true, false, true, 1},
		{"in the middle", true, true, true, 6},
		{"clean, no index", true, false, false, 1},
		{"just fits", true, true, true, 0},
	} {
		for _, o := range []Options{{}, {DamagePolicy: PointInTime}, {Compat: true}} {
			parent, dir := kafkaParent(t)
			last := segment.MaxRelativeOffset + layout.over
			write := func(path string, p []byte) {
				if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, p, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			name := func(kind segment.Kind, base int64) string { return filepath.Join(dir, segment.FileName(kind, base)) }
			a, b := record.Batch(producerBatch(t, 7, 0, 0, "a")), record.Batch(producerBatch(t, 7, 0, 1, "b"))
			b.SetBaseOffset(last)
			write(name(segment.KindLog, 0), append(append([]byte{}, a...), b...))
			bases := []int64{0}
			if layout.log {
				write(name(segment.KindLog, last+1), nil)
				bases = append(bases, last+1)
			}
			for _, base := range bases {
				if layout.indexes {
					write(name(segment.KindOffsetIndex, base), nil)
					write(name(segment.KindTimeIndex, base), nil)
				}
			}
			if layout.marker {
				write(filepath.Join(parent, ".kafka_cleanshutdown"), nil)
			}
			over := layout.over > 0
			ro := Options{ReadOnly: true}
			r := openTest(t, dir, ro)
			report := r.RecoveryReport()
			if report.Refused() != over {
				t.Errorf("%s: the report of a reader says refused: %v", layout.name, report.Refused())
			}
			if list, holes := readAround(t, r, 0); len(list) != 2 || list[1] != last || len(holes) > 0 {
				t.Errorf("%s: read %v, holes %v", layout.name, list, holes)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			l, err := Open(context.Background(), dir, o)
			if err == nil {
				err = l.Close()
			}
			refused, ok := errors.AsType[*recovery.RefusedError](err)
			if ok != over || over && (len(refused.Findings) != 1 || !errors.Is(refused.Findings[0].Err, segment.ErrOffsetOverflow)) || !over && err != nil {
				t.Errorf("%s, policy %v, Compat %v: %v", layout.name, o.DamagePolicy, o.Compat, err)
			}
		}
	}
}
