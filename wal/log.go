package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
)

// Log is the log of one partition. All methods may be called by any number of goroutines at once.
//
// Lock order: compacting, the mu of names or of a name, then maintenance, then the leadership of commit, then mu, then stateMu. The
// locks of commit, waiters, driver and a Pending are leaves. Readers take none, but mu where a limit's byte is not known.
type Log struct {
	fsys      vfs.FS
	dir       string
	opts      fixedOptions
	bootID    string
	pool      *segment.Pool // of all segments
	report    recovery.Report
	locks     []io.Closer
	lockIsNew bool // the lock file was made by this open

	// compacting is held by Compact from its begin to its end. Appends, reads and maintenance go on meanwhile.
	compacting sync.Mutex

	// maintenance is held by whatever syncs, seals and takes checkpoints, so that these happen in the order of the log.
	maintenance sync.Mutex

	commit  committer
	tickets atomic.Uint64 // counts appends that changed the log; changed under mu

	mu        sync.Mutex
	closed    bool                   // guarded by mu
	set       segment.Set            // guarded by mu; readers use segments
	sums      []recovery.SegmentSum  // of the first 0, 1, … segments of set; guarded by mu
	active    *segment.Segment       // guarded by mu
	end       place                  // log end, what waits for its sync included; guarded by mu
	last      record.Identity        // last batch below end; guarded by mu
	producers *producerstate.Manager // guarded by mu
	epochs    *leaderepoch.Cache
	staging   producerstate.AppendInfo // guarded by mu
	ends      ends                     // the writer's copy of visible; guarded by mu

	activeSince time.Time     // when the active segment was made or opened; guarded by mu
	jitter      time.Duration // taken off its greatest age; guarded by mu
	reserved    int64         // bytes of its file that have space; guarded by mu
	reserveStep int64         // guarded by mu
	undone      bool          // a roll was undone, and that is not durable yet; guarded by mu

	pending group  // guarded by mu
	spare   []byte // buffer of the group before; guarded by mu

	durable              position // everything below is on disk; guarded by mu
	checkpointed         position // recovery point; guarded by mu
	snapshotOffset       int64    // of the pair that belongs to it, −1 if there is none; guarded by mu
	txns                 txnSums  // guarded by mu
	bytesSinceCheckpoint int64    // guarded by mu
	appendedBytes        int64    // since the open; guarded by mu
	syncedBytes          int64    // SyncInterval and SyncNone: of those, on disk; guarded by mu
	stateSynced          int64    // durable end in the newest synced state; guarded by mu
	jobs                 []*rolled
	due                  atomic.Bool      // runJobs has something to do
	newest               int64            // greatest batch timestamp; guarded by mu
	clock                int64            // of the newest append, milliseconds; guarded by mu
	gaps                 bool             // offsets may jump; guarded by mu
	cleaned              int64            // first dirty offset, unless Kafka's checkpoint has it; guarded by mu
	compacted            int64            // compaction may have moved any batch below; guarded by mu
	replacing            bool             // compaction is renaming files; guarded by mu
	groupBound           int64            // guarded by mu
	changes              uint64           // recovery.Slot.Changes; guarded by mu
	foreign              recovery.Foreign // guarded by mu
	who                  [2]uint64        // guarded by mu
	bare                 [2]uint64        // see recovery.Slot; guarded by mu
	slotsMade            uint64           // guarded by mu

	discards []discarded // guarded by mu
	pins     pins        // guarded by mu
	opened   opened

	damaged atomic.Pointer[knownDamage] // of a read-only log, nil if there is none

	stateMu     sync.Mutex
	state       *recovery.StateFile // guarded by stateMu; nil in Compat and read-only
	slotWritten recovery.Slot       // the latest; guarded by stateMu

	segments   atomic.Pointer[segment.Set]
	visible    published
	goneBelow  atomic.Int64 // ReadOnly: the segments between the log start and this offset are gone; 0 if none are
	waiters    waiters
	failedWith atomic.Pointer[failed]
	isClosed   atomic.Bool

	inDoubt  atomic.Bool // a sync of an index or a snapshot failed: the recovery point stays where it is
	warnings atomic.Int64

	background background
	driver     driver
	names      names
	configured configured
	follow     follower // read-only
	cursors    cursors
}

// Open opens the log in dir, and creates it if dir is missing or empty. It recovers what an earlier writer left behind;
// RecoveryReport tells what was found and done. The context covers the recovery only, not the life of the log.
//
// Errors: ErrLocked if another writer is there, *recovery.RefusedError (ErrRefused) if bytes are damaged that had been
// promised, ErrNotLog if dir holds other files, ErrUnsupportedVersion, ErrInvalidOptions, and those of the file system.
// After an error nothing was changed, except that an interrupted recovery may have kept aside and cut a torn tail, and that a
// Kafka log directory around dir may have got the empty file .lock.
func Open(ctx context.Context, dir string, o Options) (*Log, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("wal: open: %w", err)
	}
	return OpenFS(ctx, vfs.OS, abs, o)
}

// OpenFS is Open on another file system. It is for the tests and the tools of this module.
func OpenFS(ctx context.Context, fsys vfs.FS, dir string, o Options) (l *Log, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l = &Log{fsys: fsys, dir: dir}
	l.configure(o)
	l.pool = segment.NewPool(l.settings().OpenSegments)
	l.commit.init()
	defer func() {
		if err != nil {
			err = errors.Join(err, l.unlockRefused())
			l = nil
		}
	}()
	if err := l.prepareDir(); err != nil {
		return l, err
	}
	if l.bootID, err = fsys.BootID(dir); err != nil {
		return l, fmt.Errorf("wal: open: %w", err)
	}
	if l.opts.ReadOnly {
		if _, _, err := l.readSlot(ctx); err != nil {
			return l, err
		}
	}
	loaded, err := recovery.Load(ctx, fsys, l.recoveryParams())
	if err != nil {
		return l, err
	}
	if err := l.adopt(loaded); err != nil {
		return l, errors.Join(err, loaded.Close())
	}
	if err := l.abortLeftOpen(); err != nil {
		return l, errors.Join(err, loaded.Close())
	}
	l.startBackground()
	return l, nil
}

func (l *Log) recoveryParams() recovery.Params {
	return recovery.Params{
		Dir: l.dir, ReadOnly: l.opts.ReadOnly, Policy: l.opts.DamagePolicy, Compat: l.opts.Compat, BootID: l.bootID,
		CheckSegments: l.settings().CheckSegments,
		Segments:      l.segmentConfig(), Producers: l.producerConfig(), Logger: l.opts.Logger, Now: l.opts.Now,
	}
}

func (l *Log) segmentConfig() segment.Config {
	o := l.settings()
	c := segment.Config{
		IndexIntervalBytes: o.IndexIntervalBytes, MaxIndexBytes: o.MaxIndexBytes,
		ReadOnly: l.opts.ReadOnly, KafkaIndexes: l.opts.Compat, Limits: l.limits, Pool: l.pool,
	}
	if o.Preallocate {
		c.Preallocate = int64(o.SegmentBytes)
	}
	return c
}

func (l *Log) producerConfig() producerstate.Config {
	o := l.settings()
	return producerstate.Config{
		ProducerIDExpiration: o.ProducerIDExpiration, MaxTransactionTimeout: o.MaxTransactionTimeout,
		SkipVerification: !o.VerifyTransactions, UnknownProducers: o.UnknownProducers, Compat: l.opts.Compat, ReadOnly: l.opts.ReadOnly,
		GuardsAbove: Guard(opens.Add(1) << 32),
	}
}

// opens counts the opens of the process. Each has guards of its own: one that a caller kept from before must not pass.
var opens atomic.Int64

// adopt takes over what recovery found, and writes down that this process is the writer now.
func (l *Log) adopt(s *recovery.State) error {
	l.report, l.state = s.Report, s.StateFile
	l.who, l.bare = recovery.Writers(&s.Foreign, &s.Foreign)
	l.groupBound = int64(l.settings().GroupBytes)
	l.takeLoaded(s)
	if l.opts.ManualHighWatermark {
		l.publish() // the high watermark has no byte yet, as in Kafka
	} else {
		l.publishEnd(l.end)
	}
	l.noteOpened(l.opts.Now())
	if l.opts.ReadOnly {
		return nil
	}
	l.countChanges(s)
	if err := l.becomeWriter(); err != nil {
		return err
	}
	if err := l.firstOpenInCompat(); err != nil {
		return err
	}
	return l.loadCursors()
}

// Dir returns the directory of the log.
func (l *Log) Dir() string { return l.dir }

// RecoveryReport tells what Open found and did.
func (l *Log) RecoveryReport() recovery.Report { return l.report }

// Close makes everything durable, writes down that the log was closed in order, and gives up the lock. The next open
// then reads no batch. The error says if any of it went wrong; the log is closed in any case, and what was acknowledged
// as durable is. A second call returns ErrClosed. Calls that wait return ErrClosed.
func (l *Log) Close() error {
	if l.isClosed.Swap(true) {
		return ErrClosed
	}
	l.stopBackground()
	l.waiters.wake()
	l.compacting.Lock() // Compact ends soon, since the log is closed
	defer l.compacting.Unlock()
	var err error
	if !l.opts.ReadOnly {
		err = l.closeWriter()
	}
	l.commit.lead()
	l.mu.Lock()
	l.closed = true
	var errs []error
	for s := range l.set.All() {
		errs = append(errs, s.Close())
	}
	for _, d := range l.discards {
		errs = append(errs, d.segment.Close()) // a reader may have opened it again
	}
	if l.state != nil {
		errs = append(errs, l.state.Close())
	}
	l.mu.Unlock()
	l.commit.fail(ErrClosed)
	l.commit.follow()
	l.waiters.wake()
	l.driver.stop()
	return errors.Join(err, errors.Join(errs...), l.unlock())
}
