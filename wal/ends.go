package wal

import (
	"runtime"
	"sync/atomic"
)

// place is an offset of the log with the byte where it lies. segment −1 means that only the offset is known.
type place struct {
	offset   int64
	segment  int64 // base offset of the segment
	position int64 // byte in the segment's .log
	into     int64 // how far the offset lies behind the base offset of the batch that begins there; 0 where it does not
}

func offsetOnly(offset int64) place { return place{offset: offset, segment: -1, position: -1} }

func (p place) resolved() bool { return p.segment >= 0 }

// readable is the first offset that readers who stop at the place do not get: they get whole batches.
func (p place) readable() int64 { return p.offset - p.into }

// ends is what readers may see: a consistent reading of the log's offsets.
type ends struct {
	logStart    int64
	end         place // behind the last visible batch: the durable end in SyncCommit, else the log end
	high        place // high watermark
	unstable    place // first unstable offset; offset −1 if there is none
	recovery    int64 // recovery point
	truncations int64 // counts cuts: what was read below the end before may be gone
	gaps        bool  // offsets may jump below the end
}

// lastStable is the last stable offset: the first unstable offset where it lies below the high watermark, else the
// high watermark. Kafka: UnifiedLog.fetchLastStableOffsetMetadata.
func (e *ends) lastStable() place {
	if e.unstable.offset >= 0 && e.unstable.offset < e.high.offset {
		return e.unstable
	}
	return e.high
}

const endWords = 15

// published holds one value of ends for any number of readers that take no lock. The writer is alone (it holds
// Log.mu). It is a sequence lock: seq is odd while the words change, and a reader that saw it odd or changed reads
// again. Every word is atomic, so a torn reading is seen and thrown away but never a data race.
type published struct {
	seq   atomic.Uint64
	words [endWords]atomic.Int64
}

func (p *published) store(e *ends) {
	p.seq.Add(1)
	for i, v := range e.pack() {
		p.words[i].Store(v)
	}
	p.seq.Add(1)
}

func (p *published) load() ends {
	var w [endWords]int64
	for {
		before := p.seq.Load()
		if before&1 == 0 {
			for i := range w {
				w[i] = p.words[i].Load()
			}
			if p.seq.Load() == before {
				return unpackEnds(&w)
			}
		}
		runtime.Gosched()
	}
}

func (e *ends) pack() [endWords]int64 {
	gaps := int64(0)
	if e.gaps {
		gaps = 1
	}
	return [endWords]int64{
		e.logStart, e.recovery, e.truncations,
		e.end.offset, e.end.segment, e.end.position,
		e.high.offset, e.high.segment, e.high.position, e.high.into,
		e.unstable.offset, e.unstable.segment, e.unstable.position, e.unstable.into, gaps,
	}
}

func unpackEnds(w *[endWords]int64) ends {
	return ends{
		logStart: w[0], recovery: w[1], truncations: w[2],
		end:      place{w[3], w[4], w[5], 0},
		high:     place{w[6], w[7], w[8], w[9]},
		unstable: place{w[10], w[11], w[12], w[13]},
		gaps:     w[14] != 0,
	}
}

// Offsets is one consistent reading of the offsets of a log.
type Offsets struct {
	LogStart      int64 // first offset that can be read
	LastStable    int64 // first offset that a reader of committed records does not get yet
	HighWatermark int64 // first offset that a reader at HighWatermark does not get yet
	RecoveryPoint int64 // everything below is on disk, and is not looked at again after a crash
	LogEnd        int64 // the offset that the next record gets; in SyncCommit the end of what is on disk
}

// Offsets returns the offsets of the log as they were at one moment. It takes no lock.
func (l *Log) Offsets() Offsets {
	e := l.visible.load()
	return offsetsOf(&e)
}

func offsetsOf(e *ends) Offsets {
	return Offsets{
		LogStart:      e.logStart,
		LastStable:    e.lastStable().offset,
		HighWatermark: e.high.offset,
		RecoveryPoint: e.recovery,
		LogEnd:        e.end.offset,
	}
}
