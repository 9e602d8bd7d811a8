package wal_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/wal"
)

// Look at a directory without opening it for writing, also while somebody else does.
func ExampleStat() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	l, err := wal.Open(context.Background(), dir, wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := l.Append(wal.Record{Value: []byte("one")}, wal.Record{Value: []byte("two")}); err != nil {
		log.Fatal(err)
	}
	show := func() {
		st, err := wal.Stat(context.Background(), dir)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("offsets %d to %d, %d segment, %d bytes, closed in order: %t\n", st.Offsets.LogStart, st.Offsets.LogEnd-1, st.Segments, st.Bytes, st.Clean)
	}
	show()
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}
	show()
	// Output:
	// offsets 0 to 1, 1 segment, 81 bytes, closed in order: false
	// offsets 0 to 1, 1 segment, 81 bytes, closed in order: true
}

// Verify everything that a directory holds.
func ExampleCheck() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	l, err := wal.Open(context.Background(), dir, wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := l.Append(wal.Record{Value: []byte("one")}, wal.Record{Value: []byte("two")}); err != nil {
		log.Fatal(err)
	}
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}
	r, err := wal.Check(context.Background(), dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Batches, "batch with", r.Records, "records, healthy:", r.Healthy)
	for _, f := range r.Findings {
		fmt.Println(f.File, f.Reason)
	}
	// Output:
	// 1 batch with 2 records, healthy: true
}
