package wal

import (
	"fmt"
	"math"
	"time"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
)

// Origin says who appends, which decides how much is checked.
type Origin = producerstate.Origin

// The origins of an append. The zero value checks most.
const (
	Client      = producerstate.Client      // a producer: epoch, sequence and transaction are checked
	Coordinator = producerstate.Coordinator // a group or transaction coordinator: no sequences
	Replication = producerstate.Replication // a leader that has already checked
	Raft        = producerstate.RaftLeader  // the metadata log
)

// NoTransactionVersion is the transaction version of an append that ends no transaction.
const NoTransactionVersion = producerstate.NoTransactionVersion

// Guard is what VerifyTransaction hands out and the first append of a transaction must bring back.
type Guard = producerstate.Guard

// LeaderAppend says how a leader appends. The zero value is an append of a producer in leader epoch 0.
type LeaderAppend struct {
	LeaderEpoch int32
	Origin      Origin
	Guard       Guard // of VerifyTransaction, where Options.VerifyTransactions asks for it

	// TransactionVersion of the transaction that an end-transaction marker ends, 0, 1 or 2: it decides how the marker's
	// epoch is checked (KIP-890, KIP-1228). It means nothing for other batches; NoTransactionVersion says so.
	TransactionVersion int8
}

// AppendInfo is the result of an append.
type AppendInfo struct {
	FirstOffset   int64 // −1 if nothing was appended
	LastOffset    int64
	MaxTimestamp  int64 // milliseconds
	LogAppendTime int64 // milliseconds; −1 unless the log stamps its own time or the append is a duplicate
	LogStart      int64
	LeaderEpoch   int32 // of the last batch as it was sent
	Bytes         int   // of the whole batches that were sent

	// Duplicate says that the batch was stored before. The offsets are those it got then, LogAppendTime is its
	// timestamp, and nothing was written.
	Duplicate bool
}

// AppendAsLeader checks a batch as the leader of a partition does, gives it the next offsets and stores it. The log
// owns batches until the call returns and rewrites the header meanwhile; when it returns, with an error or without, they
// are as they were, so that the same bytes may be sent again. It waits until the batch is as durable as Options.Sync
// promises; so does the answer to a duplicate.
//
// A batch is one v2 batch with base offset 0; a buffer without a whole batch appends nothing. With the origin Raft there
// may be several, which keep their offsets and must carry LeaderEpoch. An error means that nothing was stored, except ErrFailed, which leaves it open until the log is opened again: a retry then is either
// found as a duplicate or stored. Kafka: UnifiedLog.appendAsLeader.
func (l *Log) AppendAsLeader(batches []byte, o LeaderAppend) (AppendInfo, error) {
	info, ticket, err := l.appendAsLeader(batches, o, false)
	if err != nil {
		return AppendInfo{}, err
	}
	return info, l.acknowledge(ticket)
}

// appendAsLeader accepts the batch; the caller waits for the ticket. byClock makes segments roll by the append clock
// instead of the times in the records.
func (l *Log) appendAsLeader(p []byte, o LeaderAppend, byClock bool) (info AppendInfo, ticket uint64, err error) {
	if err := l.writable(); err != nil {
		return info, 0, err
	}
	if o.Origin == Raft {
		return l.appendAsSent(p, Raft, o.LeaderEpoch)
	}
	set := l.settings()
	a, err := analyze(p, set, o.Origin, o.LeaderEpoch, false)
	if err != nil || a.batches == 0 {
		return l.nothing(&a), 0, err
	}
	// What is written in there is of this one try: the offsets, and in a log that stamps its own time even the type of the
	// timestamps, for which the batch would be refused the next time. Bytes that are stored were copied before.
	var sent [record.Overhead]byte
	n := copy(sent[:], a.bytes)
	defer func() { copy(a.bytes, sent[:n]) }()
	now := l.opts.Now()
	c, err := check(&a, set, o.Origin, now)
	if err != nil {
		return info, 0, err
	}
	info = AppendInfo{MaxTimestamp: c.maxTimestamp, LogAppendTime: c.appendTime, LeaderEpoch: a.lastEpoch, Bytes: len(a.bytes)}
	w := write{bytes: c.bytes, maxTimestamp: c.maxTimestamp, epoch: o.LeaderEpoch, records: c.records, leader: true,
		origin: o.Origin, guard: o.Guard, version: o.TransactionVersion, now: now, byClock: byClock}
	ticket, err = l.write(&w, &info)
	return info, ticket, err
}

// AppendAsFollower stores batches with the offsets and leader epochs that they carry, as a replica of a leader does.
// Batches of a leader epoch above leaderEpoch, the one the caller fetched with, are left out with all that follow.
// Offsets may jump up; an append that begins below the log end is an *UnexpectedOffsetError. Ownership, durability and
// errors are those of AppendAsLeader. Kafka: UnifiedLog.appendAsFollower.
func (l *Log) AppendAsFollower(batches []byte, leaderEpoch int32) (AppendInfo, error) {
	if err := l.writable(); err != nil {
		return AppendInfo{}, err
	}
	info, ticket, err := l.appendAsSent(batches, Replication, leaderEpoch)
	if err != nil {
		return AppendInfo{}, err
	}
	return info, l.acknowledge(ticket)
}

// appendAsSent accepts batches with the offsets and leader epochs that they carry; the caller waits for the ticket.
func (l *Log) appendAsSent(p []byte, origin Origin, leaderEpoch int32) (info AppendInfo, ticket uint64, err error) {
	a, err := analyze(p, l.settings(), origin, leaderEpoch, true)
	if err != nil || a.batches == 0 {
		return l.nothing(&a), 0, err
	}
	info = AppendInfo{FirstOffset: a.firstOrLastOfFirst(), LastOffset: a.lastOffset, MaxTimestamp: a.maxTimestamp,
		LogAppendTime: record.NoTimestamp, LeaderEpoch: a.lastEpoch, Bytes: len(a.bytes)}
	w := write{bytes: a.bytes, maxTimestamp: a.maxTimestamp, origin: origin, now: l.opts.Now(),
		first: a.firstOrLastOfFirst(), last: a.lastOffset, rollTo: a.firstOffset}
	if a.firstOffset == noOffset {
		// The true first offset of an old batch is hidden in it; this one lies at or below it, as no segment spans more.
		w.rollTo = a.lastOffset - math.MaxInt32
	}
	ticket, err = l.write(&w, &info)
	return info, ticket, err
}

func (l *Log) nothing(a *analysis) AppendInfo {
	return AppendInfo{FirstOffset: noOffset, LastOffset: noOffset, MaxTimestamp: a.maxTimestamp,
		LogAppendTime: record.NoTimestamp, LogStart: l.visible.load().logStart, LeaderEpoch: a.lastEpoch}
}

// write is one append on its way through the lock.
type write struct {
	bytes        []byte
	maxTimestamp int64
	leader       bool // offsets and leader epoch are given here
	epoch        int32
	records      int64
	origin       Origin
	guard        Guard
	version      int8
	now          time.Time
	byClock      bool

	first, last, rollTo int64 // offsets, known from the start for a follower
}

// write stores the batches, or finds that they are stored. The ticket is the one to wait for.
func (l *Log) write(w *write, info *AppendInfo) (ticket uint64, err error) {
	defer l.runJobs()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.Sync == SyncCommit && (l.groupFull(len(w.bytes)) || l.needsRoll(w)) {
		if err := l.drainForAppend(); err != nil {
			return 0, err
		}
	}
	if err := l.usable(); err != nil {
		return 0, err
	}
	if err := l.assignOffsets(w); err != nil {
		return 0, err
	}
	info.FirstOffset, info.LastOffset, info.LogStart = w.first, w.last, l.ends.logStart
	if err := l.assignEpochs(w); err != nil {
		return 0, err
	}
	if most := l.settings().SegmentBytes; len(w.bytes) > int(most) {
		return 0, fmt.Errorf("%w: %d bytes, SegmentBytes is %d", ErrBatchTooLarge, len(w.bytes), most)
	}
	if err := l.promise(w); err != nil {
		return 0, err
	}
	if err := l.makeRoom(w); err != nil {
		return 0, err
	}
	duplicate, found, err := l.analyzeProducers(w)
	if err != nil {
		return 0, err
	}
	if found {
		info.FirstOffset, info.LastOffset = duplicate.FirstOffset(), duplicate.LastOffset
		info.LogAppendTime, info.Duplicate = duplicate.Timestamp, true
		return l.tickets.Load(), nil
	}
	if err := l.store(w); err != nil {
		return 0, err
	}
	l.bytesSinceCheckpoint += int64(len(w.bytes))
	l.appendedBytes += int64(len(w.bytes))
	l.noteWork()
	if l.opts.Sync == SyncInterval && l.appendedBytes-l.syncedBytes >= l.settings().SyncBytes {
		l.kickBackground()
	}
	return l.tickets.Load(), nil
}

// assignOffsets gives a leader's batch its offsets, and holds a follower's against the log end. The caller holds mu.
func (l *Log) assignOffsets(w *write) error {
	if !w.leader {
		if w.first < l.end.offset {
			return &UnexpectedOffsetError{First: w.first, Last: w.last, LogEnd: l.end.offset}
		}
		return nil
	}
	if w.epoch < 0 {
		return fmt.Errorf("%w: leader epoch %d is negative", ErrInvalidArgument, w.epoch)
	}
	w.first, w.rollTo = l.end.offset, l.end.offset
	w.last = w.first + w.records - 1
	if w.last < w.first || w.last == math.MaxInt64 {
		return fmt.Errorf("%w: no offset is left behind %d", ErrOffsetOutOfRange, w.first)
	}
	b := record.Batch(w.bytes)
	b.SetLastOffset(w.last)
	b.SetPartitionLeaderEpoch(w.epoch)
	return nil
}

// analyzeProducers holds the batches against what is known of their producers, and changes nothing. The caller holds mu.
func (l *Log) analyzeProducers(w *write) (duplicate producerstate.BatchMetadata, found bool, err error) {
	l.producers.Prepare(&l.staging, producerstate.AppendOptions{
		Origin: w.origin, Guard: w.guard, TransactionVersion: w.version, Clock: w.now.UnixMilli()})
	position := l.end.position
	for b, err := range record.All(w.bytes) {
		if err != nil {
			return duplicate, false, err
		}
		at := producerstate.OffsetMetadata{Offset: b.BaseOffset(), SegmentBase: l.active.BaseOffset(), Position: position}
		duplicate, found, err = l.staging.Append(b, at)
		if err != nil || found {
			return duplicate, found, err
		}
		position += int64(b.Size())
	}
	return duplicate, false, nil
}

// store writes the batches, or puts them into the group that is written next, and then makes everything else follow:
// ends, index entries, producers, transactions. The caller holds mu. What fails before the first byte leaves the log as
// it was; what fails later makes it fail for good.
func (l *Log) store(w *write) error {
	if err := l.reserve(len(w.bytes)); err != nil {
		return err
	}
	if l.opts.Sync == SyncCommit {
		l.stage(w.bytes)
	} else if err := l.active.WriteAt(w.bytes, l.end.position); err != nil {
		l.fail(fmt.Errorf("wal: append: %w", err))
		return l.failure()
	}
	l.tickets.Add(1)
	for b := range record.All(w.bytes) {
		l.note(b)
	}
	l.end.offset = w.last + 1
	l.newest = max(l.newest, w.maxTimestamp)
	l.clock = max(l.clock, w.now.UnixMilli())
	if l.opts.Sync != SyncCommit {
		l.ends.end = l.end // the first unstable offset is looked up below it; readers see both at once
	}
	if err := l.publishProducers(); err != nil {
		l.fail(err)
		return l.failure()
	}
	if l.opts.Sync == SyncCommit {
		l.staged()
		return nil
	}
	l.publishEnd(l.end)
	return nil
}

// note does the bookkeeping for one batch at the log end. The caller holds mu.
func (l *Log) note(b record.Batch) {
	if err := l.active.Note(b, l.end.position); err != nil {
		// An index is derived from the log: without the entry a look-up reads a little more.
		l.warn("index entry", err)
	}
	l.last = b.Identity(l.active.BaseOffset(), l.end.position)
	l.end.position += int64(b.Size())
}

// publishProducers makes the staged changes of producers and transactions real. The caller holds mu.
func (l *Log) publishProducers() error {
	l.producers.Publish(&l.staging)
	for _, c := range l.staging.Completed() {
		stable := l.producers.LastStableOffset(c)
		if c.Aborted {
			t := index.AbortedTxn{ProducerID: c.ProducerID, FirstOffset: c.FirstOffset, LastOffset: c.LastOffset, LastStableOffset: stable}
			if err := l.active.AppendAborted(t); err != nil {
				return fmt.Errorf("wal: transaction index: %w", err)
			}
			l.txns.all.Add(t)
		}
		if err := l.producers.CompleteTxn(c); err != nil {
			return err
		}
	}
	l.producers.UpdateMapEndOffset(l.end.offset)
	l.updateUnstable()
	return nil
}
