package wal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// producerModel is what a program knows that appends under one name: which counts it has sent, and which of them are in
// the log at which offsets.
type producerModel struct {
	t       *rapid.T
	mem     *vfstest.Mem
	opts    Options
	log     *Log
	p       *Producer
	old     []*Producer // fenced handles of this open
	startAt uint64
	offsets []int64 // of the stored records, by count less startAt
	batches []int   // sizes of the batches that are surely remembered, oldest first; only within one epoch
	acked   uint64  // count up to which appends were acknowledged
}

func (m *producerModel) next() uint64 { return m.startAt + uint64(len(m.offsets)) }

func (m *producerModel) open() {
	m.openLog()
	m.openName()
}

func (m *producerModel) openLog() {
	l, err := OpenFS(context.Background(), m.mem, simDir, m.opts)
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	if r := l.RecoveryReport(); r.Problems() {
		m.t.Fatalf("recovery: %+v", r.Findings)
	}
	m.log, m.old = l, nil
}

func (m *producerModel) openName() {
	p, err := m.log.Producer("model", ProducerOptions{StartAt: m.startAt})
	if err != nil {
		m.t.Fatal(err)
	}
	if m.p != nil && m.p.log == m.log {
		m.old = append(m.old, m.p)
	}
	m.p = p
}

// stored notes the batches that an append of n records from count on makes.
func (m *producerModel) stored(first int64, n int) {
	for i := range n {
		m.offsets = append(m.offsets, first+int64(i))
	}
	first31 := (m.next() - uint64(n)) & (1<<31 - 1)
	left := 1<<31 - first31
	switch {
	case uint64(n) > left: // the last one begins a new epoch
		m.batches = append(m.batches[:0], n-int(left))
	case first31 == 0:
		m.batches = append(m.batches[:0], n)
	default:
		m.batches = append(m.batches, n)
	}
	if len(m.batches) > 5 {
		m.batches = m.batches[1:]
	}
}

func (m *producerModel) appendAt() {
	lo := m.startAt
	if lo > 0 {
		lo--
	}
	count := rapid.Uint64Range(lo, m.next()+2).Draw(m.t, "count")
	n := rapid.IntRange(1, 7).Draw(m.t, "records")
	end := m.log.Offsets().LogEnd
	r, err := m.p.AppendAt(count, counted(count, n)...)
	next := m.next()
	switch {
	case count < m.startAt || count > next:
		var e *CountError
		if !errors.As(err, &e) || *e != (CountError{Name: "model", Count: count, First: m.startAt, Next: next}) {
			m.t.Fatalf("append at %d, stored [%d, %d): %+v, %v", count, m.startAt, next, r, err)
		}
		return
	case err != nil:
		m.t.Fatal(err)
	}
	skipped := int(min(next-count, uint64(n)))
	if r.Skipped != skipped || r.Duplicate != (skipped == n) {
		m.t.Fatalf("append of %d at %d, next %d: %+v", n, count, next, r)
	}
	if !r.Duplicate {
		if r.First != end || r.Last != end+int64(n-skipped)-1 {
			m.t.Fatalf("append at %d: %+v, log end was %d", count, r, end)
		}
		m.stored(r.First, n-skipped)
	} else {
		m.checkOffset(count, r.First)
		m.checkOffset(count+uint64(n)-1, r.Last)
	}
	m.acked = max(m.acked, count+uint64(n))
}

// checkOffset holds the offset of a duplicate against the model; it may be missing behind the last five batches.
func (m *producerModel) checkOffset(count uint64, got int64) {
	i := int(count - m.startAt)
	remembered := 0
	for _, n := range m.batches {
		remembered += n
	}
	if got != m.offsets[i] && (got != -1 || i >= len(m.offsets)-remembered) {
		m.t.Fatalf("count %d is at offset %d, told %d; the last batches are %v", count, m.offsets[i], got, m.batches)
	}
}

func (m *producerModel) appendNext() {
	n := rapid.IntRange(1, 7).Draw(m.t, "records")
	r, err := m.p.Append(counted(m.next(), n)...)
	if err != nil {
		m.t.Fatal(err)
	}
	m.stored(r.First, n)
	m.acked = m.next()
}

// appendFlying leaves appends in flight when the process ends.
func (m *producerModel) appendFlying() {
	sent := m.next()
	var flying []*Pending
	for range rapid.IntRange(1, 12).Draw(m.t, "appends") {
		n := rapid.IntRange(1, 4).Draw(m.t, "records")
		flying = append(flying, m.p.AppendAtAsync(sent, counted(sent, n)...))
		sent += uint64(n)
	}
	if rapid.Bool().Draw(m.t, "wait") {
		for i, f := range flying {
			if _, err := f.Wait(context.Background()); err != nil {
				m.t.Fatalf("append %d of %d in flight: %v", i, len(flying), err)
			}
		}
		m.acked = sent
	}
	m.restart(false)
	got := m.p.NextSequence()
	if got < m.acked || got > sent {
		m.t.Fatalf("next %d after a restart; acknowledged up to %d, sent up to %d", got, m.acked, sent)
	}
	// The program appends all of it again.
	if from := m.acked; from < sent {
		r, err := m.p.AppendAt(from, counted(from, int(sent-from))...)
		if err != nil || uint64(r.Skipped) != got-from {
			m.t.Fatalf("again from %d, next %d: %+v, %v", from, got, r, err)
		}
	}
	m.acked = sent
	m.relearn(sent)
}

// relearn takes the offsets from the log.
func (m *producerModel) relearn(next uint64) {
	m.batches = m.batches[:0]
	m.offsets = m.offsets[:0]
	for _, s := range m.named() {
		m.offsets = append(m.offsets, s.Offset)
	}
	if m.next() != next {
		m.t.Fatalf("the log holds counts up to %d, want %d", m.next(), next)
	}
}

func (m *producerModel) restart(clean bool) {
	m.close(clean)
	m.open()
}

func (m *producerModel) close(clean bool) {
	if clean {
		if err := m.log.Close(); err != nil {
			m.t.Fatal(err)
		}
	} else if err := abandonLog(m.log); err != nil {
		m.t.Fatal(err)
	}
}

// named returns the name's records, which are those with digits.
func (m *producerModel) named() (list []Stored) {
	for s, err := range m.log.Records(0) {
		if err != nil {
			m.t.Fatal(err)
		}
		if !strings.HasPrefix(string(s.Value), "plain") {
			list = append(list, s)
		}
	}
	return list
}

func (m *producerModel) check(t *rapid.T) {
	m.t = t
	if n := m.p.NextSequence(); n != m.next() {
		t.Fatalf("next sequence %d, want %d", n, m.next())
	}
	list := m.named()
	if len(list) != len(m.offsets) {
		t.Fatalf("%d records of the name, want %d", len(list), len(m.offsets))
	}
	for i, s := range list {
		if string(s.Value) != fmt.Sprint(m.startAt+uint64(i)) || s.Offset != m.offsets[i] {
			t.Fatalf("record %d is %q at %d, want offset %d", i, s.Value, s.Offset, m.offsets[i])
		}
	}
}

func TestProducer_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &producerModel{t: t, mem: vfstest.NewMem()}
		if err := m.mem.MkdirAll("/data", 0o755); err != nil {
			t.Fatal(err)
		}
		m.startAt = rapid.SampledFrom([]uint64{0, 1, 100, 1<<31 - 9, 1<<31 - 1, 1 << 31, 7<<31 - 4, MaxCount - 1<<31 - 5}).Draw(t, "startAt")
		m.acked = m.startAt
		m.opts = Options{
			Sync:         rapid.SampledFrom(modes).Draw(t, "mode"),
			SegmentBytes: rapid.Int32Range(600, 3000).Draw(t, "segment"), CheckpointBytes: 1500, IndexIntervalBytes: 300, manual: true,
		}
		m.open()
		defer func() { _ = m.log.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"append at":  func(t *rapid.T) { m.t = t; m.appendAt() },
			"append at ": func(t *rapid.T) { m.t = t; m.appendAt() }, // so often
			"append":     func(t *rapid.T) { m.t = t; m.appendNext() },
			"in flight":  func(t *rapid.T) { m.t = t; m.appendFlying() },
			"plain": func(t *rapid.T) {
				if _, err := m.log.Append(values("plain")...); err != nil {
					t.Fatal(err)
				}
			},
			"roll": func(t *rapid.T) {
				if err := m.log.Roll(); err != nil {
					t.Fatal(err)
				}
			},
			"checkpoint": func(t *rapid.T) {
				if err := m.log.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			},
			"restart": func(t *rapid.T) { m.t = t; m.restart(rapid.Bool().Draw(t, "clean")) },
			"restart without the name": func(t *rapid.T) {
				m.t = t
				m.close(rapid.Bool().Draw(t, "clean"))
				m.openLog()
				if _, err := m.log.Append(values("plain")...); err != nil {
					t.Fatal(err)
				}
				m.restart(rapid.Bool().Draw(t, "clean"))
			},
			"open again": func(t *rapid.T) { m.t = t; m.openName() },
			"fenced": func(t *rapid.T) {
				if len(m.old) == 0 {
					t.Skip("no older handle")
				}
				if _, err := m.old[0].AppendAt(m.next(), counted(m.next(), 1)...); !errors.Is(err, ErrFencedHandle) {
					t.Fatalf("%v", err)
				}
			},
			"locate": func(t *rapid.T) {
				m.t = t
				count := rapid.Uint64Range(m.startAt, m.next()).Draw(t, "count")
				o, found, err := m.p.Locate(count)
				if err != nil || found != (count < m.next()) || found && o != m.offsets[count-m.startAt] {
					t.Fatalf("count %d: %d, %v, %v", count, o, found, err)
				}
			},
			"": m.check,
		})
	})
}
