package wal_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/wal"
)

// Records that belong together count together: a program that dies between them leaves none.
func ExampleProducer_Begin() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	l, err := wal.Open(context.Background(), dir, wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	p, err := l.Producer("bank", wal.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	transfer := func(position string, done bool) {
		txn, err := p.Begin()
		if err != nil {
			log.Fatal(err)
		}
		if _, err := txn.Append(wal.Record{Value: []byte(position + ": from Ann")}); err != nil {
			log.Fatal(err)
		}
		if _, err := txn.AppendWithPosition([]byte(position), wal.Record{Value: []byte(position + ": to Bob")}); err != nil {
			log.Fatal(err)
		}
		if done {
			err = txn.Commit()
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	transfer("order 1", true)
	transfer("order 2", false)
	if err := l.Flush(); err != nil {
		log.Fatal(err)
	}
	held, _ := l.HeldBack()
	fmt.Printf("readers wait at %d for %s\n", held.LastStable, held.Transaction.Name)
	if err := l.Close(); err != nil { // the program ends in the middle of a transaction
		log.Fatal(err)
	}

	if l, err = wal.Open(context.Background(), dir, wal.Options{}); err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for s, err := range l.Records(0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", s.Offset, s.Value)
	}
	if p, err = l.Producer("bank", wal.ProducerOptions{}); err != nil {
		log.Fatal(err)
	}
	position, _, err := p.LastPosition()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("go on behind %s\n", position)
	// Output:
	// readers wait at 3 for bank
	// 0: order 1: from Ann
	// 1: order 1: to Bob
	// go on behind order 1
}
