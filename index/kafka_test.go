package index

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// What real brokers wrote reads as Kafka's own classes read it, and is written again byte for byte.
func TestKafka(t *testing.T) {
	files := 0
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		m := vfstest.NewMem()
		_, err := x.UnpackTo(m, "/")
		ok(t, err)
		for dir, dump := range x.Dumps {
			parent := path.Join("/", dir)
			if _, err := m.Stat(parent); errors.Is(err, fs.ErrNotExist) {
				parent = path.Join("/logdir", dir)
			}
			for _, s := range dump.Segments {
				stem := path.Join(parent, fmt.Sprintf("%020d", s.BaseOffset))
				sound := len(x.DamageDone) == 0 && dump.Damage == nil
				if s.Index != nil {
					kafkaOffsets(t, m, stem+".index", s, sound)
					files++
				}
				if s.TimeIndex != nil {
					kafkaTimes(t, m, stem+".timeindex", s, sound)
					files++
				}
				if s.TxnIndex != nil {
					kafkaTxns(t, m, stem+".txnindex", s, sound)
					files++
				}
			}
		}
	})
	if files == 0 {
		t.Error("no fixture has an index")
	}
	t.Logf("%d files", files)
}

// sizes compares how many entries there are with the dump.
func sizes(t *testing.T, fsys vfs.FS, name string, x, kafka *mapped, want *kafkatest.Index) {
	t.Helper()
	if kafka.Entries() != want.Slots || int(x.length)%x.size != want.TrailingBytes {
		t.Errorf("%s: %d slots, %d bytes behind them, want %+v", name, kafka.Entries(), int(x.length)%x.size, *want)
	}
	one := want.Slots == 1 && want.ZeroSlotsAtEnd == 1
	if !one && (x.Entries() != len(want.Entries) || x.ZeroTail() != want.ZeroSlotsAtEnd) {
		t.Errorf("%s: %d entries, tail %d, want %d and %d", name, x.Entries(), x.ZeroTail(), len(want.Entries), want.ZeroSlotsAtEnd)
	}
	if got := get(t, fsys, name); int64(len(got)) != x.length {
		t.Errorf("%s: %d bytes, want %d", name, x.length, len(got))
	}
}

// again compares what was written with the start of the original.
func again(t *testing.T, fsys vfs.FS, name string, used int64) {
	t.Helper()
	if got, want := get(t, fsys, name+".again"), get(t, fsys, name)[:used]; !bytes.Equal(got, want) {
		t.Errorf("%s: written again as % x, was % x", name, got, want)
	}
}

func kafkaOffsets(t *testing.T, fsys vfs.FS, name string, s kafkatest.Segment, sound bool) {
	x := openOffset(t, fsys, name, s.BaseOffset, Config{ReadOnly: true})
	kafka := openOffset(t, fsys, name, s.BaseOffset, Config{ReadOnly: true, KafkaOpen: true})
	sizes(t, fsys, name, &x.mapped, &kafka.mapped, s.Index)
	for i, want := range s.Index.Entries {
		got, err := x.Entry(i)
		ok(t, err)
		if got != (OffsetPosition{want[0], int32(want[1])}) {
			t.Errorf("%s: entry %d is %v, want %v", name, i, got, want)
		}
		if found, err := x.Lookup(want[0]); sound && (err != nil || found != got) {
			t.Errorf("%s: Lookup(%d) = %v, %v", name, want[0], found, err)
		}
	}
	if !sound {
		return
	}
	ok(t, x.CheckEntries(s.ValidBytes))
	ok(t, kafka.SanityCheck())
	w := openOffset(t, fsys, name+".again", s.BaseOffset, Config{})
	for e := range x.All() {
		ok(t, w.Append(e.Offset, e.Position))
	}
	ok(t, w.Trim())
	again(t, fsys, name, x.UsedBytes())
}

func kafkaTimes(t *testing.T, fsys vfs.FS, name string, s kafkatest.Segment, sound bool) {
	x := openTime(t, fsys, name, s.BaseOffset, Config{ReadOnly: true})
	kafka := openTime(t, fsys, name, s.BaseOffset, Config{ReadOnly: true, KafkaOpen: true})
	sizes(t, fsys, name, &x.mapped, &kafka.mapped, s.TimeIndex)
	for i, want := range s.TimeIndex.Entries {
		got, err := x.Entry(i)
		ok(t, err)
		if got != (TimestampOffset{want[0], want[1]}) {
			t.Errorf("%s: entry %d is %v, want %v", name, i, got, want)
		}
		if found, err := x.Lookup(want[0]); sound && (err != nil || found != got) {
			t.Errorf("%s: Lookup(%d) = %v, %v", name, want[0], found, err)
		}
	}
	if !sound {
		return
	}
	ok(t, x.CheckEntries(math.MaxInt64))
	if s.TimeIndex.ZeroSlotsAtEnd == 0 {
		ok(t, kafka.SanityCheck())
	}
	w := openTime(t, fsys, name+".again", s.BaseOffset, Config{})
	for e := range x.All() {
		ok(t, w.MaybeAppend(e.Timestamp, e.Offset, true))
	}
	ok(t, w.Trim())
	again(t, fsys, name, x.UsedBytes())
}

func kafkaTxns(t *testing.T, fsys vfs.FS, name string, s kafkatest.Segment, sound bool) {
	x := openTxn(t, fsys, name, s.BaseOffset, Config{ReadOnly: true, KafkaOpen: true})
	w := openTxn(t, fsys, name+".again", s.BaseOffset, Config{KafkaOpen: true})
	i := 0
	for got, err := range x.All() {
		want := s.TxnIndex.Entries[i]
		if want.Version != 0 {
			wantIs(t, err, ErrUnsupportedVersion)
			return
		}
		ok(t, err)
		if got != (AbortedTxn{want.ProducerID, want.FirstOffset, want.LastOffset, want.LastStableOffset}) {
			t.Errorf("%s: entry %d is %v, want %+v", name, i, got, want)
		}
		ok(t, w.Append(got))
		i++
	}
	if i != len(s.TxnIndex.Entries) || x.PartialBytes() != s.TxnIndex.TrailingBytes {
		t.Errorf("%s: %d entries, want %d", name, i, len(s.TxnIndex.Entries))
	}
	if i > 0 {
		again(t, fsys, name, int64(34*i))
	}
	err := openTxn(t, fsys, name, s.BaseOffset, Config{ReadOnly: true}).SanityCheck()
	if sound {
		ok(t, err)
	} else if err != nil {
		wantIs(t, err, ErrCorrupt)
	}
}
