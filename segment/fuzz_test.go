package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/oncelog/oncelog/record"
)

// FuzzScan walks arbitrary bytes as a log file and as its indexes: no panic, the good batches are a prefix of the bytes,
// every tail is explained, and all ways to look agree. With fix the checksums of what is framed like batches are made right
// first, so that other fields than them are put to the test.
func FuzzScan(f *testing.F) {
	whole := join(goldenLog(f)...)
	f.Add(whole, []byte(nil), []byte(nil), uint32(97), false)
	f.Add(whole[:len(whole)-3], make([]byte, 8), make([]byte, 12), uint32(0), true)
	f.Add(append(bytes.Clone(whole), make([]byte, 70)...), []byte("\x00\x00\x00\x05\x00\x00\x00\x22"), []byte(nil), uint32(97), true)
	f.Add(make([]byte, 100), bytes.Repeat([]byte{255}, 16), bytes.Repeat([]byte{255}, 24), uint32(1), true)
	f.Add(bytes.Repeat([]byte{2}, 200), bytes.Repeat([]byte{2}, 16), bytes.Repeat([]byte{2}, 24), uint32(1), true)
	f.Fuzz(func(t *testing.T, log, offsets, times []byte, base32 uint32, fix bool) {
		if len(log) > 1<<20 {
			return
		}
		base := int64(base32)
		if fix {
			log = fixChecksums(log)
		}
		st := memory(t)
		st.write(t, KindOffsetIndex, base, offsets)
		st.write(t, KindTimeIndex, base, times)
		s := st.log(t, base, Config{IndexIntervalBytes: 1, Limits: func() record.Limits { return record.Limits{MaxRecordBytes: 1 << 16} }}, log)
		defer s.Close()
		var good []byte
		c := s.Scan(0)
		for c.Next() {
			if c.Batch().Position != int64(len(good)) {
				t.Fatalf("position %d after %d bytes", c.Batch().Position, len(good))
			}
			good = append(good, c.Batch().Bytes()...)
		}
		tail := c.Tail()
		if !bytes.HasPrefix(log, good) || tail.Position != int64(len(good)) {
			t.Fatalf("%d good bytes, %+v", len(good), tail)
		}
		rest := log[len(good):]
		var corrupt *CorruptError
		zero := len(rest) > 0 && firstNonZero(rest) == len(rest)
		switch {
		case tail.Kind == Unfinished, (tail.Kind == CleanEnd) != (len(rest) == 0), (tail.Kind == ZeroTail) != zero,
			(tail.Kind == Torn || tail.Kind == Damage) != errors.As(tail.Reason, &corrupt):
			t.Fatalf("%+v", tail)
		}
		ordered, otail := 0, s.ScanWith(0, ToEnd, ScanOptions{Ordered: true})
		for otail.Next() {
			ordered += otail.Batch().Size()
		}
		if ordered > len(good) {
			t.Fatalf("the stricter walk went further: %d", ordered)
		}
		fuzzLookups(t, s, log[:ordered], base)
		fuzzRebuild(t, s, tail)
	})
}

func fixChecksums(log []byte) []byte {
	log = bytes.Clone(log)
	for b := range record.All(log) {
		if b == nil {
			break
		}
		if b.Magic() == record.Magic {
			binary.BigEndian.PutUint32(b[17:], record.Checksum(b[21:]))
		} else {
			binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
		}
	}
	return log
}

// fuzzLookups compares look-ups below the end of the batches in order with a search through them.
func fuzzLookups(t *testing.T, s *Segment, good []byte, base int64) {
	end := int64(len(good))
	for _, offset := range []int64{0, base, base + 1, base + 7, 1 << 62} {
		pos, want := int64(0), record.Batch(nil)
		for b := range record.All(good) {
			if b.LastOffset() >= offset {
				want = b
				break
			}
			pos += int64(len(b))
		}
		got, h, found, err := s.Locate(offset, end)
		if err != nil || found != (want != nil) || found && (got != pos || h.LastOffset != want.LastOffset()) {
			t.Fatalf("offset %d: %d %+v %v %v, want %d", offset, got, h, found, err, pos)
		}
		if _, _, err := s.OffsetByTimestamp(offset, base, end); err != nil && !errors.Is(err, record.ErrCorrupt) &&
			!errors.Is(err, record.ErrUnsupportedCompression) {
			t.Fatalf("time %d: %v", offset, err)
		}
		r, err := s.Read(ReadOptions{StartOffset: offset, MaxBytes: 100, MaxPosition: end, MinOneMessage: true})
		if err != nil || r.Found != found {
			t.Fatalf("read %d: %v %v", offset, r.Found, err)
		}
		r.Close()
	}
	if _, _, err := s.FindMaxTimestamp(end); err != nil && !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrUnsupportedCompression) {
		t.Fatal(err)
	}
	if _, _, err := s.FindBatch(end, ToEnd, 1<<20, nil); err != nil && !errors.Is(err, ErrSearchLimit) {
		t.Fatal(err)
	}
}

// fuzzRebuild makes the indexes anew, cuts the tail and walks again.
func fuzzRebuild(t *testing.T, s *Segment, tail Tail) {
	ok(t, s.ResetIndexes())
	c := s.Scan(0)
	for c.Next() {
		if err := s.Note(c.Batch().Batch, c.Batch().Position); err != nil && !errors.Is(err, ErrIndex) && !errors.Is(err, ErrOffsetOverflow) {
			t.Fatal(err)
		}
	}
	ok(t, s.TruncateToPosition(tail.Position))
	_, after := scan(t, s.Scan(0))
	if after.Kind != CleanEnd || after.Position != tail.Position || after.LastOffset != tail.LastOffset {
		t.Fatalf("%+v after the cut, %+v before", after, tail)
	}
}
