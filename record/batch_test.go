package record

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readHex reads a golden file: bytes in hexadecimal, spaces and empty lines ignored, '#' starts a comment.
func readHex(t testing.TB, name string) Batch {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var digits strings.Builder
	for s := bufio.NewScanner(f); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	p, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	b, rest, err := Next(p)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%s: Next: %v, %d bytes left", name, err, len(rest))
	}
	return b
}

const exampleTime = 1700000000000

// header is every number of a batch header, for comparison.
type header struct {
	BaseOffset, LastOffset, NextOffset int64
	Size                               int
	LeaderEpoch                        int32
	Magic                              int8
	CRC                                uint32
	Attributes                         Attributes
	LastOffsetDelta                    int32
	BaseTimestamp, MaxTimestamp        int64
	ProducerID                         int64
	ProducerEpoch                      int16
	BaseSequence, LastSequence, Count  int32
}

func headerOf(b Batch) header {
	return header{
		b.BaseOffset(), b.LastOffset(), b.NextOffset(), b.Size(), b.PartitionLeaderEpoch(), b.Magic(), b.CRC(),
		b.Attributes(), b.LastOffsetDelta(), b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(),
		b.BaseSequence(), b.LastSequence(), b.Count(),
	}
}

var goldenHeaders = map[string]header{
	"plain": {
		0, 0, 1, 70, -1, 2, 0xe99b8dd8, 0, 0, exampleTime, exampleTime, -1, -1, -1, -1, 1,
	},
	"idempotent": {
		100, 102, 103, 92, 7, 2, 0x75386f28, 0, 2, exampleTime + 10, exampleTime + 15, 0x1234, 1, 2147483646, 0, 3,
	},
	"commit": {
		103, 103, 104, 78, 7, 2, 0x622774f8, 0x30, 0, exampleTime + 20, exampleTime + 20, 0x1234, 1, -1, -1, 1,
	},
	"emptied": {
		100, 102, 103, 61, 7, 2, 0x69138f87, 0, 2, -1, exampleTime + 15, 0x1234, 1, 2147483646, 0, 0,
	},
	"snappy": {
		0, 0, 1, 92, -1, 2, 0x08ee4869, 2, 0, exampleTime, exampleTime, -1, -1, -1, -1, 1,
	},
	"lz4": {
		0, 0, 1, 85, -1, 2, 0x924fa790, 3, 0, exampleTime, exampleTime, -1, -1, -1, -1, 1,
	},
	"magic0": {
		0, 0, 1, 28, -1, 0, 0x1fecd70a, 0, 0, -1, -1, -1, -1, -1, -1, 1,
	},
	"magic1": {
		0, 0, 1, 36, -1, 1, 0x39268c33, 0, 0, -1, exampleTime, -1, -1, -1, -1, 1,
	},
}

func TestAccessors_Golden(t *testing.T) {
	for name, want := range goldenHeaders {
		t.Run(name, func(t *testing.T) {
			b := readHex(t, name)
			if got := headerOf(b); got != want {
				t.Errorf("header\n got %+v\nwant %+v", got, want)
			}
			if err := b.Validate(); err != nil {
				t.Error(err)
			}
			if err := b.CheckHeader(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAttributes(t *testing.T) {
	tests := []struct {
		a           Attributes
		compression Compression
		times       TimestampType
		txn, control,
		horizon bool
	}{
		{0, None, CreateTime, false, false, false},
		{0x04, Zstd, CreateTime, false, false, false},
		{0x0b, LZ4, LogAppendTime, false, false, false},
		{0x30, None, CreateTime, true, true, false},
		{0x41, Gzip, CreateTime, false, false, true},
		{-1, Compression(7), LogAppendTime, true, true, true},
	}
	for _, tt := range tests {
		if tt.a.Compression() != tt.compression || tt.a.TimestampType() != tt.times || tt.a.IsTransactional() != tt.txn ||
			tt.a.IsControl() != tt.control || tt.a.HasDeleteHorizon() != tt.horizon {
			t.Errorf("%#x: %v %v txn=%v control=%v horizon=%v", uint16(tt.a), tt.a.Compression(), tt.a.TimestampType(),
				tt.a.IsTransactional(), tt.a.IsControl(), tt.a.HasDeleteHorizon())
		}
	}
}

func TestStrings(t *testing.T) {
	for got, want := range map[string]string{
		None.String(): "none", Gzip.String(): "gzip", Snappy.String(): "snappy", LZ4.String(): "lz4", Zstd.String(): "zstd",
		Compression(6).String(): "unknown(6)", CreateTime.String(): "CreateTime", LogAppendTime.String(): "LogAppendTime",
		NoTimestampType.String(): "NoTimestampType", TimestampType(3).String(): "unknown(3)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDeleteHorizon(t *testing.T) {
	b := bytes.Clone(readHex(t, "idempotent"))
	if ms, ok := Batch(b).DeleteHorizon(); ok {
		t.Errorf("a fresh batch has the delete horizon %d", ms)
	}
	b[posAttributes+1] |= byte(attrDeleteHorizon)
	if ms, ok := Batch(b).DeleteHorizon(); !ok || ms != exampleTime+10 {
		t.Errorf("got %d %v", ms, ok)
	}
}

func TestSetters(t *testing.T) {
	b := Batch(bytes.Clone(readHex(t, "idempotent")))
	b.SetBaseOffset(1 << 40)
	b.SetPartitionLeaderEpoch(42)
	if b.BaseOffset() != 1<<40 || b.PartitionLeaderEpoch() != 42 {
		t.Errorf("got base offset %d, leader epoch %d", b.BaseOffset(), b.PartitionLeaderEpoch())
	}
	b.SetLastOffset(1002)
	if b.BaseOffset() != 1000 || b.LastOffset() != 1002 || b.NextOffset() != 1003 {
		t.Errorf("got offsets %d to %d", b.BaseOffset(), b.LastOffset())
	}
	if err := b.Validate(); err != nil {
		t.Errorf("the CRC must not cover offset and epoch: %v", err)
	}
	b.SetBaseOffset(100)
	b.SetPartitionLeaderEpoch(7)
	if !bytes.Equal(b, readHex(t, "idempotent")) {
		t.Error("the setters changed other bytes")
	}
}

func TestSetMaxTimestamp(t *testing.T) {
	b := Batch(bytes.Clone(readHex(t, "idempotent")))
	b.SetMaxTimestamp(LogAppendTime, exampleTime+99)
	if b.TimestampType() != LogAppendTime || b.MaxTimestamp() != exampleTime+99 || b.Validate() != nil {
		t.Errorf("got %v %d, %v", b.TimestampType(), b.MaxTimestamp(), b.Validate())
	}
	b.SetMaxTimestamp(CreateTime, exampleTime+15)
	if !bytes.Equal(b, readHex(t, "idempotent")) {
		t.Error("setting the old values again did not restore the batch")
	}
	// Undefined bits go only where something changes.
	b[posAttributes] |= 0x80
	b.updateCRC()
	b.SetMaxTimestamp(CreateTime, exampleTime+15)
	if b.Attributes()>>8 != -128 {
		t.Errorf("attributes %x where nothing changed", uint16(b.Attributes()))
	}
	b.SetMaxTimestamp(CreateTime, exampleTime+16)
	b.SetMaxTimestamp(CreateTime, exampleTime+15)
	if !bytes.Equal(b, readHex(t, "idempotent")) {
		t.Errorf("attributes %x after a change", uint16(b.Attributes()))
	}
	// Nothing to change: the call must leave a wrong CRC wrong.
	b[len(b)-1] ^= 1
	b.SetMaxTimestamp(CreateTime, exampleTime+15)
	if err := b.Validate(); !errors.Is(err, ErrChecksum) {
		t.Errorf("got %v, want ErrChecksum", err)
	}
}

func TestSetters_RefuseLegacy(t *testing.T) {
	for _, name := range []string{"magic0", "magic1"} {
		for what, set := range map[string]func(Batch){
			"SetBaseOffset":           func(b Batch) { b.SetBaseOffset(1) },
			"SetLastOffset":           func(b Batch) { b.SetLastOffset(1) },
			"SetPartitionLeaderEpoch": func(b Batch) { b.SetPartitionLeaderEpoch(1) },
			"SetMaxTimestamp":         func(b Batch) { b.SetMaxTimestamp(CreateTime, 1) },
		} {
			b := Batch(bytes.Clone(readHex(t, name)))
			mustPanic(t, what+" on "+name, func() { set(b) })
			if !bytes.Equal(b, readHex(t, name)) {
				t.Errorf("%s changed %s", what, name)
			}
		}
	}
	mustPanic(t, "SetMaxTimestamp with NoTimestampType", func() {
		Batch(bytes.Clone(readHex(t, "plain"))).SetMaxTimestamp(NoTimestampType, 1)
	})
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	f()
}

func TestIdentity(t *testing.T) {
	got := readHex(t, "idempotent").Identity(90, 4096)
	want := Identity{SegmentBase: 90, Position: 4096, BaseOffset: 100, Size: 92, CRC: 0x75386f28}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAccessors_DoNotAllocate(t *testing.T) {
	p := append(bytes.Clone(readHex(t, "idempotent")), readHex(t, "commit")...)
	if n := testing.AllocsPerRun(100, func() {
		for rest := p; len(rest) > 0; {
			var b Batch
			b, rest, _ = Next(rest)
			if b.Validate() != nil || b.CheckHeader() != nil || headerOf(b).Size == 0 {
				t.Fatal("bad batch")
			}
			b.SetPartitionLeaderEpoch(8)
			b.SetMaxTimestamp(LogAppendTime, exampleTime)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
