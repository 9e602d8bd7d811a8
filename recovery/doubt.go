package recovery

import (
	"cmp"
	"slices"

	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// Doubt is a transaction that was open where a damaged log has a hole: its marker may have been in there, so nobody knows
// whether the records of it in front of the hole are committed or aborted. What its producer wrote behind the hole is judged
// by itself: the next marker is about that. A reader may find more in a hole than the recovery did; there the transactions of
// all producers are in doubt.
type Doubt struct {
	ProducerID int64 // −1 for all
	First      int64 // first offset of the transaction
	End        int64 // behind the last batch in front of the hole
}

// Lost is what is missing at the end of a damaged log: the offsets from From on, up to End at least. The zero value is nothing.
type Lost struct{ From, End int64 }

// doubt lets go of the transactions that are open at a hole.
func (l *loader) doubt(m *producerstate.Manager, h Hole) {
	for _, t := range m.DropOpenTxns() {
		d := Doubt{ProducerID: t.ProducerID, First: t.First.Offset, End: h.Offset}
		l.addDoubt(d)
	}
	if h.End > h.Offset {
		l.addDoubt(Doubt{ProducerID: record.NoProducerID, First: h.Offset, End: h.End})
	}
	slices.SortFunc(l.doubts, func(a, b Doubt) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.ProducerID, b.ProducerID))
	})
}

func (l *loader) addDoubt(d Doubt) {
	if !slices.Contains(l.doubts, d) {
		l.doubts = append(l.doubts, d)
	}
}

// doubtAtEnd is for a reader of a log that ends in a hole.
func (l *loader) doubtAtEnd() {
	for _, h := range l.report.Holes {
		if h.End >= 0 {
			continue
		}
		promised := l.foreign.RecoveryPoint()
		if l.us {
			promised = l.slot.Durable.Offset
		}
		l.gone = Lost{From: h.Offset, End: max(h.Offset+1, promised)}
		l.doubt(l.producers, Hole{Offset: h.Offset, End: l.end.Offset})
	}
}
