package wal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/wal"
)

// Read what another process writes, while it does. Here the writer is in the same process; nothing but the directory
// connects the two.
func ExampleLog_Refresh() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	writer, err := wal.Open(context.Background(), dir, wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Close()
	reader, err := wal.Open(context.Background(), dir, wal.Options{ReadOnly: true}) // takes no lock, changes nothing
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()

	if _, err := writer.Append(wal.Record{Value: []byte("one")}, wal.Record{Value: []byte("two")}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the reader knows offsets up to", reader.Offsets().LogEnd)
	if err := reader.Refresh(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("and after a look up to", reader.Offsets().LogEnd)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for s, err := range reader.Tail(ctx, 0) { // looks by itself
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", s.Offset, s.Value)
		switch s.Offset {
		case 1:
			if _, err := writer.Append(wal.Record{Value: []byte("three")}); err != nil {
				log.Fatal(err)
			}
		case 2:
			cancel()
		}
	}
	// Output:
	// the reader knows offsets up to 0
	// and after a look up to 2
	// 0: one
	// 1: two
	// 2: three
}
