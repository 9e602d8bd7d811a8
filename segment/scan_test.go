package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// Stored batches as the format defines them: an idempotent batch with three records, the commit marker that follows it,
// the same batch emptied by compaction, a batch compressed with snappy, and the legacy messages of magic 0 and 1.
const (
	goldenIdempotent = `00000000000000640000005000000007 0275386f28000000000002 0000018bcfe5680a 0000018bcfe5680f
		0000000000001234 0001 7ffffffe 00000003 0e00000001026100 0c000a02000100 1e00050404 6b3200 040268027802 6e01`
	goldenCommit = `00000000000000670000004200000007 02622774f8003000000000 0000018bcfe56814 0000018bcfe56814
		0000000000001234 0001 ffffffff 00000001 200000000800000001 0c00000000000900`
	goldenEmptied = `00000000000000640000003100000007 0269138f87000000000002 ffffffffffffffff 0000018bcfe5680f
		0000000000001234 0001 7ffffffe 00000000`
	goldenSnappy = `000000000000000000000050ffffffff 0208ee4869000200000000 0000018bcfe56800 0000018bcfe56800
		ffffffffffffffff ffff ffffffff 00000001 82534e4150505900 00000001 00000001 0000000b 092010000000026b027600`
	goldenMagic0 = `0000000000000000 00000010 1fecd70a 00 00 00000001 6b 00000001 76`
	goldenMagic1 = `0000000000000000 00000018 39268c33 01 00 0000018bcfe56800 00000001 6b 00000001 76`
)

func golden(t testing.TB, text string) record.Batch {
	t.Helper()
	p, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	ok(t, err)
	batch, rest, err := record.Next(p)
	ok(t, err)
	if len(rest) > 0 {
		t.Fatalf("%d bytes left over", len(rest))
	}
	ok(t, batch.Validate())
	return batch
}

// goldenLog is a log file of every kind of batch; offsets ascend.
func goldenLog(t testing.TB) []record.Batch {
	snappy := bytes.Clone(golden(t, goldenSnappy))
	record.Batch(snappy).SetBaseOffset(110)
	old := bytes.Clone(golden(t, goldenMagic0))
	binary.BigEndian.PutUint64(old, 97)
	old1 := bytes.Clone(golden(t, goldenMagic1))
	binary.BigEndian.PutUint64(old1, 99)
	return []record.Batch{old, old1, golden(t, goldenIdempotent), golden(t, goldenCommit), snappy, some(t, 111, 3)}
}

func TestScan_Golden(t *testing.T) {
	storages(t, func(t *testing.T, st storage) {
		batches := goldenLog(t)
		s := st.log(t, 97, Config{}, join(batches...))
		c := s.ScanWith(0, ToEnd, ScanOptions{Ordered: true})
		h := s.ScanHeaders(0, ToEnd)
		pos := int64(0)
		for i, want := range batches {
			if !c.Next() || !h.Next() {
				t.Fatalf("ends before batch %d: %+v", i, c.Tail())
			}
			if got := c.Batch(); got.Position != pos || !bytes.Equal(got.Bytes(), want) {
				t.Fatalf("batch %d at %d:\n%s", i, got.Position, hex.Dump(got.Bytes()))
			}
			base := want.BaseOffset()
			if diff := cmp.Diff(Header{
				Position: pos, Size: int64(want.Size()), BaseOffset: base, LastOffset: want.LastOffset(),
				BaseTimestamp: want.BaseTimestamp(), MaxTimestamp: want.MaxTimestamp(), ProducerID: want.ProducerID(),
				PartitionLeaderEpoch: want.PartitionLeaderEpoch(), CRC: want.CRC(), BaseSequence: want.BaseSequence(),
				Count: want.Count(), ProducerEpoch: want.ProducerEpoch(), Attributes: want.Attributes(), Magic: want.Magic(),
			}, h.Header()); diff != "" {
				t.Fatalf("header %d: %s", i, diff)
			}
			hd := h.Header()
			if hd.Identity(97) != want.Identity(97, pos) || hd.NextOffset() != want.NextOffset() {
				t.Fatalf("identity %+v", hd.Identity(97))
			}
			pos += int64(want.Size())
		}
		want := Tail{Kind: CleanEnd, Position: pos, LastOffset: 113}
		for _, tail := range []func() (bool, Tail){
			func() (bool, Tail) { return c.Next(), c.Tail() }, func() (bool, Tail) { return h.Next(), h.Tail() },
		} {
			if next, got := tail(); next || got != want {
				t.Errorf("tail %+v", got)
			}
		}
		if next, err := s.NextOffset(); err != nil || next != 114 {
			t.Errorf("next offset %d, %v", next, err)
		}
	})
}

// Every cut of a log file is a clean end, a torn batch or, where only zeros of a header are left, zeros; the position is the
// end of the last whole batch.
func TestScan_CutAtEveryByte(t *testing.T) {
	st := memory(t)
	batches := goldenLog(t)
	whole := join(batches...)
	for n := range len(whole) + 1 {
		want := Tail{Kind: CleanEnd, LastOffset: -1}
		var offsets []int64
		for _, b := range batches {
			if want.Position+int64(len(b)) > int64(n) {
				break
			}
			want.Position += int64(len(b))
			want.LastOffset = b.LastOffset()
			offsets = append(offsets, b.BaseOffset())
		}
		if rest := whole[want.Position:n]; len(rest) > 0 {
			want.Kind = Torn
			if firstNonZero(rest) == len(rest) {
				want.Kind = ZeroTail
			}
			if want.Kind == Torn && len(rest) >= record.HeaderUpToMagic {
				want.Claimed = int64(binary.BigEndian.Uint32(rest[8:])) + 12
			}
		}
		s := st.log(t, 97, Config{}, whole[:n])
		got, tail := scan(t, s.ScanWith(0, ToEnd, ScanOptions{Ordered: true}))
		if diff := cmp.Diff(offsets, got); diff != "" {
			t.Fatalf("cut at %d: %s", n, diff)
		}
		if diff := cmp.Diff(want, tail, cmpopts.IgnoreFields(Tail{}, "Reason")); diff != "" {
			t.Fatalf("cut at %d: %s", n, diff)
		}
		var corrupt *CorruptError
		if torn := tail.Kind == Torn; torn != errors.As(tail.Reason, &corrupt) || torn != errors.Is(tail.Reason, record.ErrTruncated) {
			t.Fatalf("cut at %d: reason %v", n, tail.Reason)
		}
		if errors.Is(tail.Reason, record.ErrCorrupt) {
			t.Fatalf("cut at %d: a torn batch is called corrupt: %v", n, tail.Reason)
		}
		h := s.ScanHeaders(0, ToEnd)
		for h.Next() {
		}
		if h.Tail().Kind != want.Kind || h.Tail().Position != want.Position {
			t.Fatalf("cut at %d: headers end with %+v", n, h.Tail())
		}
		ok(t, s.Close())
	}
}

// Each single flipped bit is detected or lies in the fields that the checksum does not cover; of those the order check
// finds all but the ones named here.
func TestScan_FlipEveryBit(t *testing.T) {
	st := memory(t)
	batches := []record.Batch{some(t, 100, 2), golden(t, goldenMagic1), some(t, 110, 3), some(t, 200, 1)}
	binary.BigEndian.PutUint64(batches[1], 105)
	whole := join(batches...)
	undetected := map[string]int{}
	for bit := range len(whole) * 8 {
		p := bytes.Clone(whole)
		p[bit/8] ^= 1 << (bit % 8)
		s := st.log(t, 100, Config{}, p)
		bad, start := 0, 0
		for start+len(batches[bad]) <= bit/8 {
			start += len(batches[bad])
			bad++
		}
		got, tail := scan(t, s.ScanWith(0, ToEnd, ScanOptions{Ordered: true}))
		at := bit/8 - start
		if tail.Kind == CleanEnd {
			field := "covered"
			switch {
			case at < 8:
				field = "offset"
			case at < 12:
				field = "length"
			case at < 16 && batches[bad].Magic() == 2:
				field = "leader epoch"
			case at == 16:
				field = "magic"
			}
			undetected[field]++
		} else if len(got) < bad || len(got) > bad+1 || tail.Position < int64(start) {
			t.Fatalf("bit %d of batch %d: %d batches, %+v", bit, bad, len(got), tail)
		} else if at >= 21 && (tail.Position != int64(start) || tail.Kind != Damage || !errors.Is(tail.Reason, record.ErrChecksum)) {
			t.Fatalf("bit %d of batch %d is covered: %+v", bit, bad, tail)
		}
		ok(t, s.Close())
	}
	// Not found are the leader epochs, which only those of the neighbours could contradict, and the bits that move a batch
	// within the gap around it: 2, 3 and 4 of the first three offsets, and 62 of the last, which has no upper neighbour.
	if diff := cmp.Diff(map[string]int{"leader epoch": 3 * 32, "offset": 2 + 3 + 4 + 62}, undetected); diff != "" {
		t.Error(diff)
	}
}

func TestScan_BadLengths(t *testing.T) {
	for _, length := range []uint32{5, 0, 0xffffffff, 0x7fffffff, 0x80000000, 13, 48} {
		t.Run(fmt.Sprintf("%#x", length), func(t *testing.T) {
			storages(t, func(t *testing.T, st storage) {
				first, second := some(t, 0, 5), some(t, 5, 5)
				binary.BigEndian.PutUint32(second[8:], length)
				s := st.log(t, 0, Config{}, join(first, second))
				bases, tail := scan(t, s.Scan(0))
				want := Damage
				if length == 0x7fffffff {
					want = Torn
				}
				if len(bases) != 1 || tail.Kind != want || tail.Position != int64(len(first)) || tail.LastOffset != 4 {
					t.Fatalf("%d batches, %+v", len(bases), tail)
				}
				var corrupt *CorruptError
				if !errors.As(tail.Reason, &corrupt) || corrupt.Path != s.Path() || corrupt.Position != tail.Position || corrupt.LastOffset != 4 {
					t.Fatalf("reason %v", tail.Reason)
				}
				var field *record.CorruptError
				if want == Damage && (!errors.As(tail.Reason, &field) || field.Field != "length" || field.Got != int64(int32(length))) {
					t.Fatalf("reason %v", tail.Reason)
				}
				if next, err := s.NextOffset(); next != 5 || (err == nil) != (want == Torn) {
					t.Fatalf("next offset %d, %v", next, err)
				}
			})
		})
	}
}

func TestScan_UnknownMagicIsNotCorrupt(t *testing.T) {
	st := memory(t)
	batch := some(t, 0, 1)
	batch[16] = 3
	_, tail := scan(t, st.log(t, 0, Config{}, batch).Scan(0))
	if tail.Kind != Damage || !errors.Is(tail.Reason, record.ErrUnsupportedVersion) || errors.Is(tail.Reason, record.ErrCorrupt) {
		t.Fatalf("%+v", tail)
	}
}

// A batch whose checksum is 0 is a batch, not reserved space.
func TestScan_ChecksumZero(t *testing.T) {
	first := some(t, 0, 1)
	value := first[len(first)-9 : len(first)-1]
	// The checksum is affine in the bits of the value: solve for a value that makes it 0.
	solveCRC(t, first, value)
	binary.BigEndian.PutUint32(first[17:], 0)
	ok(t, first.Validate())
	st := memory(t)
	s := st.log(t, 0, Config{}, join(first, some(t, 1, 1)))
	bases, tail := scan(t, s.Scan(0))
	if diff := cmp.Diff([]int64{0, 1}, bases); diff != "" || tail.Kind != CleanEnd {
		t.Fatalf("%s %+v", diff, tail)
	}
	if _, h, found, err := s.Locate(1, ToEnd); err != nil || !found || h.BaseOffset != 1 {
		t.Fatalf("%+v %v %v", h, found, err)
	}
}

// solveCRC changes the bytes of value, a part of the batch, so that the checksum of the batch becomes 0.
func solveCRC(t *testing.T, batch record.Batch, value []byte) {
	sum := func() uint32 { return record.Checksum(batch[21:]) }
	start := sum()
	type vector struct {
		crc  uint32
		bits uint64
	}
	var basis [32]vector
	for i := range len(value) * 8 {
		value[i/8] ^= 1 << (i % 8)
		v := vector{sum() ^ start, 1 << i}
		value[i/8] ^= 1 << (i % 8)
		for j := 31; j >= 0; j-- {
			if v.crc>>j&1 == 0 {
				continue
			}
			if basis[j].crc == 0 {
				basis[j] = v
				break
			}
			v.crc ^= basis[j].crc
			v.bits ^= basis[j].bits
		}
	}
	want, flips := start, uint64(0)
	for j := 31; j >= 0; j-- {
		if want>>j&1 == 1 {
			if basis[j].crc == 0 {
				t.Fatal("no solution")
			}
			want ^= basis[j].crc
			flips ^= basis[j].bits
		}
	}
	for i := range len(value) * 8 {
		value[i/8] ^= byte(flips>>i&1) << (i % 8)
	}
	if sum() != 0 {
		t.Fatalf("checksum %#x", sum())
	}
}

func TestScan_ZeroTail(t *testing.T) {
	st := memory(t)
	whole := join(some(t, 0, 5), some(t, 5, 5))
	for _, n := range []int{1, 11, 12, 16, 17, 60, 61, 4096, scanStep - 1, 3*scanStep + 5} {
		p := append(bytes.Clone(whole), make([]byte, n)...)
		s := st.log(t, 0, Config{}, p)
		want := Tail{Kind: ZeroTail, Position: int64(len(whole)), LastOffset: 9}
		if _, tail := scan(t, s.Scan(0)); tail != want {
			t.Errorf("%d zeros: %+v", n, tail)
		}
		if pos, found, err := s.FirstNonZero(int64(len(whole)), ToEnd); found || err != nil {
			t.Errorf("%d zeros: byte %d is not zero, %v", n, pos, err)
		}
		if next, err := s.NextOffset(); next != 10 || err != nil {
			t.Errorf("%d zeros: next offset %d, %v", n, next, err)
		}
		ok(t, s.Close())
		// One byte at the very end makes it damage: a length of zero with something behind it.
		p[len(p)-1] = 1
		s = st.log(t, 0, Config{}, p)
		_, tail := scan(t, s.Scan(0))
		if tail.Kind != Damage && n >= 17 || tail.Kind == ZeroTail || tail.Kind == CleanEnd || tail.Position != want.Position {
			t.Errorf("%d zeros and a one: %+v", n-1, tail)
		}
		if pos, found, err := s.FirstNonZero(int64(len(whole)), ToEnd); !found || err != nil || pos != int64(len(p)-1) {
			t.Errorf("%d zeros and a one: byte %d, %v, %v", n, pos, found, err)
		}
		ok(t, s.Close())
	}
}

// One aligned page of zeros in a batch, or in place of one, is damage where the batch begins, whichever page it is.
func TestScan_LostPage(t *testing.T) {
	st := memory(t)
	batches := row(t, 0, 20, 3000)
	whole := join(batches...)
	for page := 0; page+4096 <= len(whole); page += 4096 {
		p := bytes.Clone(whole)
		clear(p[page : page+4096])
		s := st.log(t, 0, Config{}, p)
		good, pos := 0, 0
		for pos+len(batches[good]) <= page {
			pos += len(batches[good])
			good++
		}
		bases, tail := scan(t, s.Scan(0))
		if len(bases) != good || tail.Position != int64(pos) || tail.Kind != Damage && tail.Kind != Torn {
			t.Fatalf("page at %d: %d batches, want %d; %+v", page, len(bases), good, tail)
		}
		// What lies behind is found.
		at, found, err := s.FindBatch(tail.Position, ToEnd, 1<<20, func(h Header) bool { return h.BaseOffset >= tail.LastOffset+1 })
		wantBase := int64((page + 4096 + len(batches[0]) - 1) / len(batches[0]))
		if err != nil || found != (wantBase < 20) || found && at != wantBase*int64(len(batches[0])) {
			t.Fatalf("page at %d: found %v at %d, want batch %d; %v", page, found, at, wantBase, err)
		}
		ok(t, s.Close())
	}
}

func TestScan_Order(t *testing.T) {
	st := memory(t)
	p := join(some(t, 0, 10), some(t, 10, 10), some(t, 15, 10))
	s := st.log(t, 0, Config{}, p)
	if bases, tail := scan(t, s.Scan(0)); len(bases) != 3 || tail.Kind != CleanEnd {
		t.Fatalf("without the check: %v %+v", bases, tail)
	}
	bases, tail := scan(t, s.ScanWith(0, ToEnd, ScanOptions{Ordered: true}))
	var order *OrderError
	if len(bases) != 2 || tail.Kind != Damage || tail.LastOffset != 19 || !errors.As(tail.Reason, &order) ||
		*order != (OrderError{BaseOffset: 15, LastOffset: 24, Want: 20}) || !errors.Is(tail.Reason, record.ErrCorrupt) ||
		!errors.Is(tail.Reason, ErrOrder) {
		t.Fatalf("%v %+v", bases, tail)
	}
	if _, tail := scan(t, s.ScanWith(0, ToEnd, ScanOptions{Ordered: true, After: 1})); tail.Position != 0 || tail.Kind != Damage {
		t.Errorf("first batch below the limit: %+v", tail)
	}
	ok(t, s.Close())
	below := st.log(t, 5, Config{}, some(t, 4, 3))
	if _, tail := scan(t, below.ScanWith(0, ToEnd, ScanOptions{Ordered: true})); tail.Kind != Damage {
		t.Errorf("below the base offset: %+v", tail)
	}
}

// An error of the file system is no verdict about the bytes.
func TestScan_ReadErrorIsUnfinished(t *testing.T) {
	broken := errors.New("device error")
	st := memory(t)
	st.log(t, 0, Config{}, join(row(t, 0, 10, 100)...))
	st.FS = vfstest.Inject(st.FS, vfstest.FailNth(vfstest.Kinds(vfstest.OpRead), 1, vfstest.Fault{Err: broken}, true))
	s := Open(st.FS, st.dir, 0, Config{})
	defer s.Close()
	c := s.Scan(0)
	if c.Next() || c.Tail().Kind != Unfinished || !errors.Is(c.Err(), broken) || !errors.Is(c.Tail().Reason, broken) {
		t.Fatalf("%+v", c.Tail())
	}
	var corrupt *CorruptError
	if errors.As(c.Err(), &corrupt) {
		t.Fatal("called corrupt")
	}
	if _, err := s.TruncateTo(3); !errors.Is(err, broken) {
		t.Errorf("truncate: %v", err)
	}
	if _, err := s.Read(ReadOptions{StartOffset: 3, MaxBytes: 10, MaxPosition: ToEnd}); !errors.Is(err, broken) {
		t.Errorf("read: %v", err)
	}
	if _, err := s.NextOffset(); !errors.Is(err, broken) {
		t.Errorf("next offset: %v", err)
	}
}

// A read that fails once does not make a verdict out of the bytes read later.
func TestScan_ReadErrorOnce(t *testing.T) {
	broken := errors.New("device error")
	st := memory(t)
	st.log(t, 0, Config{}, join(row(t, 0, 10, 100)...))
	st.FS = vfstest.Inject(st.FS, vfstest.FailNth(vfstest.Kinds(vfstest.OpRead), 1, vfstest.Fault{Err: broken}, false))
	s := Open(st.FS, st.dir, 0, Config{})
	defer s.Close()
	if _, tail := scan(t, s.Scan(0)); tail.Kind != Unfinished || !errors.Is(tail.Reason, broken) {
		t.Fatalf("%+v", tail)
	}
	if bases, tail := scan(t, s.Scan(0)); len(bases) != 10 || tail.Kind != CleanEnd {
		t.Fatalf("%v %+v", bases, tail)
	}
}

// A file that shrinks under a walk is an error of the read, too.
func TestScan_FileCutUnderneath(t *testing.T) {
	st := memory(t)
	s := st.log(t, 0, Config{}, join(row(t, 0, 10, 100)...))
	size(t, s)
	f, err := s.File()
	ok(t, err)
	ok(t, f.Truncate(50))
	c := s.Scan(0)
	if c.Next() || !errors.Is(c.Err(), io.ErrUnexpectedEOF) || c.Tail().Kind != Unfinished {
		t.Fatalf("%+v", c.Tail())
	}
}
