package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// uncovered are the fields of a version 2 header that no checksum protects.
var uncovered = []struct {
	name     string
	from, to int
}{
	{"baseOffset", 0, 8},
	{"length", 8, 12},
	{"partitionLeaderEpoch", 12, 16},
	{"magic", 16, 17},
}

func uncoveredField(pos int) string {
	for _, f := range uncovered {
		if pos >= f.from && pos < f.to {
			return f.name
		}
	}
	return ""
}

// Every single flipped bit from the CRC on is found by Validate. In front of it the length and the magic are found when
// the batch is cut out of the log again, and the other two can be found only by whoever knows the batches around.
func TestValidate_FlipEveryBit(t *testing.T) {
	for _, name := range []string{"plain", "idempotent", "commit", "emptied", "snappy", "lz4"} {
		good := readHex(t, name)
		for bit := range len(good) * 8 {
			p := bytes.Clone(good)
			p[bit/8] ^= 1 << (bit % 8)
			b, rest, err := Next(p)
			switch field := uncoveredField(bit / 8); field {
			case "length", "magic":
				if err == nil && len(rest) == 0 && b.Validate() == nil {
					t.Errorf("%s: bit %d of %s: not found", name, bit, field)
				}
			case "":
				if err != nil {
					t.Fatalf("%s: bit %d: %v", name, bit, err)
				}
				var c *CorruptError
				if err := b.Validate(); !errors.As(err, &c) || !errors.Is(err, ErrChecksum) || !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: bit %d: %v, want a checksum error", name, bit, err)
				} else if uint32(c.Got) != b.CRC() || c.Field != "crc" || c.Pos != 17 || uint32(c.Want) != Checksum(b[21:]) {
					t.Errorf("%s: bit %d: %+v", name, bit, c)
				}
			default:
				if err != nil || b.Validate() != nil {
					t.Errorf("%s: bit %d of %s: %v, %v", name, bit, field, err, b.Validate())
				}
			}
		}
	}
}

// A page that was never written, in the middle of a batch, is not skipped.
func TestValidate_ZeroPage(t *testing.T) {
	w := NewBuilder(BuilderOptions{})
	for range 5 {
		if err := w.Append(exampleTime, Record{Value: bytes.Repeat([]byte{'v'}, 8<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	clear(b[4096:8192])
	if err := b.Validate(); !errors.Is(err, ErrChecksum) {
		t.Errorf("got %v", err)
	}
}

// A checksum of 0 is as good as any other.
func TestValidate_ZeroChecksum(t *testing.T) {
	w := NewBuilder(BuilderOptions{PartitionLeaderEpoch: NoPartitionLeaderEpoch})
	if err := w.Append(exampleTime, Record{Value: []byte{0, 0, 0, 0}}); err != nil {
		t.Fatal(err)
	}
	b, err := w.Batch()
	if err != nil {
		t.Fatal(err)
	}
	// The checksum is linear in the bits of the message, so the value that makes it 0 follows from 32 trials instead of
	// a search: solve for the combination of value bits whose effects cancel the checksum of the value 0.
	value := b[len(b)-5 : len(b)-1]
	zero := Checksum(b[posAttributes:])
	var basis [32]struct{ effect, bits uint32 }
	for i := range 32 {
		binary.BigEndian.PutUint32(value, 1<<i)
		e, bits := Checksum(b[posAttributes:])^zero, uint32(1)<<i
		for j := 31; j >= 0 && e != 0; j-- {
			if e>>j&1 == 0 {
				continue
			}
			if basis[j].effect == 0 {
				basis[j].effect, basis[j].bits = e, bits
				break
			}
			e, bits = e^basis[j].effect, bits^basis[j].bits
		}
	}
	wanted, solution := zero, uint32(0)
	for j := 31; j >= 0; j-- {
		if wanted>>j&1 != 0 {
			wanted, solution = wanted^basis[j].effect, solution^basis[j].bits
		}
	}
	binary.BigEndian.PutUint32(value, solution)
	b.updateCRC()
	if b.CRC() != 0 {
		t.Fatalf("the checksum is %08x, want 0", b.CRC())
	}
	got, rest, err := Next(append(bytes.Clone(b), readHex(t, "plain")...))
	if err != nil || got.Validate() != nil {
		t.Errorf("%v, %v", err, got.Validate())
	}
	if next, _, err := Next(rest); err != nil || next.Validate() != nil {
		t.Errorf("the batch after it: %v", err)
	}
}

func TestCheckHeader(t *testing.T) {
	set64 := func(pos int, v int64) func(p []byte) {
		return func(p []byte) { binary.BigEndian.PutUint64(p[pos:], uint64(v)) }
	}
	set32 := func(pos int, v int32) func(p []byte) {
		return func(p []byte) { binary.BigEndian.PutUint32(p[pos:], uint32(v)) }
	}
	tests := []struct {
		what  string
		batch string
		set   func(p []byte)
		field string // "" for a sound header
	}{
		{"as written", "idempotent", func([]byte) {}, ""},
		{"emptied by compaction", "emptied", set32(posLastOffsetDelta, 9), ""},
		{"three records left of ten", "idempotent", set32(posLastOffsetDelta, 9), ""},
		{"twelve records of ten", "emptied", func(p []byte) {
			set32(posLastOffsetDelta, 9)(p)
			set32(posCount, 12)(p)
		}, "recordsCount"},
		{"four records of three", "idempotent", set32(posCount, 4), "recordsCount"},
		{"negative count", "idempotent", set32(posCount, -1), "recordsCount"},
		{"smallest count", "idempotent", set32(posCount, math.MinInt32), "recordsCount"},
		{"negative delta", "emptied", set32(posLastOffsetDelta, -1), "lastOffsetDelta"},
		{"all records at the largest delta", "emptied", func(p []byte) {
			set32(posLastOffsetDelta, math.MaxInt32)(p)
			set32(posCount, math.MaxInt32)(p)
		}, ""},
		{"negative offset", "plain", set64(posBaseOffset, -1), "baseOffset"},
		{"negative legacy offset", "magic1", set64(posBaseOffset, -5), "baseOffset"},
		{"largest offset", "plain", set64(posBaseOffset, math.MaxInt64-1), ""},
		{"next offset overflows", "plain", set64(posBaseOffset, math.MaxInt64), "baseOffset"},
		{"largest offset of three", "idempotent", set64(posBaseOffset, math.MaxInt64-3), ""},
		{"last offset overflows", "idempotent", set64(posBaseOffset, math.MaxInt64-2), "baseOffset"},
		{"next legacy offset overflows", "magic0", set64(posBaseOffset, math.MaxInt64), "baseOffset"},
		{"negative producer id is stored as it came", "plain", set64(posProducerID, -5), ""},
		{"undefined attribute bits", "plain", func(p []byte) { p[posAttributes] = 0xff }, ""},
	}
	for _, tt := range tests {
		b := Batch(bytes.Clone(readHex(t, tt.batch)))
		tt.set(b)
		err := b.CheckHeader()
		if tt.field == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
			continue
		}
		var c *CorruptError
		if !errors.As(err, &c) || !errors.Is(err, ErrCorrupt) || c.Field != tt.field {
			t.Errorf("%s: %v, want a CorruptError of %s", tt.what, err, tt.field)
		}
	}
}

func TestCheckHeader_Codec(t *testing.T) {
	for codec := range 8 {
		for name, last := range map[string]int{"plain": 4, "magic0": 3, "magic1": 3} {
			b := Batch(bytes.Clone(readHex(t, name)))
			pos := posLegacyAttributes
			if b.Magic() == Magic {
				pos = posAttributes + 1
			}
			b[pos] = byte(codec)
			err := b.CheckHeader()
			if codec <= last && err != nil {
				t.Errorf("%s with codec %d: %v", name, codec, err)
			}
			if codec > last && (!errors.Is(err, ErrUnsupportedCompression) || errors.Is(err, ErrCorrupt)) {
				t.Errorf("%s with codec %d: %v", name, codec, err)
			}
		}
	}
}

func TestErrors_Text(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{
			&CorruptError{Field: "crc", Pos: 17, Got: 0xe99b8dd8, Want: 0xff, Err: ErrChecksum},
			"record: corrupt batch: crc at byte 17: 0xe99b8dd8, want 0x000000ff as computed",
		},
		{
			&CorruptError{Field: "length", Pos: 8, Got: 5, Want: 14, Rule: "at least"},
			"record: corrupt batch: length at byte 8: 5, want at least 14",
		},
		{&CorruptError{Field: "magic", Pos: 16, Got: 1, Want: 2}, "record: corrupt batch: magic at byte 16: 1, want 2"},
		{&TruncatedError{Have: 70, Need: 71}, "record: batch runs past the end of its buffer: needs 71 bytes, has 70"},
		{&MagicError{Magic: 3}, "record: unsupported magic at byte 16: 3, want 0, 1 or 2"},
		{
			&RecordError{Index: 3, Field: "key", Reason: reasonShort, Pos: 17, Got: 500, Want: 20},
			"record: invalid record 3: key at byte 17 of the records: runs past the end: 500, limit 20",
		},
		{
			&RecordError{Index: -1, Field: "records", Reason: "cannot be read", Err: errors.New("cause")},
			"record: invalid records: records at byte 0 of the records: cannot be read: cause",
		},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
