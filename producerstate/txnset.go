package producerstate

import (
	"slices"
	"sort"
)

// OffsetMetadata names an offset and where its batch lies (Kafka: LogOffsetMetadata).
type OffsetMetadata struct {
	// Offset is the base offset of the batch.
	Offset int64
	// SegmentBase is the base offset of the segment that holds the batch, or NoOffset where only the offset is known,
	// as after loading a snapshot.
	SegmentBase int64
	// Position is the byte in the segment's log file at which the batch starts. It means nothing without SegmentBase.
	Position int64
}

// OffsetOnly returns the metadata of an offset whose place is not known.
func OffsetOnly(offset int64) OffsetMetadata {
	return OffsetMetadata{Offset: offset, SegmentBase: NoOffset, Position: NoOffset}
}

// Txn is a transaction that holds back the last stable offset.
type Txn struct {
	// ProducerID is the producer that owns it.
	ProducerID int64
	// First is where it begins in this log.
	First OffsetMetadata
	// LastOffset is the offset of the marker that ended it, or NoOffset while it is open.
	LastOffset int64
}

// CompletedTxn is a transaction that a marker of the current append ends.
type CompletedTxn struct {
	// ProducerID is the producer that owns it.
	ProducerID int64
	// FirstOffset is the offset of its first record in this log.
	FirstOffset int64
	// LastOffset is the offset of its marker.
	LastOffset int64
	// Aborted tells that the marker is an ABORT.
	Aborted bool
}

// openTxns holds the open transactions in order of their first offsets. Most begin at the end and most end near the
// start, so removed ones are only marked, and swept once they are the majority.
type openTxns struct {
	txns []openTxn // ascending by first.Offset
	head int       // txns[:head] are gone
	dead int       // marked ones in txns[head:]
}

type openTxn struct {
	first OffsetMetadata
	pid   int64 // ^pid if it has ended
}

// put adds a transaction; an open one with the same first offset is replaced.
func (o *openTxns) put(pid int64, first OffsetMetadata) {
	n := len(o.txns)
	if n == o.head || o.txns[n-1].first.Offset < first.Offset {
		o.txns = append(o.txns, openTxn{first, pid})
		return
	}
	i, found := o.search(first.Offset)
	if found {
		if o.txns[i].pid < 0 {
			o.dead--
		}
		o.txns[i] = openTxn{first, pid}
		return
	}
	o.txns = slices.Insert(o.txns, i, openTxn{first, pid})
}

func (o *openTxns) search(first int64) (int, bool) {
	i := o.head + sort.Search(len(o.txns)-o.head, func(i int) bool { return o.txns[o.head+i].first.Offset >= first })
	return i, i < len(o.txns) && o.txns[i].first.Offset == first
}

// remove takes out the transaction that begins at first.
func (o *openTxns) remove(first int64) (openTxn, bool) {
	i, found := o.search(first)
	if !found || o.txns[i].pid < 0 {
		return openTxn{}, false
	}
	t := o.txns[i]
	o.txns[i].pid = ^t.pid
	o.dead++
	for o.head < len(o.txns) && o.txns[o.head].pid < 0 {
		o.head++
		o.dead--
	}
	switch {
	case o.head == len(o.txns):
		o.txns, o.head = o.txns[:0], 0
	case 2*(o.head+o.dead) > len(o.txns):
		live := slices.DeleteFunc(o.txns[o.head:], func(t openTxn) bool { return t.pid < 0 })
		o.txns = o.txns[:copy(o.txns, live)]
		o.head, o.dead = 0, 0
	}
	return t, true
}

// first returns the transaction that began first.
func (o *openTxns) first() (openTxn, bool) {
	if o.head == len(o.txns) {
		return openTxn{}, false
	}
	return o.txns[o.head], true
}

// firstOther returns the first transaction of a producer other than pid.
func (o *openTxns) firstOther(pid int64) (openTxn, bool) {
	for _, t := range o.txns[o.head:] {
		if t.pid >= 0 && t.pid != pid {
			return t, true
		}
	}
	return openTxn{}, false
}

func (o *openTxns) len() int { return len(o.txns) - o.head - o.dead }

func (o *openTxns) clear() { *o = openTxns{} }

// list returns the transactions in order.
func (o *openTxns) list() []Txn {
	var l []Txn
	for _, t := range o.txns[o.head:] {
		if t.pid >= 0 {
			l = append(l, Txn{ProducerID: t.pid, First: t.first, LastOffset: NoOffset})
		}
	}
	return l
}

// decidedTxns holds the transactions whose marker is in the log but may still be above the high watermark, in order of
// their markers. lows keeps the lowest first offset at hand while transactions come and go: it lists those that have no
// later one with a lower first offset, so that its first element is the lowest of all.
type decidedTxns struct {
	txns []Txn
	base int   // running number of txns[0]
	lows []int // running numbers, ascending in number and in first offset
}

// put adds a transaction. Markers come in the order of their offsets; a stray one is sorted in.
func (d *decidedTxns) put(t Txn) {
	n := len(d.txns)
	if n > 0 && d.txns[n-1].LastOffset > t.LastOffset {
		i := sort.Search(n, func(i int) bool { return d.txns[i].LastOffset > t.LastOffset })
		all := slices.Insert(slices.Clone(d.txns), i, t)
		d.clear()
		for _, t := range all {
			d.put(t)
		}
		return
	}
	d.txns = append(d.txns, t)
	for k := len(d.lows); k > 0 && d.txns[d.lows[k-1]-d.base].First.Offset > t.First.Offset; k-- {
		d.lows = d.lows[:k-1]
	}
	d.lows = append(d.lows, d.base+n)
}

// removeBelow drops those whose marker lies below offset.
func (d *decidedTxns) removeBelow(offset int64) {
	for len(d.txns) > 0 && d.txns[0].LastOffset < offset {
		if d.lows[0] == d.base {
			d.lows = d.lows[1:]
		}
		d.txns = d.txns[1:]
		d.base++
	}
	if len(d.txns) == 0 {
		d.clear()
	}
}

// first returns the transaction with the lowest first offset.
func (d *decidedTxns) first() (Txn, bool) {
	if len(d.txns) == 0 {
		return Txn{}, false
	}
	return d.txns[d.lows[0]-d.base], true
}

func (d *decidedTxns) clear() { d.txns, d.lows, d.base = d.txns[:0], d.lows[:0], 0 }

func (d *decidedTxns) len() int { return len(d.txns) }
