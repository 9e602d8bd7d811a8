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

// Logs of 20 batches of three records, eight batches a segment.
const (
	exactBatches = 20
	exactPer     = 3
	exactRolls   = 8
)

func exactBatch(t testing.TB, i int) record.Batch {
	v := func(k int) string { return fmt.Sprintf("value of %06d", exactPer*i+k) }
	return producerBatch(t, 7, 0, int32(exactPer*i), v(0), v(1), v(2))
}

func exactLog(t testing.TB, dir string, interval int32) (*Log, Options) {
	t.Helper()
	o := Options{IndexIntervalBytes: interval, SegmentBytes: int32(exactRolls * len(exactBatch(t, 0))), TimestampAfterMax: Never, Sync: SyncNone, manual: true}
	l := openTest(t, dir, o)
	for i := range exactBatches {
		mustAppend(t, l, exactBatch(t, i))
	}
	return l, o
}

// checkExact reads every offset on both floors: all that is not of a damaged batch is there and right, and what is not is
// reported with the offsets that are damaged.
func checkExact(t testing.TB, l *Log, damaged ...int) {
	t.Helper()
	bad := func(offset int64) bool { return slices.Contains(damaged, int(offset)/exactPer) }
	for o := range int64(exactBatches * exactPer) {
		err := readExact(t, l, o)
		if (err != nil) != bad(o) {
			t.Errorf("Read(%d): %v, damaged are batches %v", o, err, damaged)
		}
		if hole := (*UnreadableError)(nil); errors.As(err, &hole) && (hole.First != o || !bad(hole.Last) || bad(hole.Last+1)) {
			t.Errorf("Read(%d): %v, damaged are batches %v", o, err, damaged)
		}
	}
	for _, from := range []int64{0, 4, 23, 24, 25, 58} {
		list, holes := readAround(t, l, from)
		next := from
		for _, o := range list {
			for ; next < o && bad(next); next++ {
			}
			if o != next || bad(o) {
				t.Errorf("Records(%d): offset %d where %d comes next; holes %v, damaged are batches %v", from, o, next, holes, damaged)
			}
			next = o + 1
		}
		for ; next < exactBatches*exactPer && bad(next); next++ {
		}
		if next != exactBatches*exactPer || len(damaged) == 0 && len(holes) > 0 {
			t.Errorf("Records(%d) ends at %d; holes %v, damaged are batches %v", from, next, holes, damaged)
		}
	}
}

// readExact reads the batch that holds an offset and compares it with what was stored.
func readExact(t testing.TB, l *Log, o int64) error {
	t.Helper()
	f, err := l.Read(o, ReadOptions{MaxBytes: 1, MinOneMessage: true})
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := f.Records.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := record.Next(p)
	if err == nil {
		err = b.Validate()
	}
	if err != nil {
		return err // Read does not verify the bytes
	}
	want := exactBatch(t, int(o)/exactPer)
	want.SetBaseOffset(o - o%exactPer)
	want.SetPartitionLeaderEpoch(b.PartitionLeaderEpoch())
	if string(b) != string(want) {
		t.Errorf("Read(%d) returns the batch of %d to %d, which is not what was stored there", o, b.BaseOffset(), b.LastOffset())
	}
	return nil
}

// endExact closes the log, or leaves it as a writer that was killed.
func endExact(t *testing.T, l *Log, closed bool) {
	t.Helper()
	if closed {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	abandon(t, l)
}

// No checksum covers the base offset of a batch, and a count that was changed makes its header claim offsets of others: any
// bit of them that flips costs the batch and none of its neighbours.
func TestDamage_AnyBitOfTheOffsets(t *testing.T) {
	places := []int{0, 1, 2, 3, 4, 5, 6, 7, 23, 24, 25, 26}
	for i, batch := range []int{0, 3, 7, 8, 19, 0, 3, 7, 8, 19} { // first, inside, last of a segment, first of the next, last of all
		for _, interval := range []int32{1, 4096} { // every batch in the index, or none
			closed := i < 5
			t.Run(fmt.Sprint(interval, "/", batch, "/", closed), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "t-0")
				l, o := exactLog(t, dir, interval)
				endExact(t, l, closed)
				base := int64(batch/exactRolls) * exactRolls * exactPer
				position := int64(batch%exactRolls) * int64(len(exactBatch(t, 0)))
				ro := o
				ro.ReadOnly = true
				flip := func(bit int) {
					damage(t, l, base, position, func(p []byte) { p[places[bit/8]] ^= 1 << (bit % 8) })
				}
				for bit := range 8 * len(places) {
					flip(bit)
					r := openTest(t, dir, ro)
					checkExact(t, r, batch)
					if err := r.Close(); err != nil {
						t.Fatal(err)
					}
					if t.Failed() {
						t.Fatalf("bit %d of byte %d", bit%8, places[bit/8])
					}
					flip(bit)
				}
				checkExact(t, openTest(t, dir, o))
			})
		}
	}
}

// Two batches with wrong offsets, next to each other and with one between.
func TestDamage_TwoBatches(t *testing.T) {
	for _, interval := range []int32{1, 4096} {
		for _, second := range []int{3, 4, 5} {
			rng := rand.New(rand.NewPCG(uint64(second), 1))
			l, _ := exactLog(t, filepath.Join(t.TempDir(), "t-0"), interval)
			size := int64(len(exactBatch(t, 0)))
			for range 100 {
				at := [2]int{5 + rng.IntN(3), 5 + rng.IntN(3)}
				by := [2]byte{byte(1 + rng.IntN(30)), byte(1 + rng.IntN(30))}
				flip := func() {
					damage(t, l, 0, 2*size, func(p []byte) { p[at[0]] ^= by[0] })
					damage(t, l, 0, int64(second)*size, func(p []byte) { p[at[1]] ^= by[1] })
				}
				flip()
				checkExact(t, l, 2, second)
				if t.Failed() {
					t.Fatal(second, at, by)
				}
				flip()
			}
		}
	}
}

// Bytes behind the last batch of a segment that hold no offset cost none, whether they are zeros, garbage, or a batch that was
// begun. inspect tells of them; a reader is not stopped.
func TestDamage_BytesWithoutOffsets(t *testing.T) {
	for name, tail := range map[string][]byte{
		"zeros": make([]byte, 5000), "garbage": []byte("this is no batch, and longer than the header of one would have to be"),
		"few": {1, 2, 3}, "begun": exactBatch(t, 8)[:80], "a batch of before": exactBatch(t, 3),
	} {
		for _, interval := range []int32{1, 4096} {
			t.Run(fmt.Sprint(name, "/", interval), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "t-0")
				l, o := exactLog(t, dir, interval)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				for _, base := range []int64{0, exactRolls * exactPer} {
					f, err := os.OpenFile(filepath.Join(dir, segment.FileName(segment.KindLog, base)), os.O_WRONLY|os.O_APPEND, 0)
					if err != nil {
						t.Fatal(err)
					}
					_, err = f.Write(tail)
					if err := errors.Join(err, f.Close()); err != nil {
						t.Fatal(err)
					}
				}
				checkExact(t, openTest(t, dir, o))
				o.ReadOnly = true
				checkExact(t, openTest(t, dir, o))
			})
		}
	}
}
