package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

func TestRecords_FromAnyOffset(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 500})
	var want []string
	for n := 1; len(want) < 60; n = n%5 + 1 {
		var recs []Record
		for range n {
			v := fmt.Sprint("v", len(want))
			want = append(want, fmt.Sprintf("%d:%s", len(want), v))
			recs = append(recs, Record{Value: []byte(v)})
		}
		if _, err := l.Append(recs...); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Stats().Segments; n < 3 {
		t.Fatalf("%d segments", n)
	}
	for from := range len(want) {
		wantContents(t, l, int64(from), want[from:]...)
	}
	wantContents(t, l, int64(len(want)))
	for _, from := range []int64{-1, int64(len(want)) + 1} {
		var e *OffsetError
		for _, err := range l.Records(from) {
			if !errors.As(err, &e) {
				t.Errorf("from %d: %v", from, err)
			}
		}
		if e == nil || e.Offset != from {
			t.Errorf("from %d: %v", from, e)
		}
	}
	// A loop may end early, and the sequence be walked again.
	seq := l.Records(10)
	for range 2 {
		for s := range seq {
			if s.Offset == 12 {
				break
			}
		}
	}
}

// The end is the one that the log had when Records was called, though the loop appends.
func TestRecords_EndSeenAtTheCall(t *testing.T) {
	for _, mode := range modes {
		l := openTest(t, t.TempDir(), Options{Sync: mode})
		if _, err := l.Append(values("a", "b")...); err != nil {
			t.Fatal(err)
		}
		seq := l.Records(0)
		if _, err := l.Append(values("c")...); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if _, err := l.Append(values("x")...); err != nil {
				t.Fatal(err)
			}
		}
		if n != 2 {
			t.Errorf("%d records", n)
		}
	}
}

// What was yielded stays as it was.
func TestRecords_BelongToTheCaller(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		l := openTest(t, t.TempDir(), Options{Compression: Compression{Codec: codec}, SegmentBytes: 200_000})
		r := rand.New(rand.NewPCG(1, uint64(codec)))
		var want []Record
		for range 200 {
			recs := make([]Record, 1+r.IntN(20))
			for i := range recs {
				b := make([]byte, r.IntN(300))
				for j := range b {
					b[j] = byte('a' + r.IntN(3))
				}
				recs[i] = Record{Key: b[:len(b)/2], Value: b[len(b)/2:], Headers: []record.Header{{Key: "h", Value: b}}}
			}
			if _, err := l.Append(recs...); err != nil {
				t.Fatal(err)
			}
			want = append(want, recs...)
		}
		var got []Stored
		for s, err := range l.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s)
		}
		if len(got) != len(want) {
			t.Fatalf("%v: %d records, want %d", codec, len(got), len(want))
		}
		for i, g := range got {
			// Appending to what was yielded must not reach into the next record.
			_, _, _ = append(g.Key, 'X'), append(g.Value, 'X'), append(g.Headers, record.Header{Key: "X"})
			_ = append(g.Headers[0].Value, 'X')
			w := want[i]
			if !same(g.Key, w.Key) || !same(g.Value, w.Value) || len(g.Headers) != 1 || !same(g.Headers[0].Value, w.Headers[0].Value) {
				t.Fatalf("%v: record %d changed", codec, i)
			}
		}
	}
}

// openTxnBatch builds a transactional batch.
func openTxnBatch(t testing.TB, id int64, seq int32, list ...string) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: seq}, Transactional: true})
	for _, v := range list {
		if err := b.Append(1_700_000_000_000, record.Record{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(p)
}

func mustAppend(t testing.TB, l *Log, batch []byte) {
	t.Helper()
	if _, err := l.AppendAsLeader(batch, LeaderAppend{TransactionVersion: NoTransactionVersion}); err != nil {
		t.Fatal(err)
	}
}

func endTxn(t testing.TB, l *Log, id int64, kind record.ControlType) {
	t.Helper()
	if _, err := l.AppendEndTxnMarker(record.Producer{ID: id}, record.EndTxnMarker{Type: kind}, MarkerAppend{}); err != nil {
		t.Fatal(err)
	}
}

func TestRecords_CommittedOnly(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	mustAppend(t, l, openTxnBatch(t, 1, 0, "a0", "a1")) // 0 1, aborted
	mustAppend(t, l, openTxnBatch(t, 2, 0, "b"))        // 2, committed
	if _, err := l.Append(values("plain")...); err != nil {
		t.Fatal(err) // 3
	}
	wantContents(t, l, 0)                         // both transactions are open
	endTxn(t, l, 2, record.Commit)                // 4
	mustAppend(t, l, openTxnBatch(t, 1, 2, "a2")) // 5, aborted
	endTxn(t, l, 1, record.Abort)                 // 6
	mustAppend(t, l, openTxnBatch(t, 1, 3, "a3")) // 7, committed
	endTxn(t, l, 1, record.Commit)                // 8
	mustAppend(t, l, producerBatch(t, 2, 0, 1, "idempotent"))
	mustAppend(t, l, openTxnBatch(t, 1, 4, "a4")) // 10, aborted
	endTxn(t, l, 1, record.Abort)                 // 11
	mustAppend(t, l, openTxnBatch(t, 1, 5, "a5")) // 12, open
	if _, err := l.Append(values("behind")...); err != nil {
		t.Fatal(err) // 13
	}
	want := []string{"2:b", "3:plain", "7:a3", "9:idempotent"}
	wantContents(t, l, 0, want...)
	wantContents(t, l, 1, want...)
	wantContents(t, l, 3, want[1:]...)
	wantContents(t, l, 5, want[2:]...)
	wantContents(t, l, 8, want[3:]...)
	wantContents(t, l, 10)
	wantContents(t, l, 14)
	endTxn(t, l, 1, record.Abort) // 14
	wantContents(t, l, 10, "13:behind")
}

// Against a model: random transactions over many segments and reads, from every offset.
func TestRecords_CommittedOnly_Random(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		r := rand.New(rand.NewPCG(seed, 3))
		l := openTest(t, t.TempDir(), Options{SegmentBytes: 3000, IndexIntervalBytes: 300})
		type entry struct {
			text  string
			txn   *bool // nil outside of transactions; true once committed
			isTxn bool
		}
		var model []entry
		seqs, open := map[int64]int32{}, map[int64]*bool{}
		add := func(text string, txn *bool) {
			model = append(model, entry{text, txn, txn != nil})
		}
		decided := map[*bool]bool{}
		for i := range 400 {
			id := int64(r.IntN(4))
			switch n := r.IntN(10); {
			case n < 2:
				text := fmt.Sprint("p", i)
				if _, err := l.Append(values(text)...); err != nil {
					t.Fatal(err)
				}
				add(text, nil)
			case n < 7 || open[id] == nil:
				if open[id] == nil {
					open[id] = new(bool)
				}
				var texts []string
				for k := range 1 + r.IntN(3) {
					texts = append(texts, fmt.Sprint("t", i, ".", k))
					add(texts[k], open[id])
				}
				mustAppend(t, l, openTxnBatch(t, id, seqs[id], texts...))
				seqs[id] += int32(len(texts))
			default:
				kind := record.Abort
				if r.IntN(2) == 0 {
					kind = record.Commit
				}
				endTxn(t, l, id, kind)
				*open[id] = kind == record.Commit
				decided[open[id]] = true
				delete(open, id)
				add("", nil)
			}
		}
		stable := len(model)
		for i, e := range slices.Backward(model) {
			if e.isTxn && !decided[e.txn] {
				stable = i
			}
		}
		for from := 0; from <= stable; from += 1 + r.IntN(7) {
			var want []string
			for i, e := range model[from:stable] {
				if e.text != "" && (!e.isTxn || *e.txn) {
					want = append(want, fmt.Sprintf("%d:%s", from+i, e.text))
				}
			}
			if got := contents(t, l, int64(from)); !slices.Equal(got, want) {
				t.Fatalf("seed %d: from %d: %v, want %v", seed, from, got, want)
			}
		}
	}
}

// appendMany fills a log with batches of one record, all of batchSize bytes.
func appendMany(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		if _, err := l.Append(values(fmt.Sprintf("record %03d", i))...); err != nil {
			t.Fatal(err)
		}
	}
}

func damage(t testing.TB, l *Log, base, position int64, change func(p []byte)) {
	t.Helper()
	name := filepath.Join(l.Dir(), segment.Name{Kind: segment.KindLog, Offset: base}.String())
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	change(p[position:])
	f, err := os.OpenFile(name, os.O_WRONLY, 0) // in place: the log has the file open
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
}

// readAround reads everything, and goes on behind damage as the documentation says.
func readAround(t testing.TB, l *Log, from int64) (list []int64, holes [][2]int64) {
	t.Helper()
	for {
		var bad *UnreadableError
		for s, err := range l.Records(from) {
			if errors.As(err, &bad) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, s.Offset)
		}
		if bad == nil {
			return list, holes
		}
		if !errors.Is(bad, ErrCorrupt) && !errors.Is(bad, ErrUnsupportedVersion) {
			t.Fatalf("%v is no damage", bad)
		}
		holes = append(holes, [2]int64{bad.First, bad.Last})
		if bad.Last < bad.First || bad.First < from || len(holes) > 50 {
			t.Fatalf("from %d: %v", from, bad)
		}
		from = bad.Last + 1
	}
}

func TestRecords_AroundDamage(t *testing.T) {
	flip := func(at int) func([]byte) { return func(p []byte) { p[at] ^= 0x40 } }
	for _, c := range []struct {
		name   string
		first  int64 // of the damaged batches
		count  int64
		change func([]byte)
	}{
		{"a value", 40, 1, flip(70)},
		{"the checksum", 40, 1, flip(18)},
		{"the attributes", 40, 1, flip(22)},
		{"the length, larger", 40, 1, flip(10)},
		{"the length, negative", 40, 1, func(p []byte) { p[8] = 0xff }},
		{"the length, too small", 40, 1, func(p []byte) { p[11] = 3 }},
		{"the length, beyond the file", 40, 1, func(p []byte) { p[8] = 0x7f }},
		{"the magic", 40, 1, flip(16)},
		{"the base offset, up", 40, 1, func(p []byte) { p[6]++ }},
		{"the base offset, up a little", 40, 1, func(p []byte) { p[7] += 5 }},
		{"the base offset, down", 40, 1, func(p []byte) { p[7]-- }},
		{"zeros over three batches", 40, 3, func(p []byte) { clear(p[:2*batchSize+10]) }},
		{"garbage over three batches", 40, 3, func(p []byte) {
			r := rand.New(rand.NewPCG(1, 1))
			for i := range 2*batchSize + 10 {
				p[i] = byte(r.Uint32())
			}
		}},
		{"the first batch of a segment", 0, 1, func(p []byte) { clear(p[:20]) }},
	} {
		for _, interval := range []int32{1, 4096} { // every batch in the index, or none
			t.Run(fmt.Sprint(c.name, "/", interval), func(t *testing.T) {
				dir := t.TempDir()
				l := openTest(t, dir, Options{IndexIntervalBytes: interval, SegmentBytes: 60 * batchSize})
				appendMany(t, l, 150)
				check := func(l *Log) {
					t.Helper()
					for _, from := range []int64{0, c.first, c.first + 1, c.first + c.count, c.first + c.count + 1, 70} {
						got, holes := readAround(t, l, from)
						var want []int64
						for o := from; o < 150; o++ {
							if o < c.first || o >= c.first+c.count {
								want = append(want, o)
							}
						}
						var wantHoles [][2]int64
						if from < c.first+c.count {
							wantHoles = [][2]int64{{max(from, c.first), c.first + c.count - 1}}
						}
						if !slices.Equal(got, want) || !slices.Equal(holes, wantHoles) {
							t.Errorf("from %d: holes %v, want %v; %d records, want %d", from, holes, wantHoles, len(got), len(want))
						}
					}
				}
				damage(t, l, 0, c.first*batchSize, c.change)
				check(l)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				check(openTest(t, dir, Options{ReadOnly: true}))
				check(openTest(t, dir, Options{}))
			})
		}
	}
}

// batchSize is the size of the batches that appendMany makes.
const batchSize = 61 + 17

func TestRecords_DamageAtTheEnds(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{SegmentBytes: 20 * batchSize})
	for range 50 {
		if _, err := l.Append(values("record 000")...); err != nil {
			t.Fatal(err)
		}
	}
	damage(t, l, 0, 19*batchSize, func(p []byte) { clear(p) })               // the last batch of a segment
	damage(t, l, 40, 8*batchSize, func(p []byte) { clear(p[:2*batchSize]) }) // the end of the log
	got, holes := readAround(t, l, 0)
	if !slices.Equal(holes, [][2]int64{{19, 19}, {48, 49}}) || len(got) != 47 {
		t.Errorf("holes %v, records %v", holes, got)
	}
	err := error(nil)
	for _, err = range l.Tail(t.Context(), 45) {
	}
	var bad *UnreadableError
	if !errors.As(err, &bad) || bad.First != 48 {
		t.Errorf("Tail: %v", err)
	}
}

// A record whose value holds batches, with offsets that would fit, must not be taken for the log.
func TestRecords_BatchesInsideAValue(t *testing.T) {
	for _, interval := range []int32{1, 400, 4096} {
		for _, gaps := range []bool{false, true} {
			l := openTest(t, t.TempDir(), Options{IndexIntervalBytes: interval})
			l.gaps = gaps
			value := make([]byte, 50)
			for offset := range int64(3) {
				inner := record.Batch(producerBatch(t, 1, 0, 0, "inner"))
				inner.SetBaseOffset(offset + 2)
				value = append(value, inner...)
			}
			if _, err := l.Append(Record{Value: value}); err != nil {
				t.Fatal(err)
			}
			appendMany(t, l, 30)
			damage(t, l, 0, 0, func(p []byte) { p[8] = 0xff }) // not even the length is left
			for from, wantHoles := range map[int64][][2]int64{0: {{0, 0}}, 1: nil, 4: nil} {
				got, holes := readAround(t, l, from)
				var want []int64
				for o := max(1, from); o <= 30; o++ {
					want = append(want, o)
				}
				if !slices.Equal(holes, wantHoles) || !slices.Equal(got, want) {
					t.Errorf("index every %d bytes, gaps %v, from %d: holes %v, want %v; records %v", interval, gaps, from, holes, wantHoles, got)
				}
			}
		}
	}
}

// Damage at two places costs what is there, not what lies between.
func TestRecords_TwoHoles(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{IndexIntervalBytes: 300})
	appendMany(t, l, 100)
	damage(t, l, 0, 20*batchSize, func(p []byte) { clear(p[:100]) })
	damage(t, l, 0, 60*batchSize, func(p []byte) { clear(p[:100]) })
	got, holes := readAround(t, l, 0)
	if !slices.Equal(holes, [][2]int64{{20, 21}, {60, 61}}) || len(got) != 96 {
		t.Errorf("holes %v, %d records", holes, len(got))
	}
}

// A batch with a wrong offset, in a stretch that is found only by searching behind other damage.
func TestRecords_WrongOffsetBehindDamage(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{IndexIntervalBytes: 300})
	appendMany(t, l, 70)
	damage(t, l, 0, 20*batchSize, func(p []byte) { p[8] = 0xff })
	damage(t, l, 0, 45*batchSize, func(p []byte) { p[7] += 9 })
	for from, want := range map[int64][][2]int64{0: {{20, 20}, {45, 45}}, 30: {{45, 45}}, 45: {{45, 45}}, 46: nil} {
		if got, holes := readAround(t, l, from); !slices.Equal(holes, want) || len(got) != int(70-from)-len(want) {
			t.Errorf("from %d: holes %v, want %v; %d records", from, holes, want, len(got))
		}
	}
}

// Behind a hole aborted transactions are left out as everywhere.
func TestRecords_AbortedBehindDamage(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	appendMany(t, l, 10)
	mustAppend(t, l, openTxnBatch(t, 1, 0, "aborted"))
	mustAppend(t, l, openTxnBatch(t, 2, 0, "committed"))
	endTxn(t, l, 1, record.Abort)
	endTxn(t, l, 2, record.Commit)
	mustAppend(t, l, openTxnBatch(t, 1, 1, "open"))
	appendMany(t, l, 5)
	damage(t, l, 0, 4*batchSize, func(p []byte) { p[8] = 0xff })
	got, holes := readAround(t, l, 0)
	if !slices.Equal(holes, [][2]int64{{4, 4}}) || !slices.Equal(got, []int64{0, 1, 2, 3, 5, 6, 7, 8, 9, 11}) {
		t.Errorf("holes %v, records %v", holes, got)
	}
}

// Control records without a producer are the log's own too.
func TestRecords_ControlWithoutProducer(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{})
	appendMany(t, l, 1)
	b := record.NewBuilder(record.BuilderOptions{BaseOffset: 1, Rebuild: &record.Rebuild{Control: true}})
	if err := b.Append(1, record.Record{Key: []byte{0, 0, 0, 2}, Value: []byte{0, 0}}); err != nil {
		t.Fatal(err)
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(batch, LeaderAppend{Origin: Raft}); err != nil {
		t.Fatal(err)
	}
	appendMany(t, l, 1)
	wantContents(t, l, 0, "0:record 000", "2:record 000")
}
