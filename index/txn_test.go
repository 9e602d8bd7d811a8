package index

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
)

// The entry of the worked example: producer 0x1234, offsets 100 to 103, last stable offset 104.
const goldenTxn = "00 00 | 00 00 00 00 00 00 12 34 | 00 00 00 00 00 00 00 64 | 00 00 00 00 00 00 00 67 | 00 00 00 00 00 00 00 68"

func TestTxn_Golden(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTxn(t, fsys, path, 100, Config{})
		if x.Exists() || get(t, fsys, path) != nil {
			t.Error("the file exists before the first append")
		}
		ok(t, x.Flush())
		ok(t, x.Reset())
		ok(t, x.TruncateTo(0))
		want := AbortedTxn{0x1234, 100, 103, 104}
		ok(t, x.Append(want))
		ok(t, x.Flush())
		if !x.Exists() || !x.Created() {
			t.Error("the file does not exist after an append")
		}
		if got := get(t, fsys, path); !bytes.Equal(got, unhex(t, goldenTxn)) {
			t.Fatalf("file is % x", got)
		}
		for _, y := range []*Txn{x, openTxn(t, fsys, path, 100, Config{ReadOnly: true})} {
			if got := allTxns(t, y); !reflect.DeepEqual(got, []AbortedTxn{want}) {
				t.Errorf("entries %v", got)
			}
			ok(t, y.SanityCheck())
		}
	})
}

func allTxns(t *testing.T, x *Txn) (all []AbortedTxn) {
	t.Helper()
	for e, err := range x.All() {
		ok(t, err)
		all = append(all, e)
	}
	return all
}

// The entries and searches of the worked example for fetches of committed data.
func TestTxn_Collect(t *testing.T) {
	txns := []AbortedTxn{{0, 0, 10, 11}, {1, 5, 15, 13}, {2, 18, 35, 25}, {3, 32, 50, 40}}
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		for _, c := range []Config{{}, {KafkaOpen: true}} {
			x := openTxn(t, fsys, path, 0, c)
			ok(t, x.Reset())
			for _, e := range txns {
				ok(t, x.Append(e))
			}
			for _, s := range []struct {
				fetch, upper int64
				want         []AbortedTxn
				complete     bool
			}{
				{0, 100, txns, false},
				{0, 32, txns[:3], true},
				{0, 35, txns, true},
				{10, 35, txns, true},
				{11, 35, txns[1:], true},
				{20, 41, txns[2:], false},
				{51, 100, nil, false},
				{0, 0, nil, true},
			} {
				got, complete, err := x.Collect(s.fetch, s.upper)
				if err != nil || complete != s.complete || !reflect.DeepEqual(got, s.want) {
					t.Errorf("Collect(%d, %d) = %v, %v, %v, want %v, %v", s.fetch, s.upper, got, complete, err, s.want, s.complete)
				}
			}
		}
	})
}

func TestTxn_Truncate(t *testing.T) {
	txns := []AbortedTxn{{0, 0, 10, 2}, {1, 5, 15, 16}, {2, 18, 35, 25}, {3, 32, 50, 40}}
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTxn(t, fsys, path, 0, Config{})
		for _, e := range txns {
			ok(t, x.Append(e))
		}
		ok(t, x.TruncateTo(51))
		if got := allTxns(t, x); !reflect.DeepEqual(got, txns) {
			t.Errorf("to 51: %v", got)
		}
		ok(t, x.TruncateTo(50))
		if got := allTxns(t, x); !reflect.DeepEqual(got, txns[:3]) || len(get(t, fsys, path)) != 3*34 {
			t.Errorf("to 50: %v", got)
		}
		wantIs(t, x.Append(AbortedTxn{5, 1, 35, 36}), ErrInvalidOffset)
		ok(t, x.Append(AbortedTxn{5, 1, 36, 37}))
		ok(t, x.TruncateTo(11))
		if got := allTxns(t, x); !reflect.DeepEqual(got, txns[:1]) {
			t.Errorf("to 11: %v", got)
		}
		ok(t, x.Reset())
		if got := allTxns(t, x); got != nil || len(get(t, fsys, path)) != 0 {
			t.Errorf("after a reset: %v", got)
		}
		ok(t, x.Append(txns[0])) // below what was there
	})
}

func TestTxn_AppendRefused(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTxn(t, fsys, path, 10, Config{})
		for _, e := range []AbortedTxn{
			{-1, 10, 12, 13}, {1, -1, 12, 13}, {1, 12, 12, 13}, {1, 13, 12, 13}, {1, 5, 9, 10}, {1, 10, 12, -1}, {1, 10, 12, 14},
		} {
			wantIs(t, x.Append(e), ErrInvalidTxn)
		}
		if x.Exists() {
			t.Error("a refused append created the file")
		}
		last := AbortedTxn{math.MaxInt64, 5, math.MaxInt64, math.MaxInt64}
		ok(t, x.Append(AbortedTxn{1, 5, 12, 13}))
		wantIs(t, x.Append(AbortedTxn{1, 5, 12, 13}), ErrInvalidOffset)
		wantIs(t, x.Append(AbortedTxn{1, 5, 11, 12}), ErrInvalidOffset)
		ok(t, x.Append(last))
		ok(t, x.Close())
		wantIs(t, x.Append(last), ErrClosed)

		// The guard outlives the process; Kafka's does not.
		wantIs(t, openTxn(t, fsys, path, 10, Config{}).Append(last), ErrInvalidOffset)
		ok(t, openTxn(t, fsys, path, 10, Config{KafkaOpen: true}).Append(AbortedTxn{1, 5, 12, 13}))
		ro := openTxn(t, fsys, path, 10, Config{ReadOnly: true})
		for _, err := range []error{ro.Append(last), ro.Reset(), ro.TruncateTo(0)} {
			wantIs(t, err, ErrReadOnly)
		}
	})
}

// A partial entry at the end: ignored, and overwritten here, while Kafka appends behind it.
func TestTxn_PartialEntry(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		golden := unhex(t, goldenTxn)
		next := AbortedTxn{7, 104, 105, 106}
		for n := range 34 {
			content := append(bytes.Clone(golden), bytes.Repeat([]byte{0xee}, n)...)
			put(t, fsys, path, content)
			x := openTxn(t, fsys, path, 100, Config{})
			if x.Entries() != 1 || x.PartialBytes() != n {
				t.Fatalf("%d entries, %d bytes", x.Entries(), x.PartialBytes())
			}
			ok(t, x.Append(next))
			if got := allTxns(t, x); len(got) != 2 || got[1] != next || x.PartialBytes() != 0 {
				t.Fatalf("after %d bytes: %v", n, got)
			}
			if got, want := get(t, fsys, path), appendTxn(bytes.Clone(golden), next); !bytes.Equal(got, want) {
				t.Fatalf("after %d bytes the file is % x", n, got)
			}
			ok(t, x.Close())

			put(t, fsys, path, content)
			k := openTxn(t, fsys, path, 100, Config{KafkaOpen: true})
			ok(t, k.Append(next))
			if got, want := get(t, fsys, path), appendTxn(bytes.Clone(content), next); !bytes.Equal(got, want) {
				t.Fatalf("after %d bytes Kafka's file is % x", n, got)
			}
			ok(t, k.Close())
		}
	})
}

func TestTxn_Damage(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		want  error
		entry int
		kafka error // what Kafka's own check says
	}{
		"version 1":               {"0001 0000000000000001 0000000000000064 0000000000000067 0000000000000068", ErrUnsupportedVersion, 0, ErrUnsupportedVersion},
		"version in the high one": {"0100 0000000000000001 0000000000000064 0000000000000067 0000000000000068", ErrUnsupportedVersion, 0, ErrUnsupportedVersion},
		"marker below the base":   {"0000 0000000000000001 0000000000000002 0000000000000063 0000000000000064", ErrCorrupt, 0, ErrCorrupt},
		"begins at its marker":    {"0000 0000000000000001 0000000000000067 0000000000000067 0000000000000068", ErrCorrupt, 0, nil},
		"zeros behind":            {goldenTxn + "0000 0000000000000000 0000000000000000 0000000000000000 0000000000000000", ErrCorrupt, 1, ErrCorrupt},
		"twice":                   {goldenTxn + goldenTxn, ErrCorrupt, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
				put(t, fsys, path, unhex(t, c.bytes))
				x := openTxn(t, fsys, path, 100, Config{})
				_, _, collect := x.Collect(100, 1000)
				errs := []error{x.SanityCheck(), collect, x.TruncateTo(1000)}
				if name != "twice" { // the last entry, which is all an append reads, is sound
					errs = append(errs, x.Append(AbortedTxn{1, 200, 201, 202}))
				}
				for _, err := range errs {
					wantIs(t, err, c.want)
					var corrupt *CorruptError
					var version *VersionError
					if errors.As(err, &corrupt) && corrupt.Entry != c.entry || errors.As(err, &version) && version.Entry != c.entry {
						t.Errorf("%v, want entry %d", err, c.entry)
					}
				}
				k := openTxn(t, fsys, path, 100, Config{ReadOnly: true, KafkaOpen: true})
				wantIs(t, k.SanityCheck(), c.kafka)
				ok(t, x.Reset())
				ok(t, x.SanityCheck())
			})
		})
	}
}

func TestTxn_CutAtEveryLength(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		p := appendTxn(unhex(t, goldenTxn), AbortedTxn{7, 104, 105, 106})
		for n := range len(p) + 1 {
			put(t, fsys, path, p[:n])
			x := openTxn(t, fsys, path, 100, Config{ReadOnly: true})
			if got := allTxns(t, x); len(got) != n/34 {
				t.Fatalf("%d bytes: %v", n, got)
			}
			if got, complete, err := x.Collect(0, 105); err != nil || len(got) != n/34 || complete != (n == len(p)) {
				t.Fatalf("%d bytes: %v, %v, %v", n, got, complete, err)
			}
			ok(t, x.SanityCheck())
		}
	})
}

func TestTxn_FlipEveryBit(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		p := appendTxn(unhex(t, goldenTxn), AbortedTxn{7, 104, 105, 106})
		for bit := range 8 * len(p) {
			q := bytes.Clone(p)
			q[bit/8] ^= 1 << (bit % 8)
			put(t, fsys, path, q)
			x := openTxn(t, fsys, path, 100, Config{ReadOnly: true})
			again := []byte{}
			var err error
			for e, e2 := range x.All() {
				if err = e2; err == nil {
					again = appendTxn(again, e)
				}
			}
			if err == nil && !bytes.Equal(again, q) {
				t.Fatalf("bit %d: reads as % x, is % x", bit, again, q)
			}
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupportedVersion) {
				t.Fatalf("bit %d: %v", bit, err)
			}
			if bit < 16 || bit >= 34*8 && bit < 34*8+16 {
				wantIs(t, err, ErrUnsupportedVersion)
			}
		}
	})
}

// Many entries are read in pieces, and the search begins near the fetch offset.
func TestTxn_Many(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		h := &hooked{FS: fsys}
		x := openTxn(t, h, path, 0, Config{})
		const n = 1000
		for i := int64(0); i < n; i++ {
			ok(t, x.Append(AbortedTxn{i, 10 * i, 10*i + 5, 10*i + 6}))
		}
		if got := allTxns(t, x); len(got) != n {
			t.Fatalf("%d entries", len(got))
		}
		reads := 0
		h.fail(func(op string, _ int64) error { reads += btoi(op == "read"); return nil })
		for fetch := int64(0); fetch < 10*n; fetch += 7 {
			reads = 0
			got, complete, err := x.Collect(fetch, fetch+100)
			first := (fetch + 4) / 10
			want := int(min(n, (fetch+100+9)/10) - first)
			if err != nil || len(got) != max(want, 0) || want > 0 && got[0].ProducerID != first || complete != (10*(n-1)+6 >= fetch+100) {
				t.Fatalf("Collect(%d) = %v, %v, %v, want %d", fetch, got, complete, err, want)
			}
			if reads > 12 {
				t.Fatalf("%d reads", reads)
			}
		}
		ok(t, x.TruncateTo(5000))
		if x.Entries() != 500 {
			t.Errorf("%d entries", x.Entries())
		}
		ok(t, x.Close())
		_, _, collect := x.Collect(0, 1)
		for _, err := range []error{collect, x.Flush(), x.TruncateTo(0), x.Reset(), x.SanityCheck()} {
			wantIs(t, err, ErrClosed)
		}
	})
}

// A loop over the entries that cuts and appends sees what is there, and calls none of it corrupt.
func TestTxn_CutInsideALoop(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		x := openTxn(t, fsys, path, 0, Config{})
		for i := int64(1); i <= 2*txnChunk; i++ {
			ok(t, x.Append(AbortedTxn{1, 0, 10 * i, 10*i + 1}))
		}
		n := 0
		for _, err := range x.All() {
			ok(t, err)
			if n++; n == txnChunk {
				ok(t, x.TruncateTo(301))
				for i := int64(301); i < 400; i++ {
					ok(t, x.Append(AbortedTxn{1, 0, i, i + 1}))
				}
			}
		}
		if n != 30+99 {
			t.Errorf("%d entries", n)
		}
	})
}
