package wal

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oncelog/oncelog/record"
)

// keyedLoad appends to a compacted log what a seed says: records whose keys come again, deletions, several codecs, producers
// with sequences, and transactions that commit and abort.
type keyedLoad struct {
	rand  *rand.Rand
	now   time.Time
	keys  int
	seqs  map[int64]int32
	open  map[int64]bool
	codec []record.Compression
	sent  [][]byte // as stored
}

func newKeyedLoad(seed uint64) *keyedLoad {
	return &keyedLoad{rand: rand.New(rand.NewPCG(seed, 31)), now: time.UnixMilli(1_700_000_000_000), keys: 12,
		seqs: map[int64]int32{}, open: map[int64]bool{},
		codec: []record.Compression{record.None, record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}}
}

// batch is a random batch; those of producers 4 and up are in transactions.
func (w *keyedLoad) batch() (record.Batch, int64, error) {
	id := w.rand.Int64N(8) - 2
	o := record.BuilderOptions{Compression: w.codec[w.rand.IntN(len(w.codec))]}
	if id >= 0 {
		o.Producer = &record.Producer{ID: id, BaseSequence: w.seqs[id]}
		o.Transactional = id >= 4
	}
	b := record.NewBuilder(o)
	for i := range 1 + w.rand.IntN(5) {
		r := record.Record{Key: fmt.Appendf(nil, "key-%d", w.rand.IntN(w.keys)), Value: bytes.Repeat([]byte{byte('a' + w.rand.IntN(26))}, w.rand.IntN(90))}
		if w.rand.IntN(6) == 0 {
			r.Value = nil
		}
		if w.rand.IntN(5) == 0 {
			r.Headers = []record.Header{{Key: "h", Value: []byte{byte(i)}}}
		}
		if err := b.Append(w.now.UnixMilli()-w.rand.Int64N(3)*int64(i), r); err != nil {
			return nil, id, err
		}
	}
	p, err := b.Batch()
	return bytes.Clone(p), id, err
}

// append adds one batch or marker to the log.
func (w *keyedLoad) append(l *Log) error {
	w.now = w.now.Add(time.Duration(w.rand.IntN(200)) * time.Millisecond)
	if ids := slices.Sorted(maps.Keys(w.open)); len(ids) > 0 && w.rand.IntN(4) == 0 {
		return w.end(l, ids[w.rand.IntN(len(ids))])
	}
	b, id, err := w.batch()
	if err != nil {
		return err
	}
	info, err := l.AppendAsLeader(bytes.Clone(b), LeaderAppend{TransactionVersion: NoTransactionVersion})
	if err != nil {
		return err
	}
	if id >= 0 {
		w.seqs[id] = record.IncrementSequence(w.seqs[id], b.Count())
		if id >= 4 {
			w.open[id] = true
		}
	}
	return w.note(b, info.FirstOffset)
}

func (w *keyedLoad) note(b record.Batch, offset int64) error {
	b.SetBaseOffset(offset)
	b.SetPartitionLeaderEpoch(0)
	w.sent = append(w.sent, b)
	return nil
}

// end ends the transaction of a producer.
func (w *keyedLoad) end(l *Log, id int64) error {
	kind := record.Commit
	if w.rand.IntN(2) == 0 {
		kind = record.Abort
	}
	m := record.Batch(record.AppendEndTxnMarker(nil, record.Producer{ID: id}, record.EndTxnMarker{Type: kind}, w.now.UnixMilli()))
	info, err := l.AppendAsLeader(bytes.Clone(m), LeaderAppend{Origin: Coordinator})
	if err != nil {
		return err
	}
	delete(w.open, id)
	return w.note(m, info.FirstOffset)
}

// endAll ends all open transactions.
func (w *keyedLoad) endAll(l *Log) error {
	for _, id := range slices.Sorted(maps.Keys(w.open)) {
		if err := w.end(l, id); err != nil {
			return err
		}
	}
	return nil
}
