package record_test

import (
	"errors"
	"fmt"

	"github.com/oncelog/oncelog/record"
)

// A batch of two records by an idempotent producer.
func Example_build() {
	w := record.NewBuilder(record.BuilderOptions{
		Producer:    &record.Producer{ID: 4000, Epoch: 0, BaseSequence: 17},
		Compression: record.LZ4,
	})
	const now = 1700000000000 // milliseconds
	for _, value := range []string{"first", "second"} {
		if err := w.Append(now, record.Record{Key: []byte("k"), Value: []byte(value)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	b, err := w.Batch()
	if err != nil {
		fmt.Println(err)
		return
	}
	// The log that stores the batch gives it its place, without touching the checksum.
	b.SetBaseOffset(1000)
	b.SetPartitionLeaderEpoch(3)

	fmt.Println("offsets", b.BaseOffset(), "to", b.LastOffset())
	fmt.Println("sequences", b.BaseSequence(), "to", b.LastSequence())
	fmt.Println("valid:", b.Validate() == nil)
	// Output:
	// offsets 1000 to 1001
	// sequences 17 to 18
	// valid: true
}

func ExampleBatch_Records() {
	b := exampleBatch("a", "b", "c")
	if err := b.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	for r, err := range b.Records(record.Limits{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s\n", r.Offset, r.Value) // r.Value is valid until the next step
	}
	// Output:
	// 0 a
	// 1 b
	// 2 c
}

// Walking the bytes of a log whose last batch is not complete.
func ExampleAll() {
	log := append(exampleBatch("a", "b"), exampleBatch("c")...)
	log = log[:len(log)-1]

	for b, err := range record.All(log) {
		switch {
		case errors.Is(err, record.ErrTruncated):
			fmt.Println("incomplete:", err)
		case err != nil:
			fmt.Println("damaged:", err)
		default:
			fmt.Println(b.Count(), "records in", b.Size(), "bytes")
		}
	}
	// Output:
	// 2 records in 77 bytes
	// incomplete: record: batch runs past the end of its buffer: needs 69 bytes, has 68
}

func ExampleAppendEndTxnMarker() {
	p := record.Producer{ID: 4000, Epoch: 2}
	marker := record.EndTxnMarker{Type: record.Commit, CoordinatorEpoch: 9}
	b, _, err := record.Next(record.AppendEndTxnMarker(nil, p, marker, 1700000000000))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := b.EndTxnMarker()
	fmt.Println(m.Type, m.CoordinatorEpoch, err, b.Size())
	// Output: COMMIT 9 <nil> 78
}

func exampleBatch(values ...string) record.Batch {
	w := record.NewBuilder(record.BuilderOptions{})
	for _, v := range values {
		if err := w.Append(1700000000000, record.Record{Value: []byte(v)}); err != nil {
			panic(err)
		}
	}
	b, err := w.Batch()
	if err != nil {
		panic(err)
	}
	return b
}
