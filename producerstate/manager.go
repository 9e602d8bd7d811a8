package producerstate

import (
	"iter"
	"slices"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// Manager holds the producer state of one partition log and its snapshot files (Kafka: ProducerStateManager). Its methods
// must not run at once: the log calls them under the lock that orders its appends. A Frozen may be written meanwhile.
type Manager struct {
	fsys   vfs.FS
	dir    string
	config Config

	table         *table
	verifications verifications
	open          openTxns
	decided       decidedTxns
	named         names
	snapshots     []int64 // offsets of the snapshot files, ascending
	damaged       []int64 // of those, the ones that ReadOnly kept from being removed

	mapEnd          int64 // the state reflects all offsets below it
	lastSnapshot    int64 // no snapshot is taken at or below it
	newestClock     int64 // greatest append clock seen, record.NoTimestamp: none
	newestTimestamp int64 // greatest batch or marker time seen, record.NoTimestamp: none
	sweepNext       uint32
}

// Open returns an empty Manager for the log in dir and lists the snapshots that are there. It reads none of them: Restore
// or TruncateAndReload does. It changes nothing in the directory.
func Open(fsys vfs.FS, dir string, c Config) (*Manager, error) {
	m := &Manager{
		fsys: fsys, dir: dir, config: c, table: newTable(),
		newestClock: record.NoTimestamp, newestTimestamp: record.NoTimestamp,
	}
	m.verifications.lastGuard = c.GuardsAbove
	m.config.Files = nil
	return m, m.relist(c.Files)
}

// relist takes the snapshots from a listing of the directory, which is made if files is nil.
func (m *Manager) relist(files []vfs.DirEntry) error {
	files, err := list(m.fsys, m.dir, files)
	if err != nil {
		return err
	}
	m.snapshots = m.snapshots[:0]
	for _, p := range pairsIn(files) {
		if p.HasSnapshot {
			m.snapshots = append(m.snapshots, p.Offset)
		}
	}
	return nil
}

// Configure takes over the settings of c that may change at run time: ProducerIDExpiration, MaxTransactionTimeout,
// SkipVerification and UnknownProducers. The others stay.
func (m *Manager) Configure(c Config) {
	m.config.ProducerIDExpiration, m.config.MaxTransactionTimeout = c.ProducerIDExpiration, c.MaxTransactionTimeout
	m.config.SkipVerification, m.config.UnknownProducers = c.SkipVerification, c.UnknownProducers
}

// AllowChanges ends ReadOnly, removes the damaged snapshots that were met meanwhile, and lists those that are there now;
// files is what the directory holds, if it is known and not nil.
func (m *Manager) AllowChanges(files []vfs.DirEntry) error {
	m.config.ReadOnly = false
	for _, o := range m.damaged {
		if err := m.DeleteSnapshot(o); err != nil {
			return err
		}
	}
	if len(m.damaged) > 0 {
		files = nil
	}
	m.damaged = nil
	return m.relist(files)
}

// LastEntry returns a copy of what is known of a producer (Kafka: lastEntry).
func (m *Manager) LastEntry(id int64) (Entry, bool) {
	slot, ok := m.table.find(id)
	if !ok {
		return Entry{}, false
	}
	return m.table.at(slot).entry(), true
}

// Active yields all known producers in no meaningful order (Kafka: activeProducers). The loop must not change the state.
func (m *Manager) Active() iter.Seq[Entry] { return entries(m.table.chunks) }

func entries(chunks [][]producer) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for p := range all(chunks) {
			if !yield(p.entry()) {
				return
			}
		}
	}
}

// Len returns how many producers are known.
func (m *Manager) Len() int { return m.table.live }

// IsEmpty tells whether no producer is known and no transaction open (Kafka: isEmpty).
func (m *Manager) IsEmpty() bool { return m.table.live == 0 && m.decided.len() == 0 }

// MapEndOffset returns the offset up to which the state reflects the log (Kafka: mapEndOffset).
func (m *Manager) MapEndOffset() int64 { return m.mapEnd }

// UpdateMapEndOffset says that the state now reflects all offsets below offset (Kafka: updateMapEndOffset). It is called
// after each append, also of batches without producers, before a snapshot at a roll, and while a log is replayed.
func (m *Manager) UpdateMapEndOffset(offset int64) { m.mapEnd = offset }

// NoteTime tells of a time in milliseconds that the log's clock is known to have reached, for instance what the log
// itself keeps of its last run.
func (m *Manager) NoteTime(ms int64) { m.newestClock = max(m.newestClock, ms) }

// NewestTime returns the newest time that the log is known to have reached, or record.NoTimestamp: the greatest clock of
// an append, or where none is known, the greatest timestamp of a batch.
func (m *Manager) NewestTime() int64 {
	if m.newestClock >= 0 {
		return m.newestClock
	}
	return m.newestTimestamp
}

// Stats is a Manager's size in numbers.
type Stats struct {
	// Producers is the number of producers known.
	Producers int
	// OpenTxns is the number of open transactions.
	OpenTxns int
	// DecidedTxns is the number of transactions ended above the high watermark.
	DecidedTxns int
	// Verifications is the number of verifications not yet used.
	Verifications int
	// Named is the number of named producers.
	Named int
	// TableBytes is the memory that the producers take, in bytes.
	TableBytes int64
	// Snapshots is the number of snapshot files.
	Snapshots int
}

// Stats returns the current numbers.
func (m *Manager) Stats() Stats {
	return Stats{
		Producers: m.table.live, OpenTxns: m.open.len(), DecidedTxns: m.decided.len(),
		Verifications: len(m.verifications.byID), Named: len(m.named.list), TableBytes: m.table.bytes(),
		Snapshots: len(m.snapshots),
	}
}

func (m *Manager) report(k FindingKind, h *header, got, current int64) {
	if m.config.Report != nil {
		m.config.Report(Finding{Kind: k, ProducerID: h.id, Offset: h.offset, Got: got, Current: current})
	}
}

func (m *Manager) reportSnapshot(offset int64, err error) {
	if m.config.Report != nil {
		m.config.Report(Finding{Kind: SnapshotRejected, ProducerID: record.NoProducerID, Offset: offset, Err: err})
	}
}

// clearState forgets all producers and transactions. Verifications stay: they are about appends to come.
func (m *Manager) clearState() {
	m.table = newTable()
	m.open.clear()
	m.decided.clear()
	m.named = names{}
	m.newestTimestamp = record.NoTimestamp
	m.sweepNext = 0
}

// Restore replaces the state by one that was read from files: producers, open transactions, named producers. The state
// then reflects the log up to s.Offset. s must not be used afterwards.
func (m *Manager) Restore(s *State) {
	m.clearState()
	m.table = s.table
	m.named = names{list: s.Named}
	m.named.reindex()
	for p := range all(m.table.chunks) {
		m.noteLoaded(p)
	}
	m.newestClock = max(m.newestClock, s.NewestClock)
	m.mapEnd, m.lastSnapshot = s.Offset, s.Offset
}

// noteLoaded registers the transaction of a producer that was put into the table.
func (m *Manager) noteLoaded(p *producer) {
	if p.txnFirst >= 0 {
		m.open.put(p.id, OffsetOnly(p.txnFirst))
	}
	m.newestTimestamp = max(m.newestTimestamp, p.lastTimestamp)
	m.newestClock = max(m.newestClock, p.appendClock)
}

// sortedInsert enters an offset into an ascending list without repeating it.
func sortedInsert(list []int64, offset int64) []int64 {
	i, found := slices.BinarySearch(list, offset)
	if found {
		return list
	}
	return slices.Insert(list, i, offset)
}
