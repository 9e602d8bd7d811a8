package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"testing"
)

// legacyMessage encodes an entry with magic 0 or 1. Nothing outside the tests writes one.
func legacyMessage(offset int64, magic int8, a Attributes, timestamp int64, key, value []byte) Batch {
	m := []byte{byte(magic), byte(a)}
	if magic > 0 {
		m = binary.BigEndian.AppendUint64(m, uint64(timestamp))
	}
	for _, p := range [][]byte{key, value} {
		n := int32(-1)
		if p != nil {
			n = int32(len(p))
		}
		m = append(binary.BigEndian.AppendUint32(m, uint32(n)), p...)
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m)+4))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(m))
	return append(b, m...)
}

// legacyWrapper compresses entries into one.
func legacyWrapper(t testing.TB, offset int64, magic int8, a Attributes, timestamp int64, inner ...Batch) Batch {
	t.Helper()
	payload := mustCompress(t, a.Compression(), 0, bytes.Join(plainBytes(inner), nil))
	return legacyMessage(offset, magic, a, timestamp, nil, payload)
}

func plainBytes(bs []Batch) [][]byte {
	out := make([][]byte, len(bs))
	for i, b := range bs {
		out[i] = b
	}
	return out
}

// describe lists the records of a batch, one a line, and the error that ends them.
func describe(b Batch) string {
	var s strings.Builder
	text := func(p []byte) string {
		if p == nil {
			return "null"
		}
		return fmt.Sprintf("%q", p)
	}
	for r, err := range b.Records(Limits{}) {
		if err != nil {
			fmt.Fprintf(&s, "%v\n", err)
			break
		}
		fmt.Fprintf(&s, "%d +%d at %d: %s=%s\n", r.Offset, r.OffsetDelta, r.Timestamp, text(r.Key), text(r.Value))
	}
	return s.String()
}

func TestLegacy_Golden(t *testing.T) {
	for magic, timestamp := range []int64{NoTimestamp, exampleTime} {
		b := readHex(t, fmt.Sprintf("magic%d", magic))
		if err := b.Validate(); err != nil {
			t.Error(err)
		}
		want := fmt.Sprintf("0 +0 at %d: \"k\"=\"v\"\n", timestamp)
		if got := describe(b); got != want {
			t.Errorf("magic %d: %s, want %s", magic, got, want)
		}
		if again := legacyMessage(0, int8(magic), 0, timestamp, []byte("k"), []byte("v")); !bytes.Equal(again, b) {
			t.Errorf("magic %d: the tests' encoder gives % x", magic, again)
		}
		for _, err := range b.LegacyEntries(Limits{}) {
			t.Errorf("magic %d: an uncompressed entry has entries inside, %v", magic, err)
		}
		flipEveryBit(t, b)
	}
}

func TestLegacy_Records(t *testing.T) {
	k, v := []byte("k"), []byte("v")
	const logAppend = attrLogAppendTime
	gz := Attributes(Gzip)
	inner0 := func(offset int64) Batch { return legacyMessage(offset, 0, 0, 0, k, v) }
	inner1 := func(offset, timestamp int64) Batch { return legacyMessage(offset, 1, 0, timestamp, k, v) }
	badCRC := inner1(1, 20)
	badCRC[posLegacyCRC] ^= 1
	otherMagic := inner1(1, 20)
	otherMagic[posMagic] = 2
	cut := inner1(1, 20)
	cut = cut[:len(cut)-1]
	short := inner1(1, 20)
	short[posLength+3] = 21
	longKey := legacyMessage(1, 1, 0, 20, k, v)
	binary.BigEndian.PutUint32(longKey[legacyPrefixV1:], 1000)
	binary.BigEndian.PutUint32(longKey[posLegacyCRC:], legacyChecksum(longKey))
	surplus := append(legacyMessage(7, 1, 0, 20, k, v), "surplus"...)
	surplus[posLength+3] += 7
	binary.BigEndian.PutUint32(surplus[posLegacyCRC:], legacyChecksum(surplus))

	for _, tt := range []struct {
		name string
		b    Batch
		base int64
		want string
	}{
		{"magic 0", legacyMessage(5, 0, 0, 0, k, v), 5, "5 +0 at -1: \"k\"=\"v\"\n"},
		{"magic 1", legacyMessage(5, 1, 0, 10, k, v), 5, "5 +0 at 10: \"k\"=\"v\"\n"},
		{"magic 1, append time", legacyMessage(5, 1, logAppend, 10, k, v), 5, "5 +0 at 10: \"k\"=\"v\"\n"},
		{"nulls", legacyMessage(5, 0, 0, 0, nil, nil), 5, "5 +0 at -1: null=null\n"},
		{"empty", legacyMessage(5, 1, 0, 10, []byte{}, []byte{}), 5, "5 +0 at 10: \"\"=\"\"\n"},
		{"bytes behind the value", surplus, 7, "7 +0 at 20: \"k\"=\"v\"\n"},
		{"key longer than the entry", longKey, 1, "record: invalid record 0: key at byte 30 of the records: runs past the end: 1000, limit 6\n"},

		{"magic 0 wrapper, absolute offsets", legacyWrapper(t, 8, 0, gz, 0, inner0(6), inner0(8)), 6, "6 +0 at -1: \"k\"=\"v\"\n8 +2 at -1: \"k\"=\"v\"\n"},
		{"magic 0 wrapper, offset unlike the last", legacyWrapper(t, 99, 0, gz, 0, inner0(6), inner0(8)), 6, "6 +0 at -1: \"k\"=\"v\"\n8 +2 at -1: \"k\"=\"v\"\n"},
		{"magic 1 wrapper, relative offsets", legacyWrapper(t, 8, 1, gz, 20, inner1(0, 10), inner1(1, 20)), 7, "7 +0 at 10: \"k\"=\"v\"\n8 +1 at 20: \"k\"=\"v\"\n"},
		{"magic 1 wrapper, gaps", legacyWrapper(t, 31, 1, gz, 20, inner1(2, 10), inner1(4, 20)), 29, "29 +0 at 10: \"k\"=\"v\"\n31 +2 at 20: \"k\"=\"v\"\n"},
		{"magic 1 wrapper, one record", legacyWrapper(t, 31, 1, gz, 20, inner1(0, 20)), 31, "31 +0 at 20: \"k\"=\"v\"\n"},
		{"magic 1 wrapper with offset 0", legacyWrapper(t, 0, 1, gz, 20, inner1(0, 10), inner1(1, 20)), 0, "0 +0 at 10: \"k\"=\"v\"\n1 +1 at 20: \"k\"=\"v\"\n"},
		{"magic 1 wrapper with absolute offsets", legacyWrapper(t, 8, 1, gz, 20, inner1(7, 10), inner1(8, 20)), 7, "7 +0 at 10: \"k\"=\"v\"\n8 +1 at 20: \"k\"=\"v\"\n"},
		{"append time overrides", legacyWrapper(t, 8, 1, gz|logAppend, 99, inner1(0, 10), inner1(1, 20)), 7, "7 +0 at 99: \"k\"=\"v\"\n8 +1 at 99: \"k\"=\"v\"\n"},
		{"magic 0 inside magic 1", legacyWrapper(t, 8, 1, gz|logAppend, 99, inner0(0), inner1(1, 20)), 7, "7 +0 at -1: \"k\"=\"v\"\n8 +1 at 99: \"k\"=\"v\"\n"},
		{"magic 1 inside magic 0", legacyWrapper(t, 8, 0, gz, 0, inner1(7, 10), inner0(8)), 7, "7 +0 at 10: \"k\"=\"v\"\n8 +1 at -1: \"k\"=\"v\"\n"},

		{"value of a wrapper is null", legacyMessage(8, 1, gz, 20, k, nil), 8, "record: invalid records: value at byte 0 of the records: null in a compressed entry: 0, limit 0\n"},
		{"no records inside", legacyWrapper(t, 8, 1, gz, 20), 8, "record: invalid records: records at byte 0 of the records: none in a compressed entry: 0, limit 0\n"},
		{"no records inside, magic 0", legacyWrapper(t, 8, 0, gz, 20), 8, "record: invalid records: records at byte 0 of the records: none in a compressed entry: 0, limit 0\n"},
		{"last offset inside above the wrapper's", legacyWrapper(t, 8, 1, gz, 20, inner1(0, 1), inner1(9, 2)), 8, "record: invalid records: offset at byte 0 of the records: of the last record inside is above the entry's own: 9, limit 8\n"},
		{"nested", legacyWrapper(t, 8, 1, gz, 20, inner1(0, 1), legacyWrapper(t, 1, 1, gz, 2, inner1(0, 2))), 7, "7 +0 at 1: \"k\"=\"v\"\nrecord: invalid record 1: attributes at byte 53 of the records: compressed inside a compressed entry: 1, limit 0\n"},
		{"checksum inside", legacyWrapper(t, 8, 1, gz, 20, inner1(0, 1), badCRC), 7, "7 +0 at 1: \"k\"=\"v\"\nrecord: invalid record 1: crc at byte 48 of the records: mismatch: record: checksum mismatch\n"},
		{"magic 2 inside", legacyWrapper(t, 8, 1, gz, 20, inner1(0, 1), otherMagic), 8, "record: invalid record 1: magic at byte 52 of the records: unknown: 2, limit 1\n"},
		{"cut inside", legacyWrapper(t, 8, 1, gz, 20, inner1(0, 1), cut), 8, "record: invalid record 1: length at byte 36 of the records: runs past the end: 36, limit 35\n"},
		{"cut inside, magic 0", legacyWrapper(t, 8, 0, gz, 20, inner1(7, 1), cut[:10]), 7, "7 +0 at 1: \"k\"=\"v\"\nrecord: invalid record 1: length at byte 36 of the records: runs past the end: 17, limit 10\n"},
		{"length below the minimum", legacyWrapper(t, 8, 1, gz, 20, inner1(0, 1), short), 8, "record: invalid record 1: length at byte 44 of the records: too small: 21, limit 22\n"},
		{"key inside too long", legacyWrapper(t, 8, 1, gz, 20, longKey), 8, "record: invalid record 0: key at byte 30 of the records: runs past the end: 1000, limit 6\n"},
		{"no gzip", legacyMessage(8, 1, gz, 20, nil, []byte("not gzip, whatever it is")), 8, "record: invalid records: records at byte 0 of the records: cannot be decompressed: gzip: gzip: invalid header\n"},
	} {
		if tt.b.Validate() != nil {
			t.Errorf("%s: not valid", tt.name)
		}
		if got := describe(tt.b); got != tt.want {
			t.Errorf("%s:\n%swant\n%s", tt.name, got, tt.want)
		}
		if got := tt.b.BaseOffset(); got != tt.base {
			t.Errorf("%s: base offset %d, want %d", tt.name, got, tt.base)
		}
	}
}

// TestLegacy_Codecs wraps enough records for several blocks in every codec, in both framings of snappy and with the
// header checksum of LZ4 that writers of magic 0 stored.
func TestLegacy_Codecs(t *testing.T) {
	const n = 3000
	value := []byte("a value that is repeated many times over and over")
	for magic := range int8(2) {
		first := int64(0)
		if magic == 0 {
			first = 1000
		}
		var inner []Batch
		for i := range int64(n) {
			inner = append(inner, legacyMessage(first+i, magic, 0, i, nil, value))
		}
		plain := bytes.Join(plainBytes(inner), nil)
		bare := mustCompress(t, Snappy, 0, plain[:30<<10/len(inner[0])*len(inner[0])])[20:]
		historic := mustCompress(t, LZ4, 0, plain)
		historic[6] = 0x1a
		for name, payload := range map[string][]byte{
			"gzip": mustCompress(t, Gzip, 0, plain), "snappy": mustCompress(t, Snappy, 0, plain), "lz4": mustCompress(t, LZ4, 0, plain),
			"snappy, bare": bare, "lz4, historic": historic,
		} {
			codec := map[byte]Compression{'g': Gzip, 's': Snappy, 'l': LZ4}[name[0]]
			b := legacyMessage(1000+n-1, magic, Attributes(codec), n-1, nil, payload)
			want := int64(n)
			if name == "snappy, bare" {
				want = int64(30 << 10 / len(inner[0]))
			}
			got := int64(0)
			for r, err := range b.Records(Limits{}) {
				if err != nil {
					if magic == 0 || name != "lz4, historic" || !errors.Is(err, errLZ4HeaderHash) {
						t.Errorf("magic %d, %s: record %d: %v", magic, name, got, err)
					}
					want = 0
					break
				}
				start := 1000 + n - want
				if magic == 0 {
					start = first
				}
				if r.Offset != start+got || !bytes.Equal(r.Value, value) || magic == 1 && r.Timestamp != got {
					t.Fatalf("magic %d, %s: record %d: offset %d, timestamp %d, %q", magic, name, got, r.Offset, r.Timestamp, r.Value)
				}
				got++
			}
			if got != want {
				t.Errorf("magic %d, %s: %d records, want %d", magic, name, got, want)
			}
		}
	}
}

func TestLegacy_UnsupportedCodec(t *testing.T) {
	payload := mustCompress(t, Zstd, 0, legacyMessage(0, 1, 0, 0, nil, nil))
	for magic := range int8(2) {
		for _, c := range []Compression{Zstd, 5, 6, 7} {
			b := legacyMessage(3, magic, Attributes(c), 0, nil, payload)
			if err := b.Validate(); err != nil {
				t.Errorf("magic %d, codec %s: Validate: %v", magic, c, err)
			}
			var err error
			for _, err = range b.Records(Limits{}) {
			}
			if !errors.Is(err, ErrUnsupportedCompression) || errors.Is(err, ErrCorrupt) {
				t.Errorf("magic %d, codec %s: %v", magic, c, err)
			}
			if b.BaseOffset() != 3 {
				t.Errorf("magic %d, codec %s: base offset %d", magic, c, b.BaseOffset())
			}
		}
	}
}

func TestLegacy_Limit(t *testing.T) {
	inner := legacyMessage(0, 1, 0, 7, nil, make([]byte, 1000))
	b := legacyWrapper(t, 4, 1, Attributes(Gzip), 7, inner)
	body := len(inner) - LogOverhead
	for limit, ok := range map[int]bool{0: true, body: true, body - 1: false, 1: false, math.MaxInt: true} {
		var err error
		for _, err = range b.Records(Limits{MaxRecordBytes: limit}) {
		}
		for _, err2 := range b.LegacyEntries(Limits{MaxRecordBytes: limit}) {
			if (err2 == nil) != (err == nil) {
				t.Errorf("limit %d: Records says %v, LegacyEntries %v", limit, err, err2)
			}
		}
		if (err == nil) != ok || !ok && !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	// What is not compressed is not measured.
	for _, err := range inner.Records(Limits{MaxRecordBytes: 1}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestLegacyEntries shows what Records judges: wrong checksums, nested entries, stored offsets and times.
func TestLegacyEntries(t *testing.T) {
	bad := legacyMessage(1, 0, 0x0f, 0, nil, []byte("v"))
	bad[posLegacyCRC] ^= 0xff
	nested := legacyWrapper(t, 3, 1, Attributes(Snappy)|attrLogAppendTime, 77, legacyMessage(0, 1, 0, 5, nil, nil))
	b := legacyWrapper(t, 9, 1, Attributes(LZ4)|attrLogAppendTime, 99, legacyMessage(0, 1, 0, 5, nil, nil), bad, nested)
	want := []LegacyEntry{
		{Offset: 0, Size: 34, Magic: 1, Timestamp: 5, CRC: legacyMessage(0, 1, 0, 5, nil, nil).CRC(), CRCValid: true},
		{Offset: 1, Size: 27, Magic: 0, Attributes: 0x0f, Timestamp: NoTimestamp, CRC: bad.CRC()},
		{Offset: 3, Size: len(nested), Magic: 1, Attributes: 0x0a, Timestamp: 77, CRC: nested.CRC(), CRCValid: true},
	}
	i := 0
	for e, err := range b.LegacyEntries(Limits{}) {
		if err != nil || i >= len(want) || e != want[i] {
			t.Fatalf("entry %d: %+v, %v", i, e, err)
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%d entries, want %d", i, len(want))
	}
	for range b.LegacyEntries(Limits{}) {
		break // Stopping early must not hang or leak a step.
	}
	for range readHex(t, "lz4").LegacyEntries(Limits{}) {
		t.Error("a v2 batch has entries of the old formats inside")
	}
}

func TestLegacy_SmallestSizes(t *testing.T) {
	for magic, smallest := range []int{legacyOverheadV0, legacyOverheadV1} {
		b := legacyMessage(0, int8(magic), 0, 0, nil, nil)
		if len(b) != smallest {
			t.Fatalf("magic %d: the smallest entry has %d bytes, want %d", magic, len(b), smallest)
		}
		if _, _, err := Next(b); err != nil {
			t.Errorf("magic %d: %v", magic, err)
		}
		b[posLength+3]--
		if _, _, err := Next(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("magic %d, a byte less: %v", magic, err)
		}
	}
}

// TestLegacy_Damaged cuts and flips the decompressed entries, with the checksum of the wrapper right: what a broken writer
// could have stored. Each must end in an error, or give records whose count and offsets the wrapper allows.
func TestLegacy_Damaged(t *testing.T) {
	for magic := range int8(2) {
		first := int64(40) * int64(1-magic)
		plain := append(legacyMessage(first, magic, 0, 10, []byte("k"), []byte("v")), legacyMessage(first+1, magic, 0, 11, nil, []byte("w"))...)
		half := len(legacyMessage(first, magic, 0, 10, []byte("k"), []byte("v")))
		read := func(p []byte) (n int, err error) {
			b := legacyMessage(41, magic, Attributes(Snappy), 11, nil, mustCompress(t, Snappy, 0, p))
			_ = b.BaseOffset()
			for range b.LegacyEntries(Limits{}) {
			}
			for _, err = range b.Records(Limits{MaxRecordBytes: 1 << 16}) {
				if err == nil {
					n++
				}
			}
			return n, err
		}
		for cut := range plain {
			if n, err := read(plain[:cut]); (err == nil) != (cut == half) || err != nil && !errors.Is(err, ErrInvalidRecord) || n > 1 {
				t.Errorf("magic %d, cut to %d bytes: %d records, %v", magic, cut, n, err)
			}
		}
		for i := range 8 * len(plain) {
			damaged := bytes.Clone(plain)
			damaged[i/8] ^= 1 << (i % 8)
			at := i / 8 % half // The entries have the same fields in front.
			if n, err := read(damaged); err == nil && (n != 2 || at >= LogOverhead) {
				t.Errorf("magic %d, bit %d of byte %d flipped: %d records and no error", magic, i%8, i/8, n)
			}
		}
	}
}

func FuzzLegacy(f *testing.F) {
	f.Add([]byte(readHex(f, "magic0")))
	f.Add([]byte(readHex(f, "magic1")))
	for _, c := range []Compression{Gzip, Snappy, LZ4, Zstd, 5} {
		for magic := range int8(2) {
			codec := c
			if c > LZ4 {
				codec = Gzip
			}
			payload := mustCompress(f, codec, 0, append(legacyMessage(0, magic, 0, 5, nil, []byte("v")), legacyMessage(1, 1, 8, 6, []byte("k"), nil)...))
			f.Add([]byte(legacyMessage(7, magic, Attributes(c), 9, nil, payload)))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		fuzzLegacy(t, p)
		if len(p) >= HeaderUpToMagic {
			// With the checksum right the reader gets further. The magic and the codec are brought into range as well.
			p = bytes.Clone(p)
			p[posMagic] &= 1
			binary.BigEndian.PutUint32(p[posLength:], uint32(len(p)-LogOverhead))
			binary.BigEndian.PutUint32(p[posLegacyCRC:], crc32.ChecksumIEEE(p[posMagic:]))
			fuzzLegacy(t, p)
		}
		// And as the plain text of a wrapper.
		for magic := range int8(2) {
			fuzzLegacy(t, legacyMessage(math.MaxInt64, magic, Attributes(Snappy), 9, nil, mustCompress(t, Snappy, 0, p)))
		}
	})
}

func fuzzLegacy(t *testing.T, p []byte) {
	b, _, err := Next(p)
	if err != nil || b.Magic() >= Magic {
		return
	}
	limits := Limits{MaxRecordBytes: 1 << 16}
	valid := b.Validate() == nil
	var records []LegacyEntry
	var last error
	for e, err := range b.LegacyEntries(limits) {
		records, last = append(records, e), err
		if len(records) > 1<<12 {
			return
		}
	}
	if last == nil && b.Attributes().Compression() != None && len(records) == 0 {
		t.Error("a wrapper without an entry and without an error")
	}
	n := 0
	for r, err := range b.Records(limits) {
		if err != nil {
			if !errors.Is(err, ErrInvalidRecord) && !errors.Is(err, ErrUnsupportedCompression) || errors.Is(err, io.EOF) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		if n++; b.Attributes().Compression() != None {
			continue
		}
		// An uncompressed entry is what its record says, unless bytes follow the value or a null has an odd length.
		again := legacyMessage(r.Offset, b.Magic(), 0, r.Timestamp, r.Key, r.Value)
		if again[posLegacyAttributes] = b[posLegacyAttributes]; len(again) == len(b) && valid {
			binary.BigEndian.PutUint32(again[posLegacyCRC:], legacyChecksum(again))
			if !bytes.Equal(again, b) && !hasOddNull(b) {
				t.Errorf("read as\n% x\nof\n% x", again, b)
			}
		}
	}
	if last == nil && b.Attributes().Compression() != None && n != len(records) {
		t.Errorf("%d records of %d entries", n, len(records))
	}
}

// hasOddNull tells whether a length below -1 stands for null.
func hasOddNull(b Batch) bool {
	var r Record
	legacyKeyValue(b, &r)
	return r.Key == nil || r.Value == nil
}
