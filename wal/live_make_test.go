package wal

import (
	"fmt"
	"math/rand/v2"

	"github.com/oncelog/oncelog/internal/kafkatest"
)

// liveMaker makes operations that suit the log as it is, or just do not.
type liveMaker struct {
	*rand.Rand
	r *liveRun
}

// maker makes one kind of operation; a new one needs a place here, in kafkaLog.apply and in traceOps. weight says how often it is chosen among those of an open or of a closed log.
type maker struct {
	weight int
	make   func(*liveMaker) *kafkatest.Op
}

var makers map[string]maker

func init() { // not an initial value: it would refer to itself
	makers = map[string]maker{
		"append":        {24, (*liveMaker).append},
		"repeat":        {7, (*liveMaker).repeat},
		"misfit":        {8, (*liveMaker).misfit},
		"spoilt":        {4, (*liveMaker).spoilt},
		"transactional": {14, (*liveMaker).transactional},
		"verify":        {9, (*liveMaker).verify},
		"marker":        {10, (*liveMaker).marker},
		"follower":      {6, (*liveMaker).follower},
		"oddFollower":   {2, (*liveMaker).oddFollower},
		"roll":          {2, plain("roll")},
		"flush":         {2, (*liveMaker).flush},
		"hw":            {8, (*liveMaker).highWatermark},
		"read":          {9, (*liveMaker).read},
		"time":          {5, (*liveMaker).offsetForTimestamp},
		"epoch":         {2, (*liveMaker).endOffsetForEpoch},
		"late":          {1, plain("lateTransaction")},
		"clock":         {8, (*liveMaker).clock},
		"truncate":      {3, (*liveMaker).truncate},
		"truncateFully": {1, (*liveMaker).truncateFully},
		"deleteRecords": {3, (*liveMaker).deleteRecords},
		"retention":     {3, plain("retention")},
		"expire":        {2, plain("expire")},
		"snapshot":      {2, plain("snapshot")},
		"checkpoint":    {3, plain("checkpoint")},
		"close":         {2, plain("close")},
		"crash":         {3, plain("crash")},
		"setConfig":     {1, (*liveMaker).setConfig},

		"damage": {35, (*liveMaker).damage},
		"reopen": {65, (*liveMaker).reopen},
	}
}

func plain(kind string) func(*liveMaker) *kafkatest.Op {
	return func(*liveMaker) *kafkatest.Op { return &kafkatest.Op{Kind: kind} }
}

// choose picks the kind of the next operation.
func choose(r *rand.Rand, names []string, closed bool) string {
	suits := func(name string) bool { return (name == "damage" || name == "reopen") == closed }
	total := 0
	for _, name := range names {
		if suits(name) {
			total += makers[name].weight
		}
	}
	n := r.IntN(total)
	for _, name := range names {
		if suits(name) {
			if n -= makers[name].weight; n < 0 {
				return name
			}
		}
	}
	panic("unreachable")
}

func (m *liveMaker) state() *kafkatest.StateOutcome { return m.r.kafka.state }

// one tells whether something happens that happens once in n times.
func (m *liveMaker) one(n int) bool { return m.IntN(n) == 0 }

// between is a number from lo to hi, both included.
func (m *liveMaker) between(lo, hi int64) int64 { return lo + m.Int64N(max(1, hi-lo+1)) }

func pick[T any](m *liveMaker, of ...T) T { return of[m.IntN(len(of))] }

// offset is one around the log, now and then outside.
func (m *liveMaker) offset() int64 {
	s := m.state()
	switch m.IntN(12) {
	case 0:
		return s.LogStart
	case 1:
		return s.LogEnd
	case 2:
		return s.LSO
	case 3:
		return s.HighWatermark
	case 4:
		return s.LogStart - 1
	case 5:
		return s.LogEnd + 1 + m.Int64N(3)
	case 6:
		return s.Segments[m.IntN(len(s.Segments))][0]
	case 7:
		return max(s.LogStart, s.LogEnd-m.Int64N(8))
	}
	return m.between(s.LogStart, s.LogEnd)
}

// leaderEpoch is the one of the log, sometimes another.
func (m *liveMaker) leaderEpoch() int32 {
	e := int64(0)
	if all := m.state().LeaderEpochs; len(all) > 0 {
		e = all[len(all)-1][0]
	}
	switch m.IntN(25) {
	case 0:
		e++
	case 1:
		e--
	case 2:
		e += m.Int64N(4)
	}
	return int32(max(0, e))
}

func (m *liveMaker) flush() *kafkatest.Op { return &kafkatest.Op{Kind: "flush", Force: m.one(2)} }

func (m *liveMaker) highWatermark() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "hw", Offset: m.offset()}
	if m.one(3) {
		op.Offset = -1
	}
	return op
}

func (m *liveMaker) read() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "read", Offset: m.offset(), Isolation: pick(m, "log_end", "high_watermark", "txn_committed", "txn_committed"),
		MaxBytes: pick(m, 1_000_000, 1_000_000, m.IntN(3000), m.IntN(300), 0), MinOneMessage: m.one(2)}
	if !m.r.trace.CompareBytes {
		op.MaxBytes = 1_000_000
	}
	return op
}

func (m *liveMaker) offsetForTimestamp() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "offsetForTimestamp", Time: m.r.kafka.now - m.Int64N(20_000)}
	if m.one(3) {
		op.Time = pick[int64](m, -1, -2, -3, -3, -3, -4, -5, -6, 0, m.r.kafka.now+5000)
	}
	return op
}

func (m *liveMaker) endOffsetForEpoch() *kafkatest.Op {
	return &kafkatest.Op{Kind: "endOffsetForEpoch", Epoch: m.leaderEpoch() + pick[int32](m, -2, -1, 0, 0, 1, 3)}
}

func (m *liveMaker) clock() *kafkatest.Op {
	ms := m.r.kafka.now + m.Int64N(3000)
	switch m.IntN(20) {
	case 0:
		ms += m.Int64N(1_500_000)
	case 1, 2:
		ms += m.Int64N(100_000)
	case 3:
		ms -= m.Int64N(10_000)
	}
	return &kafkatest.Op{Kind: "clock", Time: ms}
}

func (m *liveMaker) truncate() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "truncate", Offset: m.offset()}
	if s := m.state(); m.one(2) { // near the end, as after a change of leaders
		op.Offset = max(s.LogStart, s.LogEnd-m.Int64N(12))
	}
	return op
}

func (m *liveMaker) truncateFully() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "truncateFully", Offset: max(0, m.offset()+m.Int64N(3)*m.Int64N(50))}
	if m.one(2) {
		start := max(0, op.Offset-m.Int64N(5))
		op.LogStart = &start
	}
	return op
}

func (m *liveMaker) deleteRecords() *kafkatest.Op {
	s := m.state()
	op := &kafkatest.Op{Kind: "deleteRecords", Offset: m.between(s.LogStart, s.HighWatermark)}
	if m.one(5) {
		op.Offset = max(0, m.offset())
	}
	return op
}

func (m *liveMaker) setConfig() *kafkatest.Op {
	return &kafkatest.Op{Kind: "setConfig", Settings: m.someSettings()}
}

func (m *liveMaker) reopen() *kafkatest.Op {
	op := &kafkatest.Op{Kind: "reopen", Clean: m.r.stoppedInOrder() && !m.one(8)}
	if s := m.state(); !op.Clean && m.one(4) {
		point := pick(m, 0, s.RecoveryPoint, s.Segments[m.IntN(len(s.Segments))][0], s.LogEnd)
		op.RecoveryPoint = &point
	} else if m.one(15) {
		start := m.between(s.LogStart, s.LogEnd)
		op.LogStart = &start
	}
	if m.one(10) {
		op.Settings = m.someSettings()
	}
	return op
}

// settings are those of a run.
func (m *liveMaker) settings() kafkatest.Settings {
	s := kafkatest.Settings{
		SegmentBytes: new(int32(m.between(500, 4000))), SegmentIndexBytes: new(int32(m.between(240, 1500))),
		IndexIntervalBytes: new(int32(m.between(50, 500))), SegmentMs: new(m.between(5_000, 100_000)),
		FileDeleteDelayMs: new(pick[int64](m, 0, 1000, 60_000)), RetentionMs: new(pick(m, -1, m.between(10_000, 400_000))),
		RetentionBytes: new(pick(m, -1, m.between(1000, 12_000))), ProducerIDExpirationMs: new(m.between(20_000, 900_000)),
		MaxMessageBytes: new(int32(m.between(500, 1500))),
	}
	if m.one(2) {
		s.TransactionVerification = new(m.one(3))
	}
	switch m.IntN(10) {
	case 0, 1:
		s.TimestampType = new("LogAppendTime")
	case 2, 3:
		s.MessageTimestampBeforeMaxMs, s.MessageTimestampAfterMaxMs = new(m.between(0, 20_000)), new(m.between(0, 20_000))
	}
	switch m.IntN(12) {
	case 0: // Kafka flushes what was before a roll in the background: only a roll by call is over before the next append
		s = kafkatest.Settings{FlushMessages: new(m.between(1, 20)), SegmentIndexBytes: new(int32(8000))}
	case 1:
		s.Preallocate = new(true)
	case 2:
		s.CleanupPolicy, s.MaxCompactionLagMs = new(pick(m, "compact", "compact,delete")), new(m.between(1000, 60_000))
	case 3:
		s.CompressionType = new("uncompressed")
	case 4:
		s.MaxDecompressedMessageBytes = new(int32(m.between(20, 300)))
	case 5:
		s = kafkatest.Settings{SegmentIndexBytes: new(int32(8000))} // Kafka's own
	case 6: // the bytes depend on the compressor, so nothing may depend on the bytes
		s.CompressionType = new(pick(m, "gzip", "snappy", "lz4", "zstd"))
		s.SegmentBytes, s.IndexIntervalBytes, s.RetentionBytes, s.MaxMessageBytes = nil, nil, nil, nil
		s.SegmentIndexBytes = new(int32(100_000))
	}
	return s
}

// someSettings are a few that change in a log's life.
func (m *liveMaker) someSettings() kafkatest.Settings {
	all := m.settings()
	s := kafkatest.Settings{}
	for range 1 + m.IntN(3) {
		switch m.IntN(8) {
		case 0:
			s.SegmentBytes = all.SegmentBytes
		case 1:
			s.SegmentMs = all.SegmentMs
		case 2:
			s.RetentionMs = all.RetentionMs
		case 3:
			s.RetentionBytes = all.RetentionBytes
		case 4:
			s.IndexIntervalBytes = all.IndexIntervalBytes
		case 5:
			s.MaxMessageBytes = all.MaxMessageBytes
		case 6:
			s.FileDeleteDelayMs = all.FileDeleteDelayMs
		case 7:
			s.TimestampType = new(pick(m, "CreateTime", "LogAppendTime"))
		}
	}
	if !m.r.trace.CompareBytes || m.r.trace.Config.FlushMessages != nil {
		s.SegmentBytes, s.SegmentMs, s.IndexIntervalBytes, s.RetentionBytes, s.MaxMessageBytes = nil, nil, nil, nil, nil
	}
	return s
}

// damage hurts a file that lies there and there.
func (m *liveMaker) damage() *kafkatest.Op {
	s := m.state()
	seg := s.Segments[m.IntN(len(s.Segments))]
	d := &kafkatest.FileDamage{File: fmt.Sprintf("%020d.log", seg[0])}
	op := &kafkatest.Op{Kind: "damage", Damage: d}
	last := s.Segments[len(s.Segments)-1]
	switch m.IntN(12) {
	case 0, 1: // a write that was interrupted
		if !m.r.trace.CompareBytes {
			return nil
		}
		d.File = fmt.Sprintf("%020d.log", last[0])
		d.TruncateTo = new(max(0, last[1]-m.Int64N(200)))
	case 2:
		d.File = fmt.Sprintf("%020d.log", last[0])
		d.Append = make([]byte, 1+m.IntN(150))
		if m.one(2) {
			for i := range d.Append {
				d.Append[i] = byte(m.Uint32())
			}
		}
	case 3:
		if seg[1] == 0 || !m.r.trace.CompareBytes {
			return nil
		}
		d.Position, d.XOR = m.Int64N(seg[1]), new(byte(1+m.IntN(255)))
	case 4, 5:
		d.File = fmt.Sprintf("%020d.%s", seg[0], pick(m, "index", "timeindex"))
		d.Delete = true
	case 6:
		d.File = fmt.Sprintf("%020d.%s", seg[0], pick(m, "index", "timeindex"))
		d.Create = []byte{}
	case 7, 8:
		if d.File = m.file(".snapshot"); d.File == "" {
			return nil
		}
		if d.Delete = m.one(2); !d.Delete {
			d.TruncateTo = new(m.Int64N(60))
		}
	case 9:
		d.File = fmt.Sprintf("%020d.snapshot", m.between(0, s.LogEnd+5))
		d.Create = make([]byte, m.IntN(60))
	case 10:
		if d.File = m.file(".txnindex"); d.File == "" {
			return nil
		}
		d.Delete = true
	case 11:
		d.File, d.Delete = "leader-epoch-checkpoint", true
	}
	return op
}

// file is one of a kind in Kafka's directory, as it was when the log was last open.
func (m *liveMaker) file(ending string) string {
	var names []string
	for _, f := range m.state().Files {
		if len(f.Name) > len(ending) && f.Name[len(f.Name)-len(ending):] == ending {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return pick(m, names...)
}
