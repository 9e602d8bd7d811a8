package wal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/wal"
)

// A program that restarts does not know which of its records arrived. Under a name it just goes on, and appends
// again whatever it is not sure of: each record is stored once.
func ExampleProducer() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	line := func(n uint64) wal.Record { return wal.Record{Value: fmt.Appendf(nil, "line %d", n)} }
	run := func(from, to uint64) {
		l, err := wal.Open(context.Background(), dir, wal.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer l.Close()
		p, err := l.Producer("importer", wal.ProducerOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("next is", p.NextSequence())
		for n := from; n < to; n += 2 {
			r, err := p.AppendAt(n, line(n), line(n+1))
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("lines %d and %d: %d were stored before\n", n, n+1, r.Skipped)
		}
		if _, err := p.AppendAt(100, line(100)); errors.Is(err, wal.ErrCountGap) {
			fmt.Println(err)
		}
	}
	run(0, 4)
	run(1, 5) // begins too early, and divides the lines in another way

	l, err := wal.Open(context.Background(), dir, wal.Options{ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for s, err := range l.Records(0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", s.Offset, s.Value)
	}
	// Output:
	// next is 0
	// lines 0 and 1: 0 were stored before
	// lines 2 and 3: 0 were stored before
	// wal: producer "importer": append at count 100, but the next one is 4: missing are 96
	// next is 4
	// lines 1 and 2: 2 were stored before
	// lines 3 and 4: 1 were stored before
	// wal: producer "importer": append at count 100, but the next one is 5: missing are 95
	// 0: line 0
	// 1: line 1
	// 2: line 2
	// 3: line 3
	// 4: line 4
}

// The positions of a database's change stream cannot be counted. They are stored with the records, so that the two never
// come apart.
func ExampleProducer_AppendWithPosition() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	for _, change := range []struct{ position, row string }{{"0/16B3748", "insert 1"}, {"0/16B3802", "delete 1"}} {
		l, err := wal.Open(context.Background(), dir, wal.Options{})
		if err != nil {
			log.Fatal(err)
		}
		p, err := l.Producer("orders-table", wal.ProducerOptions{})
		if err != nil {
			log.Fatal(err)
		}
		position, found, err := p.LastPosition()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("go on behind %q (%v)\n", position, found)
		if _, err := p.AppendWithPosition([]byte(change.position), wal.Record{Value: []byte(change.row)}); err != nil {
			log.Fatal(err)
		}
		l.Close()
	}
	// Output:
	// go on behind "" (false)
	// go on behind "0/16B3748" (true)
}
