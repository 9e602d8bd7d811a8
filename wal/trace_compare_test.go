package wal

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/producerstate"
	"github.com/oncelog/oncelog/segment"
)

// mergeStruct copies the fields of from that are not nil.
func mergeStruct(to, from any) {
	a, b := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range a.NumField() {
		if !b.Field(i).IsNil() {
			a.Field(i).Set(b.Field(i))
		}
	}
}

var indexName = regexp.MustCompile(`\.(time)?index(\.deleted)?$`)

// state compares all there is to see of the log, in memory and on disk.
func (r *replayer) state(op *kafkatest.Op) string {
	return outcome(r, op, nil, func(want *kafkatest.StateOutcome) kafkatest.StateOutcome {
		got := r.memory()
		if !r.tr.CompareBytes {
			// Where segments roll depends on the compressor.
			got.Segments, got.LastSnapshot, got.RecoveryPoint, got.Files = want.Segments, want.LastSnapshot, want.RecoveryPoint, want.Files
			return got
		}
		got.Files = r.files(want)
		return got
	})
}

func (r *replayer) memory() kafkatest.StateOutcome {
	l := r.log
	o := l.Offsets()
	got := kafkatest.StateOutcome{
		Failure: succeeded, LogStart: o.LogStart, LogEnd: o.LogEnd, HighWatermark: o.HighWatermark, LSO: o.LastStable,
		FirstUnstable: l.ends.unstable.offset, RecoveryPoint: o.RecoveryPoint,
		MapEnd: l.producers.MapEndOffset(), LastSnapshot: l.producers.LastSnapshotOffset(),
		Segments: [][2]int64{}, LeaderEpochs: [][2]int64{}, Producers: []kafkatest.ProducerState{},
		OngoingTxns: [][2]int64{}, UnreplicatedTxns: [][3]int64{}, Verifications: []kafkatest.Verification{},
	}
	for s := range l.set.All() {
		size, err := s.Size()
		r.must(err)
		got.Segments = append(got.Segments, [2]int64{s.BaseOffset(), size})
	}
	for _, e := range l.epochs.Entries() {
		got.LeaderEpochs = append(got.LeaderEpochs, [2]int64{int64(e.Epoch), e.StartOffset})
	}
	for e := range l.Producers() {
		got.Producers = append(got.Producers, producerState(&e))
	}
	slices.SortFunc(got.Producers, byProducer)
	for _, t := range l.OpenTransactions() {
		got.OngoingTxns = append(got.OngoingTxns, [2]int64{t.ProducerID, t.FirstOffset})
	}
	for _, t := range l.producers.DecidedTxns() {
		got.UnreplicatedTxns = append(got.UnreplicatedTxns, [3]int64{t.ProducerID, t.First.Offset, t.LastOffset})
	}
	// Kafka keeps them in order of their first offsets.
	slices.SortFunc(got.UnreplicatedTxns, func(a, b [3]int64) int { return cmp.Compare(a[1], b[1]) })
	for v := range l.producers.Verifications() {
		got.Verifications = append(got.Verifications, kafkatest.Verification{ProducerID: v.ProducerID, Epoch: v.Epoch,
			LowestSequence: v.LowestSequence, SupportsEpochBump: v.SupportsEpochBump})
	}
	slices.SortFunc(got.Verifications, func(a, b kafkatest.Verification) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return got
}

func byProducer(a, b kafkatest.ProducerState) int { return cmp.Compare(a.ProducerID, b.ProducerID) }

func producerState(e *producerstate.Entry) kafkatest.ProducerState {
	p := kafkatest.ProducerState{ProducerID: e.ProducerID, Epoch: e.ProducerEpoch, LastSequence: -1, LastOffset: -1,
		LastTimestamp: e.LastTimestamp, CoordinatorEpoch: e.CoordinatorEpoch, CurrentTxnFirstOffset: e.CurrentTxnFirstOffset,
		Batches: [][5]int64{}}
	for b := range e.Batches() {
		p.Batches = append(p.Batches, [5]int64{int64(b.FirstSequence()), int64(b.LastSequence), b.FirstOffset(), b.LastOffset, b.Timestamp})
		p.LastSequence, p.LastOffset, p.OffsetDelta = b.LastSequence, b.LastOffset, b.OffsetDelta
	}
	return p
}

// files lists the directory as the trace does. Of an index that is open in Kafka the size says nothing.
func (r *replayer) files(want *kafkatest.StateOutcome) []kafkatest.StateFile {
	r.dropEmpty(want)
	expected := map[string]*kafkatest.StateFile{}
	for i := range want.Files {
		expected[want.Files[i].Name] = &want.Files[i]
	}
	used := r.indexBytes()
	entries, err := os.ReadDir(r.dir())
	r.must(err)
	files := []kafkatest.StateFile{}
	for _, e := range entries {
		// What an open sets aside is there until the next one; Kafka removes it when the delay is over.
		path := filepath.Join(r.dir(), e.Name())
		if e.Name() == lockFile || expected[e.Name()] == nil && slices.Contains(r.setAside, path) {
			continue
		}
		p, err := os.ReadFile(path)
		r.must(err)
		f := kafkatest.StateFile{Name: e.Name(), Size: int64(len(p))}
		w := expected[f.Name]
		switch plain := strings.TrimSuffix(f.Name, segment.SuffixDeleted); {
		case strings.HasSuffix(plain, ".snapshot"):
			f.Entries, f.Corrupt = snapshotEntries(p)
		case indexName.MatchString(plain):
			n, open := used[f.Name]
			if !open {
				n = usedBytes(p, plain)
			}
			f.Used = &n
			f.SHA256 = sum(p[:min(n, int64(len(p)))])
			// Kafka gives an index that it has open for writing its full size; a closed one is as long as its entries.
			if w != nil && w.Used != nil && w.Size != *w.Used {
				f.Size = w.Size
			}
			// Behind the entries of a deleted index Kafka's file still has those that a truncation dropped.
			if plain != f.Name && w != nil && w.Used != nil && n <= *w.Used {
				f.Used, f.SHA256 = w.Used, w.SHA256
			}
		case f.Name == leaderepoch.FileName && len(p) == 0 && w != nil && w.SHA256 == sum(leaderepoch.Encode(nil)):
			f = *w // Kafka writes down that there is no epoch where none was before
		default:
			f.SHA256 = sum(p)
		}
		if d := r.listed; d != nil && d.file == f.Name && w != nil && f.SHA256 != w.SHA256 {
			f, r.met = *w, true
		}
		files = append(files, f)
	}
	return files
}

// dropEmpty removes from what is expected files that hold nothing and that we do not have: those that Kafka keeps for a
// while of a segment without a batch which a roll has replaced by the same one, and time indexes made early.
func (r *replayer) dropEmpty(want *kafkatest.StateOutcome) {
	empty := map[string]bool{}
	sums := map[string]string{}
	for _, f := range want.Files {
		sums[f.Name] = f.SHA256
	}
	for _, f := range want.Files {
		stem, ok := strings.CutSuffix(f.Name, ".log"+segment.SuffixDeleted)
		if again := sums[stem+".log"]; ok && (f.Size == 0 || f.SHA256 == again) { // again: nothing but reserved space
			_, err := os.Stat(filepath.Join(r.dir(), f.Name))
			empty[stem] = err != nil
		}
	}
	want.Files = slices.DeleteFunc(want.Files, func(f kafkatest.StateFile) bool {
		stem, _, _ := strings.Cut(f.Name, ".")
		return strings.HasSuffix(f.Name, segment.SuffixDeleted) && empty[stem]
	})
	// Kafka asks an index for what ours knows without it (the greatest timestamp, that there is nothing), and so makes the
	// file early.
	want.Files = slices.DeleteFunc(want.Files, func(f kafkatest.StateFile) bool {
		_, err := os.Stat(filepath.Join(r.dir(), f.Name))
		return err != nil && indexName.MatchString(f.Name) && f.Used != nil && *f.Used == 0
	})
}

// indexBytes are the bytes of valid entries of the indexes of each segment, by file name.
func (r *replayer) indexBytes() map[string]int64 {
	used := map[string]int64{}
	for s := range r.log.set.All() {
		if _, err := os.Stat(s.PathOf(segment.KindOffsetIndex)); err != nil {
			continue // opening it would make it
		}
		if _, err := os.Stat(s.PathOf(segment.KindTimeIndex)); err != nil {
			continue
		}
		r.must(s.WithIndexes(func(o *index.Offset, x *index.Time, _ *index.Txn) error {
			used[segment.FileName(segment.KindOffsetIndex, s.BaseOffset())] = o.UsedBytes()
			used[segment.FileName(segment.KindTimeIndex, s.BaseOffset())] = x.UsedBytes()
			return nil
		}))
	}
	return used
}

// usedBytes is the size up to the zeros at the end, in whole entries.
func usedBytes(p []byte, name string) int64 {
	entry := 8
	if strings.HasSuffix(name, ".timeindex") {
		entry = 12
	}
	n := len(p)
	for n > 0 && p[n-1] == 0 {
		n--
	}
	return int64(min(len(p), (n+entry-1)/entry*entry))
}

// snapshotEntries decodes a snapshot, independently of the package that writes it.
func snapshotEntries(p []byte) ([]kafkatest.ProducerState, any) {
	const header, entry = 10, 46
	be := binary.BigEndian
	if len(p) < header || be.Uint16(p) != 1 || crc32.Checksum(p[6:], crc32.MakeTable(crc32.Castagnoli)) != be.Uint32(p[2:]) ||
		(len(p)-header)%entry != 0 || int(be.Uint32(p[6:])) != (len(p)-header)/entry {
		return nil, true
	}
	list := []kafkatest.ProducerState{}
	for p = p[header:]; len(p) > 0; p = p[entry:] {
		list = append(list, kafkatest.ProducerState{
			ProducerID: int64(be.Uint64(p)), Epoch: int16(be.Uint16(p[8:])), LastSequence: int32(be.Uint32(p[10:])),
			LastOffset: int64(be.Uint64(p[14:])), OffsetDelta: int32(be.Uint32(p[22:])), LastTimestamp: int64(be.Uint64(p[26:])),
			CoordinatorEpoch: int32(be.Uint32(p[34:])), CurrentTxnFirstOffset: int64(be.Uint64(p[38:])),
		})
	}
	slices.SortFunc(list, byProducer)
	return list, nil
}
