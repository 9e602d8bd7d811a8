package wal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// A server of Kafka's protocol gets ready batches. The log checks them as a partition leader does; a batch that is sent
// again is answered with the offsets it has.
func ExampleLog_AppendAsLeader() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	l, err := wal.Open(context.Background(), dir, wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	send := func(sequence int32) {
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 4000, BaseSequence: sequence}})
		for _, v := range []string{"a", "b"} {
			if err := b.Append(time.Now().UnixMilli(), record.Record{Value: []byte(v)}); err != nil {
				log.Fatal(err)
			}
		}
		batch, err := b.Batch()
		if err != nil {
			log.Fatal(err)
		}
		info, err := l.AppendAsLeader(batch, wal.LeaderAppend{LeaderEpoch: 5})
		if err != nil {
			code, name := wal.ErrorCode(err)
			fmt.Println("sequence", sequence, "refused:", code, name, errors.Is(err, wal.ErrOutOfOrderSequence))
			return
		}
		fmt.Println("sequence", sequence, "at offsets", info.FirstOffset, "to", info.LastOffset, "duplicate:", info.Duplicate)
	}
	send(0)
	send(2)
	send(0)
	send(9)

	f, err := l.Read(0, wal.ReadOptions{MaxBytes: 1 << 20, Isolation: wal.TxnCommitted})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for b, err := range f.Records.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("batch of", b.Count(), "at", b.BaseOffset(), "of leader epoch", b.PartitionLeaderEpoch())
	}
	// Output:
	// sequence 0 at offsets 0 to 1 duplicate: false
	// sequence 2 at offsets 2 to 3 duplicate: false
	// sequence 0 at offsets 0 to 1 duplicate: true
	// sequence 9 refused: 45 OUT_OF_ORDER_SEQUENCE_NUMBER true
	// batch of 2 at 0 of leader epoch 5
	// batch of 2 at 2 of leader epoch 5
}
