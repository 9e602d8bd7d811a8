package wal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/wal"
)

// Follow a log that grows, until somebody ends it.
func ExampleLog_Tail() {
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

	go func() {
		for _, v := range []string{"one", "two", "three"} {
			if _, err := l.Append(wal.Record{Value: []byte(v)}); err != nil {
				log.Fatal(err)
			}
		}
	}()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for s, err := range l.Tail(ctx, 0) {
		if errors.Is(err, context.Canceled) {
			fmt.Println("ended")
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", s.Offset, s.Value)
		if s.Offset == 2 {
			cancel()
		}
	}
	// Output:
	// 0: one
	// 1: two
	// 2: three
	// ended
}

// Bytes that are damaged cost the records that they held, and no others.
func ExampleUnreadableError() {
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
	for _, v := range []string{"one", "two", "three"} {
		if _, err := l.Append(wal.Record{Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}
	damageSecondBatch(dir)

	from := int64(0)
	for from < l.Offsets().LogEnd {
		var bad *wal.UnreadableError
		for s, err := range l.Records(from) {
			if errors.As(err, &bad) {
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%d: %s\n", s.Offset, s.Value)
			from = s.Offset + 1
		}
		if bad != nil {
			fmt.Println("lost:", bad.First, "to", bad.Last)
			from = bad.Last + 1
		}
	}
	// Output:
	// 0: one
	// lost: 1 to 1
	// 2: three
}

func damageSecondBatch(dir string) {
	f, err := os.OpenFile(dir+"/00000000000000000000.log", os.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("xx"), 71+68); err != nil {
		log.Fatal(err)
	}
}
