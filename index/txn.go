package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/oncelog/oncelog/internal/vfs"
)

// txnSize is the size of an entry of the transaction index. Format.
const txnSize = 34

// AbortedTxn is an entry of a transaction index: an aborted transaction that has data in this log. It stands in the
// index of the segment that holds the abort marker, wherever its data is.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64 // of the first data record of the transaction
	LastOffset  int64 // of the abort marker

	// LastStableOffset is what the last stable offset was when the marker was appended, this transaction apart:
	// the first offset of the earliest other open transaction, or LastOffset+1. No later entry begins below it.
	LastStableOffset int64
}

// problem says why t cannot be an entry of a segment with that base offset, or nothing.
func (t AbortedTxn) problem(base int64) string {
	switch {
	case t.ProducerID < 0:
		return fmt.Sprintf("producer id %d is negative", t.ProducerID)
	case t.FirstOffset < 0 || t.FirstOffset >= t.LastOffset:
		return fmt.Sprintf("first offset %d is not below the marker at %d", t.FirstOffset, t.LastOffset)
	case t.LastOffset < base:
		return fmt.Sprintf("last offset %d below base offset %d", t.LastOffset, base)
	case t.LastStableOffset < 0 || t.LastStableOffset-1 > t.LastOffset:
		return fmt.Sprintf("last stable offset %d is not within 0 to the one behind the marker at %d",
			t.LastStableOffset, t.LastOffset)
	}
	return ""
}

// Txn is a transaction index. It is neither mapped nor reserved ahead: few segments have one, and it is read only by
// fetches of committed data. Source: Kafka's TransactionIndex.
type Txn struct {
	fsys  vfs.FS
	path  string
	base  int64
	kafka bool
	ro    bool

	wmu     sync.Mutex // held by whatever changes the index
	size    int64      // guarded by wmu: bytes of the file
	last    int64      // guarded by wmu: last offset of the last entry, if known
	known   bool       // guarded by wmu
	created bool       // guarded by wmu

	mu     sync.RWMutex // held by readers over one read; written to under wmu as well
	closed bool         // guarded by mu
	cuts   int          // guarded by mu: how often entries were removed

	syncMu sync.Mutex // held over a sync, so that Close waits for it
	file   vfs.File   // changed under wmu, mu and syncMu; nil while there is no file
	shrunk bool       // guarded by syncMu: cut since the last sync

	n atomic.Int64 // entries; raised under wmu, lowered under wmu and mu
}

// OpenTxn opens the transaction index of the segment with the given base offset. A missing file is an empty index;
// the first Append creates it. Nothing is read yet.
func OpenTxn(fsys vfs.FS, path string, baseOffset int64, c Config) (*Txn, error) {
	x := &Txn{fsys: fsys, path: path, base: baseOffset, kafka: c.KafkaOpen, ro: c.ReadOnly}
	f, err := openExisting(fsys, path, c.ReadOnly)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return x, nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("index: %w", err), f.Close())
	}
	x.file, x.size = f, info.Size
	x.n.Store(info.Size / txnSize)
	return x, nil
}

// Append adds t at the end and creates the file if there is none; its name is durable after a sync of the directory.
// The last offset must be above that of the last entry (ErrInvalidOffset), the numbers must make sense together
// (ErrInvalidTxn). After any error the index is as before; a full disk is vfs.ErrNoSpace.
//
// A partial entry that a crash left at the end is overwritten. Unlike here, Kafka appends behind it, so that this and
// every later entry is unreadable, and it forgets the last offset when the file is opened again: Config.KafkaOpen does
// both.
// Source: TransactionIndex.append.
func (x *Txn) Append(t AbortedTxn) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	if p := t.problem(x.base); p != "" && !x.kafka {
		return fmt.Errorf("%w: %s: %s", ErrInvalidTxn, x.path, p)
	}
	if err := x.learnLast(); err != nil {
		return err
	}
	if x.known && t.LastOffset <= x.last {
		return fmt.Errorf("%w: %s: last offset %d, that of the last entry %d",
			ErrInvalidOffset, x.path, t.LastOffset, x.last)
	}
	if err := x.create(); err != nil {
		return err
	}
	if n := x.n.Load(); x.size/txnSize > n { // a cut has failed: what it left must not follow a new entry
		if err := x.cut(n, x.last, x.known); err != nil {
			return err
		}
	}
	at := x.n.Load() * txnSize
	if x.kafka {
		at = x.size
	}
	if _, err := x.file.WriteAt(appendTxn(nil, t), at); err != nil {
		err = fmt.Errorf("index: append: %w", err)
		if terr := x.file.Truncate(at); terr != nil {
			return errors.Join(err, fmt.Errorf("index: cut to %d bytes: %w", at, terr))
		}
		x.size = at
		return err
	}
	x.size = at + txnSize
	x.last, x.known = t.LastOffset, true
	x.n.Store(x.size / txnSize)
	return nil
}

// Collect returns the entries that a fetch of the offsets [fetchOffset, upperBound), not empty, has to know, in order: those that
// end at or behind fetchOffset and begin below upperBound. The slice is the caller's, nil if there is none. complete
// says that no later entry, in this segment or in a later one, can belong to them, so the search may stop.
// Source: TransactionIndex.collectAbortedTxns.
func (x *Txn) Collect(fetchOffset, upperBound int64) (txns []AbortedTxn, complete bool, err error) {
	from, err := x.firstEnding(fetchOffset)
	if err != nil {
		return nil, false, err
	}
	for t, err := range x.from(from) {
		if err != nil {
			return nil, false, err
		}
		if t.concerns(fetchOffset, upperBound) {
			txns = append(txns, t)
		}
		if t.LastStableOffset >= upperBound {
			return txns, true, nil
		}
	}
	return txns, false, nil
}

// TxnBounds say which fetches the entries of an index have to do with. Where Lowest is at or above the upper bound of a fetch,
// Collect returns no entry, and is complete if Stable is at or above it too.
type TxnBounds struct {
	Lowest int64 // first offset of any entry, math.MaxInt64 if there is none
	Stable int64 // greatest last stable offset, -1 if there is none
}

// NoTxns are the bounds of an index without entries.
var NoTxns = TxnBounds{Lowest: math.MaxInt64, Stable: -1}

// Bounds reads all entries.
func (x *Txn) Bounds() (TxnBounds, error) {
	b := NoTxns
	for t, err := range x.All() {
		if err != nil {
			return TxnBounds{}, err
		}
		b.Lowest, b.Stable = min(b.Lowest, t.FirstOffset), max(b.Stable, t.LastStableOffset)
	}
	return b, nil
}

// concerns tells whether a fetch of the offsets [fetchOffset, upperBound) has to know the transaction.
func (t *AbortedTxn) concerns(fetchOffset, upperBound int64) bool {
	return t.LastOffset >= fetchOffset && t.FirstOffset < upperBound
}

// Collect is Txn.Collect on a list of entries in order.
func Collect(list []AbortedTxn, fetchOffset, upperBound int64) (txns []AbortedTxn, complete bool) {
	first := sort.Search(len(list), func(i int) bool { return list[i].LastOffset >= fetchOffset })
	for _, t := range list[first:] {
		if t.concerns(fetchOffset, upperBound) {
			txns = append(txns, t)
		}
		if t.LastStableOffset >= upperBound {
			return txns, true
		}
	}
	return txns, false
}

// Ending calls f for each entry whose last offset is in [from, to), in order. An error comes after the entries before it.
func (x *Txn) Ending(from, to int64, f func(AbortedTxn)) error {
	first := int64(0)
	if from > 0 {
		var err error
		if first, err = x.firstEnding(from); err != nil {
			return err
		}
	}
	for t, err := range x.from(first) {
		switch {
		case err != nil:
			return err
		case t.LastOffset >= to:
			return nil
		case t.LastOffset >= from:
			f(t)
		}
	}
	return nil
}

// All yields the entries in order. An error ends the sequence: a *VersionError, or a *CorruptError for an entry that
// cannot be (with Config.KafkaOpen every entry of version 0 can). A partial entry at the end is no entry. The loop
// may call any method of the index.
func (x *Txn) All() iter.Seq2[AbortedTxn, error] { return x.from(0) }

// SanityCheck reads every entry. One whose last offset is below the base offset is a *CorruptError, as in Kafka; so
// is one that cannot be for another reason (see All). Source: TransactionIndex.sanityCheck.
func (x *Txn) SanityCheck() error {
	i := 0
	for t, err := range x.All() {
		if err != nil {
			return err
		}
		if t.LastOffset < x.base {
			return &CorruptError{Path: x.path, Entry: i,
				Reason: fmt.Sprintf("last offset %d below base offset %d", t.LastOffset, x.base)}
		}
		i++
	}
	return nil
}

// TruncateTo cuts the file before the first entry whose last offset is offset or more, if there is one, or before a partial
// entry at its end, which Kafka (Config.KafkaOpen) leaves; durable after Flush. An index that cannot be read up to there is not
// cut: Reset it and rebuild it. Source: TransactionIndex.truncateTo.
func (x *Txn) TruncateTo(offset int64) error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	keep, last, known := int64(0), int64(0), false
	for t, err := range x.from(0) {
		if err != nil {
			return err
		}
		if t.LastOffset >= offset {
			return x.cut(keep, last, known)
		}
		keep, last, known = keep+1, t.LastOffset, true
	}
	if x.kafka || x.size == keep*txnSize {
		return nil
	}
	return x.cut(keep, last, known)
}

// Reset removes all entries and cuts the file, if there is one, to nothing. Durable after Flush. Source:
// TransactionIndex.reset.
func (x *Txn) Reset() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if err := x.writable(); err != nil {
		return err
	}
	return x.cut(0, 0, false)
}

// appendTxn appends the bytes of an entry to dst. Format, see the package comment.
func appendTxn(dst []byte, t AbortedTxn) []byte {
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.ProducerID))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.FirstOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.LastOffset))
	return binary.BigEndian.AppendUint64(dst, uint64(t.LastStableOffset))
}

// parseTxn reads an entry of any version as if it were version 0.
func parseTxn(p []byte) (version int16, t AbortedTxn) {
	return int16(binary.BigEndian.Uint16(p)), AbortedTxn{
		ProducerID:       int64(binary.BigEndian.Uint64(p[2:])),
		FirstOffset:      int64(binary.BigEndian.Uint64(p[10:])),
		LastOffset:       int64(binary.BigEndian.Uint64(p[18:])),
		LastStableOffset: int64(binary.BigEndian.Uint64(p[26:])),
	}
}
