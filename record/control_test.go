package record

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

func TestAppendEndTxnMarker_Golden(t *testing.T) {
	p := Producer{ID: 0x1234, Epoch: 1, BaseSequence: 5}
	for kind, crc := range map[ControlType]uint32{Commit: 0x622774f8, Abort: 0x9619a2b0} {
		out := AppendEndTxnMarker([]byte("before"), p, EndTxnMarker{kind, 9}, exampleTime+20)
		b, rest, err := Next(out[len("before"):])
		if err != nil || len(rest) != 0 || string(out[:6]) != "before" {
			t.Fatalf("%v: %v, %d bytes left", kind, err, len(rest))
		}
		if b.BaseOffset() != 0 || b.PartitionLeaderEpoch() != NoPartitionLeaderEpoch {
			t.Errorf("%v: %+v", kind, headerOf(b))
		}
		b.SetLastOffset(103)
		b.SetPartitionLeaderEpoch(7)
		if b.CRC() != crc || b.Size() != markerBatchSize || b.Validate() != nil || b.CheckHeader() != nil {
			t.Errorf("%v: %+v, %v", kind, headerOf(b), b.Validate())
		}
		if kind == Commit && !bytes.Equal(b, readHex(t, "commit")) {
			t.Errorf("\n got % x\nwant % x", b, readHex(t, "commit"))
		}
		if m, err := b.EndTxnMarker(); err != nil || m != (EndTxnMarker{kind, 9}) {
			t.Errorf("%v: read back as %+v, %v", kind, m, err)
		}
	}
}

func TestAppendEndTxnMarker_Bounds(t *testing.T) {
	for _, p := range []Producer{{}, {ID: math.MaxInt64, Epoch: math.MaxInt16}} {
		for _, ts := range []int64{NoTimestamp, 0, math.MaxInt64} {
			for _, epoch := range []int32{math.MinInt32, -1, 0, math.MaxInt32} {
				b := Batch(AppendEndTxnMarker(nil, p, EndTxnMarker{Abort, epoch}, ts))
				m, err := b.EndTxnMarker()
				if err != nil || m.CoordinatorEpoch != epoch || b.MaxTimestamp() != ts || b.ProducerID() != p.ID || len(b) != 78 {
					t.Errorf("%+v at %d: %+v, %v", p, ts, m, err)
				}
			}
		}
	}
	for what, f := range map[string]func(){
		"type 2":         func() { AppendEndTxnMarker(nil, Producer{}, EndTxnMarker{Type: LeaderChange}, 0) },
		"no producer":    func() { AppendEndTxnMarker(nil, Producer{ID: -1}, EndTxnMarker{}, 0) },
		"negative epoch": func() { AppendEndTxnMarker(nil, Producer{Epoch: -1}, EndTxnMarker{}, 0) },
		"time -2":        func() { AppendEndTxnMarker(nil, Producer{}, EndTxnMarker{}, -2) },
	} {
		mustPanic(t, what, f)
	}
}

func TestEndTxnMarker_DoesNotAllocate(t *testing.T) {
	b := readHex(t, "commit")
	buf := make([]byte, 0, 100)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := b.EndTxnMarker(); err != nil {
			t.Fatal(err)
		}
		AppendEndTxnMarker(buf, Producer{}, EndTxnMarker{}, 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseControl(t *testing.T) {
	for _, tt := range []struct {
		key     string
		want    ControlType
		version int16
		ok      bool
	}{
		{"\x00\x00\x00\x00", Abort, 0, true},
		{"\x00\x00\x00\x01", Commit, 0, true},
		{"\x00\x00\x00\x06", KRaftVoters, 0, true},
		{"\x00\x00\x00\x07", 7, 0, true},
		{"\x00\x00\xff\xff", -1, 0, true},
		{"\x00\x05\x00\x01", Commit, 5, true},
		{"\x7f\xff\x00\x01and more", Commit, math.MaxInt16, true},
		{"\xff\xff\x00\x01", 0, -1, false},
		{"\x00\x00\x00", 0, 0, false},
		{"", 0, 0, false},
	} {
		got, version, err := ParseControl(Record{Key: []byte(tt.key)})
		if tt.ok && (err != nil || got != tt.want || version != tt.version) {
			t.Errorf("%q: %v version %d, %v", tt.key, got, version, err)
		}
		if !tt.ok && (!errors.Is(err, ErrInvalidRecord) || !errors.Is(err, ErrCorrupt)) {
			t.Errorf("%q: %v, want an invalid record", tt.key, err)
		}
	}
	if _, _, err := ParseControl(Record{}); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("null key: %v", err)
	}
}

func TestEndTxnMarker(t *testing.T) {
	control := func(key, value string) Batch {
		o := BuilderOptions{Rebuild: &Rebuild{Control: true}}
		return build(t, o, Record{Key: []byte(key), Value: []byte(value)})
	}
	for _, tt := range []struct {
		what string
		b    Batch
		want EndTxnMarker
		err  error
	}{
		{"newer version", control("\x00\x03\x00\x00", "\x00\x01\x00\x00\x00\x07more"), EndTxnMarker{Abort, 7}, nil},
		{"not a control batch", readHex(t, "plain"), EndTxnMarker{}, ErrNoMarker},
		{"legacy", readHex(t, "magic1"), EndTxnMarker{}, ErrNoMarker},
		{"emptied", AppendEmptied(nil, readHex(t, "commit")), EndTxnMarker{}, ErrNoMarker},
		{"of the metadata log", control("\x00\x00\x00\x02", ""), EndTxnMarker{}, ErrNoMarker},
		{"unknown type", control("\x00\x00\x00\x63", ""), EndTxnMarker{}, ErrNoMarker},
		{"short key", control("\x00", "\x00\x00\x00\x00\x00\x07"), EndTxnMarker{}, ErrInvalidRecord},
		{"short value", control("\x00\x00\x00\x01", "\x00\x00\x00\x00\x00"), EndTxnMarker{}, ErrInvalidRecord},
		{"no value", control("\x00\x00\x00\x01", ""), EndTxnMarker{}, ErrInvalidRecord},
		{"negative version", control("\x00\x00\x00\x01", "\xff\xff\x00\x00\x00\x07"), EndTxnMarker{}, ErrInvalidRecord},
	} {
		got, err := tt.b.EndTxnMarker()
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %v", tt.what, got, err)
		}
		if errors.Is(err, ErrNoMarker) && errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: having no marker is not corruption: %v", tt.what, err)
		}
	}
	broken := Batch(bytes.Clone(readHex(t, "commit")))
	broken[len(broken)-1] = 9
	if _, err := broken.EndTxnMarker(); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("unreadable record: %v", err)
	}
}

func TestControlType_String(t *testing.T) {
	names := []string{
		"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS", "UNKNOWN(7)",
	}
	for i, want := range names {
		if got := ControlType(i).String(); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}
