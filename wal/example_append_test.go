package wal_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/wal"
)

// Append records and read them back. When Append returns, they are on disk.
func Example() {
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

	r, err := l.Append(
		wal.Record{Key: []byte("lamp"), Value: []byte("on")},
		wal.Record{Key: []byte("door"), Value: []byte("open"), Headers: []record.Header{{Key: "by", Value: []byte("eve")}}},
	)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored at", r.First, "to", r.Last)

	for s, err := range l.Records(0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s=%s\n", s.Offset, s.Key, s.Value)
	}
	// Output:
	// stored at 0 to 1
	// 0: lamp=on
	// 1: door=open
}

// Many appends in flight from one goroutine share few syncs.
func ExampleLog_AppendAsync() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	l, err := wal.Open(ctx, dir, wal.Options{Compression: wal.Compression{Codec: record.Zstd}})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	var flying []*wal.Pending
	for i := range 1000 {
		flying = append(flying, l.AppendAsync(wal.Record{Value: fmt.Appendf(nil, "line %d", i)}))
	}
	var last wal.Result
	for _, p := range flying {
		if last, err = p.Wait(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("on disk up to offset", last.Last)
	// Output: on disk up to offset 999
}
