package index

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// On a full disk an append is refused and changes nothing; when there is room again it works.
func TestFullDisk(t *testing.T) {
	m := vfstest.NewMem()
	x := openOffset(t, m, "/a.index", 0, Config{})
	txn := openTxn(t, m, "/a.txnindex", 0, Config{})
	m.SetCapacity(8192)
	var refused error
	n := int64(0)
	for refused == nil {
		n++
		refused = x.Append(n, int32(n))
	}
	wantIs(t, refused, vfs.ErrNoSpace)
	// The last step is retried down to the exact need, so that every sector is used.
	if x.Entries() != 8192/8 || x.LastOffset() != n-1 {
		t.Errorf("%d entries, last %d", x.Entries(), x.LastOffset())
	}
	for range 3 {
		wantIs(t, x.Append(n, int32(n)), vfs.ErrNoSpace)
		wantIs(t, txn.Append(AbortedTxn{1, 2, 3, 4}), vfs.ErrNoSpace)
	}
	if e, err := x.Lookup(n); err != nil || e.Offset != n-1 {
		t.Errorf("Lookup = %v, %v", e, err)
	}
	if txn.Entries() != 0 || txn.PartialBytes() != 0 {
		t.Errorf("%d entries, %d bytes", txn.Entries(), txn.PartialBytes())
	}
	ok(t, x.CheckEntries(n))
	m.SetCapacity(0)
	ok(t, x.Append(n, int32(n)))
	ok(t, txn.Append(AbortedTxn{1, 2, 3, 4}))

	// Cutting works on a full disk and makes room.
	m.SetCapacity(512)
	ok(t, x.TruncateTo(50))
	ok(t, txn.Reset())
	ok(t, x.Append(50, 50))
	ok(t, x.Trim())
	if len(m.SparseStores()) > 0 {
		t.Errorf("sparse stores %v", m.SparseStores())
	}
}

// Every operation on the file fails in turn: the error comes through, nothing panics, the entries that were there
// stay, and the index works again afterwards.
func TestEveryOperationFails(t *testing.T) {
	for k := 0; ; k++ {
		m := vfstest.NewMem()
		put(t, m, "/a.index", append(unhex(t, goldenOffsets), make([]byte, 100)...))
		put(t, m, "/a.timeindex", append(unhex(t, goldenTimes), make([]byte, 100)...))
		put(t, m, "/a.txnindex", append(unhex(t, goldenTxn), 1))
		h := &hooked{FS: m}
		ops, failed := 0, ""
		h.fail(func(op string, _ int64) error {
			if ops++; ops == k+1 {
				failed = op
				return syscall.EIO
			}
			return nil
		})
		lost := 0
		try := func(err error) {
			if err != nil {
				wantIs(t, err, syscall.EIO)
				lost++
			}
		}
		o, err := OpenOffset(h, "/a.index", 100, Config{})
		try(err)
		x, err := OpenTime(h, "/a.timeindex", 100, Config{})
		try(err)
		txn, err := OpenTxn(h, "/a.txnindex", 100, Config{})
		try(err)
		if o != nil && x != nil && txn != nil {
			use(t, o, x, txn, try)
			h.fail(nil)
			if o.Entries() < 2 || x.Entries() < 2 || txn.Entries() < 1 {
				t.Fatalf("failed %s (%d): entries lost", failed, k)
			}
			e, err := o.Lookup(150)
			if err != nil || e.Offset != 150 {
				t.Fatalf("failed %s (%d): Lookup = %v, %v", failed, k, e, err)
			}
			for _, err := range []error{
				o.Append(o.LastOffset()+1, 5000), x.MaybeAppend(x.LastEntry().Timestamp+1, 400, false),
				txn.Append(AbortedTxn{1, 2, 400, 401}), o.Trim(), x.Trim(), o.CheckEntries(1 << 20), x.CheckEntries(1 << 20), txn.SanityCheck(),
			} {
				if err != nil {
					t.Fatalf("failed %s (%d): %v afterwards", failed, k, err)
				}
			}
			if got := get(t, m, "/a.index"); !bytes.HasPrefix(got, unhex(t, goldenOffsets)) || int64(len(got)) != o.UsedBytes() {
				t.Fatalf("failed %s (%d): % x", failed, k, got)
			}
		}
		for _, c := range []interface{ Close() error }{o, x, txn} {
			switch c := c.(type) {
			case *Offset:
				if c == nil {
					continue
				}
			case *Time:
				if c == nil {
					continue
				}
			case *Txn:
				if c == nil {
					continue
				}
			}
			ok(t, c.Close())
			ok(t, c.Close())
		}
		if failed == "" {
			if k < 20 {
				t.Errorf("only %d operations", k)
			}
			return
		}
		if lost == 0 && failed != "map" { // a map that is refused is made up for by reading
			t.Errorf("nobody was told that %s failed (%d)", failed, k)
		}
	}
}

// use calls every method that does something with the file.
func use(t *testing.T, o *Offset, x *Time, txn *Txn, try func(error)) {
	_, err := o.Lookup(120)
	try(err)
	try(o.Append(160, 4500))
	try(x.MaybeAppend(1700000010000, 160, false))
	try(o.Trim())
	_, err = o.Lookup(120)
	try(err)
	try(o.Append(161, 4600))
	try(o.TruncateTo(160))
	try(o.Flush())
	try(o.Flush())
	_, err = x.Lookup(1800000000000)
	try(err)
	try(x.Flush())
	try(txn.Append(AbortedTxn{7, 104, 161, 162}))
	_, _, err = txn.Collect(0, 1000)
	try(err)
	try(txn.TruncateTo(161))
	try(txn.Flush())
	try(o.Unmap())
	try(x.Trim())
	if errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// Where the system refuses every map, the indexes work through memory and the file, with the same bytes.
func TestNoMaps(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		h := &hooked{FS: fsys}
		h.fail(func(op string, _ int64) error {
			if op == "map" {
				return syscall.ENOMEM
			}
			return nil
		})
		x := openOffset(t, h, path, 0, Config{})
		for i := int64(1); i <= 3000; i++ {
			ok(t, x.Append(i*10, int32(i)))
			if e, err := x.Lookup(i*10 + 5); err != nil || e != (OffsetPosition{i * 10, int32(i)}) {
				t.Fatalf("Lookup = %v, %v", e, err)
			}
		}
		r := openOffset(t, fsys, path, 0, Config{ReadOnly: true}) // mapped, and sees what was written
		if r.Entries() != 3000 {
			t.Errorf("%d entries in the file", r.Entries())
		}
		ok(t, r.CheckEntries(3001))
		ok(t, x.TruncateTo(500))
		ok(t, x.Trim())
		ok(t, x.CheckEntries(50))
		if got := len(get(t, fsys, path)); got != 49*8 {
			t.Errorf("%d bytes", got)
		}
		h.fail(func(op string, _ int64) error {
			if op == "map" || op == "write" {
				return vfs.ErrNoSpace
			}
			return nil
		})
		wantIs(t, x.Append(1000, 1000), vfs.ErrNoSpace)
		if x.Entries() != 49 || x.LastOffset() != 490 {
			t.Errorf("%d entries, last %d", x.Entries(), x.LastOffset())
		}
		h.fail(nil)
		ok(t, x.Append(1000, 1000))
		ok(t, x.CheckEntries(1001))
	})
}

// What was there when Flush began is there after any power cut; of the rest nothing is made up.
func TestPowerCut(t *testing.T) {
	for seed := range uint64(300) {
		m := vfstest.NewMemWith(vfstest.MemOptions{Seed: seed})
		o := openOffset(t, m, "/a.index", 0, Config{})
		txn := openTxn(t, m, "/a.txnindex", 0, Config{})
		fill := func(from, to int64) {
			for i := from; i <= to; i++ {
				ok(t, o.Append(i, int32(i)))
				if i%10 == 0 {
					ok(t, txn.Append(AbortedTxn{1, i - 1, i, i + 1}))
				}
			}
		}
		fill(1, 700)
		ok(t, o.TruncateTo(601))
		ok(t, txn.TruncateTo(601))
		ok(t, o.Flush())
		ok(t, txn.Flush())
		ok(t, m.SyncDir("/"))
		fill(601, 1300)

		c := vfstest.RandomCrash(seed)
		c.Garbage = false // nothing tells garbage from an entry but the log
		after := m.Crash(c)
		o2 := openOffset(t, after, "/a.index", 0, Config{ReadOnly: true})
		txn2 := openTxn(t, after, "/a.txnindex", 0, Config{ReadOnly: true})
		if o2.Entries() < 600 || o2.Entries() > 1300 || txn2.Entries() < 60 {
			t.Fatalf("seed %d: %d and %d entries", seed, o2.Entries(), txn2.Entries())
		}
		i := 0
		for e, err := range o2.All() {
			ok(t, err)
			i++
			if e != (OffsetPosition{int64(i), int32(i)}) && (i <= 600 || e != OffsetPosition{} && !c.Torn) {
				t.Fatalf("seed %d, %+v: entry %d is %v", seed, c, i, e)
			}
		}
		i = 0
		for e, err := range txn2.All() {
			if i++; i > 60 {
				break // an entry lies in two sectors, and half an entry may look like one
			}
			ok(t, err)
			if n := int64(10 * i); e != (AbortedTxn{1, n - 1, n, n + 1}) {
				t.Fatalf("seed %d: transaction %d is %v", seed, i, e)
			}
		}
	}
}

// Which operations on the file the methods do, and that a cut is synced with its size.
func TestOperations(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		h := &hooked{FS: fsys}
		var ops []string
		h.fail(func(op string, _ int64) error {
			if op != "stat" && op != "read" {
				ops = append(ops, op)
			}
			return nil
		})
		x := openOffset(t, h, path, 0, Config{})
		txn := openTxn(t, h, path+".txn", 0, Config{})
		for _, step := range []struct {
			do   func() error
			want string
		}{
			{func() error { return nil }, "open open open"}, // found missing, created; found missing
			{func() error { return x.Append(1, 1) }, "allocate map"},
			{func() error { return x.Append(2, 2) }, ""},
			{func() error { return x.TruncateTo(3) }, ""},
			{x.Flush, "sync"},
			{func() error { return x.TruncateTo(2) }, "unmap truncate"},
			{x.Flush, "fsync"},
			{x.Flush, "sync"},
			{x.Trim, ""},
			{func() error { return x.Append(2, 2) }, "allocate map"},
			{x.Trim, "unmap truncate"},
			{x.Trim, ""},
			{x.Flush, "fsync"},
			{x.Unmap, ""},
			{x.Reset, "truncate"},
			{x.Reset, ""},
			{txn.Flush, ""},
			{func() error { return txn.Append(AbortedTxn{1, 2, 3, 4}) }, "open write"},
			{txn.Flush, "sync"},
			{func() error { return txn.TruncateTo(4) }, ""},
			{func() error { return txn.TruncateTo(3) }, "truncate"},
			{txn.Reset, ""},
			{txn.Flush, "fsync"},
			{txn.Flush, "sync"},
		} {
			ok(t, step.do())
			if got := strings.Join(ops, " "); got != step.want {
				t.Errorf("did %q, want %q", got, step.want)
			}
			ops = nil
		}
	})
}

// A cut that fails takes the entries from this handle. They are cut off before the next one is stored, so that no
// crash brings them back behind it.
func TestFailedCut(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, path string) {
		h := &hooked{FS: fsys}
		x := openOffset(t, h, path, 0, Config{})
		for i := int64(1); i <= 100; i++ {
			ok(t, x.Append(i, int32(i)))
		}
		failing := func(op string, _ int64) error {
			if op == "truncate" {
				return syscall.EIO
			}
			return nil
		}
		h.fail(failing)
		wantIs(t, x.TruncateTo(11), syscall.EIO)
		if e, err := x.Lookup(50); err != nil || e.Offset != 10 || x.Entries() != 10 {
			t.Errorf("Lookup = %v, %v with %d entries", e, err, x.Entries())
		}
		wantIs(t, x.Append(11, 11), syscall.EIO)
		h.fail(nil)
		ok(t, x.Append(11, 11))
		r := openOffset(t, fsys, path, 0, Config{ReadOnly: true})
		if r.Entries() != 11 {
			t.Errorf("%d entries in the file", r.Entries())
		}

		txn := openTxn(t, h, path+".txn", 0, Config{})
		ok(t, txn.Append(AbortedTxn{1, 2, 3, 4}))
		h.fail(func(op string, _ int64) error {
			if op == "write" {
				return vfs.ErrNoSpace
			}
			return nil
		})
		wantIs(t, txn.Append(AbortedTxn{1, 2, 5, 6}), vfs.ErrNoSpace)
		if got := len(get(t, fsys, path+".txn")); got != 34 {
			t.Errorf("%d bytes stay after an append that failed", got)
		}
		h.fail(nil)
		for i := int64(10); i < 20; i++ {
			ok(t, txn.Append(AbortedTxn{1, 2, i, i + 1}))
		}
		h.fail(failing)
		wantIs(t, txn.TruncateTo(11), syscall.EIO)
		wantIs(t, txn.Append(AbortedTxn{1, 2, 11, 12}), syscall.EIO)
		h.fail(nil)
		ok(t, txn.Append(AbortedTxn{1, 2, 11, 12}))
		if got := len(get(t, fsys, path+".txn")); got != 3*34 || txn.Entries() != 3 {
			t.Errorf("%d entries, %d bytes", txn.Entries(), got)
		}
	})
}
