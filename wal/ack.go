package wal

import "fmt"

// Ack says what an append waits for, and so what its answer promises.
//
//	Ack         promise            with a caller that          a record is stored
//	AckNone     none               goes on                     at most once
//	AckSync     what Options.Sync  appends again after errors  at least once
//	AckMemory   survives kill -9   appends again after errors  at least once
//	AckDisk     survives power     appends again after errors  at least once
//	any but AckNone, and a named Producer with AppendAt or a transaction whose program appends again, after a restart too,
//	what it has no answer for: exactly once
//
// Exactly once needs a source that the program can read again from NextSequence, or from LastPosition, on. With an Ack that a
// power cut can undo these tell less after it, and the program goes on from there: still no record is stored twice, and none
// is missing in the middle.
type Ack uint8

// What an append may wait for.
const (
	// AckSync waits for what Options.Sync promises.
	AckSync Ack = iota

	// AckNone waits for nothing: an error that comes after the record got its place is seen by later appends only (ErrFailed).
	AckNone

	// AckMemory waits until the memory of the operating system has the record, so that the end of the process takes nothing back.
	// In SyncCommit that is as late as AckDisk.
	AckMemory

	// AckDisk waits until the record is on disk, in every mode. Where Options.Sync does not see to it the append itself syncs;
	// those that come together share a sync.
	AckDisk
)

// String returns the name of the value.
func (a Ack) String() string {
	switch a {
	case AckSync:
		return "AckSync"
	case AckNone:
		return "AckNone"
	case AckMemory:
		return "AckMemory"
	case AckDisk:
		return "AckDisk"
	}
	return fmt.Sprintf("Ack(%d)", uint8(a))
}

func (a Ack) validate() error {
	if a > AckDisk {
		return fmt.Errorf("%w: %v is no Ack", ErrInvalidOptions, a)
	}
	return nil
}

// AppendAck is Append that waits for ack instead of what Options.Sync promises. With AckNone the result says where the records
// are if nothing goes wrong; in SyncCommit readers see them when they are on disk.
func (l *Log) AppendAck(ack Ack, recs ...Record) (Result, error) {
	if err := ack.validate(); err != nil {
		return Result{}, err
	}
	r, ticket, err := l.accept(recs, &batchOptions{})
	if err != nil {
		return Result{}, err
	}
	if ack == AckNone {
		l.pend(r, ticket, nil, AckSync) // somebody has to sync
		return r, nil
	}
	if err := l.await(ticket, ack); err != nil {
		return Result{}, err
	}
	return r, nil
}

// waits tells whether an append with an ack has anything to wait for.
func (l *Log) waits(ack Ack) bool {
	return ack == AckDisk || l.opts.Sync == SyncCommit && ack != AckNone
}

// promised is the end of what appends with an ack have been told.
func (l *Log) promised(ack Ack) int64 {
	end := l.visible.load().end.offset
	if ack == AckDisk && l.opts.Sync != SyncCommit {
		l.mu.Lock()
		defer l.mu.Unlock()
		end = min(end, l.durable.Offset)
	}
	return end
}

// await returns when the append with the ticket is what ack promises, or cannot be any more.
func (l *Log) await(ticket uint64, ack Ack) error {
	switch {
	case ticket == 0 || !l.waits(ack):
		return nil
	case l.opts.Sync == SyncCommit:
		return l.waitDurable(ticket)
	}
	return l.syncFor(ticket)
}

// acknowledge waits for what Options.Sync promises.
func (l *Log) acknowledge(ticket uint64) error { return l.await(ticket, AckSync) }

// syncFor syncs the log, in the modes that do not do it for each append, unless that has happened since the append with the
// ticket. Those that wait for the lock meanwhile find that it has.
func (l *Log) syncFor(ticket uint64) error {
	l.maintenance.Lock()
	defer l.maintenance.Unlock()
	if l.commit.isDurable(ticket) {
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.failure() // of the sync of a segment that was rolled
}
