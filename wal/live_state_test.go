package wal

import (
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/interop"
)

// look asks Kafka for all there is to see, and tells it as a trace does.
func (k *kafkaLog) look() (*kafkatest.StateOutcome, error) {
	s, err := k.s.State(true)
	if err != nil {
		return nil, err
	}
	o := &kafkatest.StateOutcome{
		Failure: succeeded, LogStart: s.LogStart, LogEnd: s.LogEnd, HighWatermark: s.HighWatermark, LSO: s.LastStableOffset,
		FirstUnstable: s.FirstUnstable, RecoveryPoint: s.RecoveryPoint, MapEnd: s.ProducersEnd, LastSnapshot: s.LastSnapshot,
		Segments: [][2]int64{}, LeaderEpochs: [][2]int64{}, Producers: []kafkatest.ProducerState{},
		OngoingTxns: [][2]int64{}, UnreplicatedTxns: [][3]int64{}, Verifications: []kafkatest.Verification{},
		Files: []kafkatest.StateFile{},
	}
	for _, g := range s.Segments {
		o.Segments = append(o.Segments, [2]int64{g.Base, g.Size})
	}
	for _, e := range s.LeaderEpochs {
		o.LeaderEpochs = append(o.LeaderEpochs, [2]int64{int64(e.Epoch), e.Start})
	}
	for i := range s.Producers {
		o.Producers = append(o.Producers, tracedProducer(&s.Producers[i], true))
	}
	for _, t := range s.Ongoing {
		o.OngoingTxns = append(o.OngoingTxns, [2]int64{t.Producer, t.FirstOffset})
	}
	for _, t := range s.Unreplicated {
		o.UnreplicatedTxns = append(o.UnreplicatedTxns, [3]int64{t.Producer, t.FirstOffset, t.LastOffset})
	}
	for _, v := range s.Verifications {
		o.Verifications = append(o.Verifications, kafkatest.Verification{ProducerID: v.Producer, Epoch: v.Epoch,
			LowestSequence: v.LowestSequence, SupportsEpochBump: v.SupportsEpochBump})
	}
	for i := range s.Files {
		o.Files = append(o.Files, tracedFile(&s.Files[i]))
	}
	return o, nil
}

func tracedProducer(p *interop.Producer, batches bool) kafkatest.ProducerState {
	o := kafkatest.ProducerState{ProducerID: p.ID, Epoch: p.Epoch, LastSequence: p.LastSeq, LastOffset: p.LastOffset,
		OffsetDelta: p.OffsetDelta, LastTimestamp: p.LastTimestamp, CoordinatorEpoch: p.CoordinatorEpoch,
		CurrentTxnFirstOffset: p.CurrentTxnFirstOffset}
	if batches {
		o.Batches = [][5]int64{}
		for _, b := range p.Batches {
			o.Batches = append(o.Batches, [5]int64{int64(b.FirstSeq), int64(b.LastSeq), b.FirstOffset, b.LastOffset, b.Timestamp})
		}
	}
	return o
}

func tracedFile(f *interop.File) kafkatest.StateFile {
	o := kafkatest.StateFile{Name: f.Name, Size: f.Size, SHA256: f.SHA256}
	if indexName.MatchString(f.Name) {
		o.Used = &f.Used
	}
	if f.SHA256 != "" {
		return o
	}
	if f.Corrupt != "" { // a snapshot
		o.Corrupt = true
		return o
	}
	o.Entries = []kafkatest.ProducerState{}
	for i := range f.Producers {
		o.Entries = append(o.Entries, tracedProducer(&f.Producers[i], false))
	}
	return o
}
