package wal

import (
	"bytes"
	"fmt"

	"github.com/oncelog/oncelog/record"
)

// PositionHeader is the key of the record header in which AppendWithPosition keeps a position. Readers of the log see it
// among the record's headers.
const PositionHeader = "oncelog.position"

// AppendWithPosition is Append for a source whose positions cannot be counted, such as a database's log sequence numbers.
// The position, of any bytes, is stored with the records, as a header of the last one, so that the two cannot come apart:
// a program that starts again reads it with LastPosition and goes on behind it.
//
// After an error other than ErrFailed nothing was stored. Once in 2^31 records of the name an append is stored as two
// batches; if the machine goes down between the two, LastPosition is still the one before, although some of the records
// are there.
func (p *Producer) AppendWithPosition(position []byte, recs ...Record) (Result, error) {
	if position == nil {
		position = []byte{}
	}
	return p.wait(p.appendNext(recs, position))
}

// LastPosition returns the position stored with the last batch of the name, in SyncCommit the last durable one, and in a name
// with transactions the last one of a committed transaction, which is searched for from the end of the log on. It is not
// found if nothing is stored, or no position with it. The bytes belong to the caller.
//
// An error says that the position could not be read, which is not the same as that there is none: the batch may be
// damaged, or its offsets deleted (ErrOffsetOutOfRange).
func (p *Producer) LastPosition() (position []byte, found bool, err error) {
	if p.log.isClosed.Load() {
		return nil, false, ErrClosed
	}
	p.name.mu.Lock()
	defer p.name.mu.Unlock()
	s := p.log.nameState(p.name.id)
	return p.lastPosition(&s)
}

// lastPosition is LastPosition for a caller that holds name.mu.
func (p *Producer) lastPosition(s *nameState) (position []byte, found bool, err error) {
	last, ok, err := p.lastPositioned(s)
	if err != nil || !ok {
		return nil, false, err
	}
	b, err := p.log.batchAt(last)
	if err != nil {
		return nil, false, fmt.Errorf("wal: last position of producer %q: %w", p.name.name, err)
	}
	for r, err := range b.Records(p.log.limits()) {
		if err != nil {
			return nil, false, fmt.Errorf("wal: last position of producer %q: offset %d: %w", p.name.name, last, err)
		}
		if r.Offset == last {
			position, found = positionOf(r.Headers)
			return position, found, nil
		}
	}
	// Our own compaction keeps it, a broker's does not.
	return nil, false, fmt.Errorf("%w: wal: last position of producer %q: compaction has removed the record at offset %d",
		ErrOffsetOutOfRange, p.name.name, last)
}

// lastPositioned is the last offset of the name that counts: of its last durable batch, or in a transactional name of the last
// transaction that was committed. The caller holds name.mu.
func (p *Producer) lastPositioned(s *nameState) (last int64, ok bool, err error) {
	transactional, err := p.log.isTransactional(p.name, s)
	if err != nil {
		return noOffset, false, err
	}
	if transactional {
		return p.lastCommitted(s)
	}
	end, ok := p.durableEnd(s)
	return end.last, ok, nil
}

func positionOf(headers []record.Header) (position []byte, found bool) {
	for _, h := range headers {
		if h.Key == PositionHeader {
			position, found = bytes.Clone(h.Value), true
		}
	}
	return position, found
}
