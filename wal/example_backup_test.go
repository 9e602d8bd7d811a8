package wal_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/oncelog/oncelog/wal"
)

// Copy a log while it is in use. The second copy into the same directory is only of what is new.
func ExampleLog_Backup() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	l, err := wal.Open(ctx, filepath.Join(dir, "events-0"), wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	for _, v := range []string{"one", "two"} {
		if _, err := l.Append(wal.Record{Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
		r, err := l.Backup(ctx, filepath.Join(dir, "backup", "events-0"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("offsets %d to %d, %d bytes copied\n", r.LogStart, r.LogEnd-1, r.BytesCopied)
	}

	// The backup is a log.
	b, err := wal.Open(ctx, filepath.Join(dir, "backup", "events-0"), wal.Options{ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	for s, err := range b.Records(0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", s.Offset, s.Value)
	}
	// Output:
	// offsets 0 to 0, 71 bytes copied
	// offsets 0 to 1, 71 bytes copied
	// 0: one
	// 1: two
}
