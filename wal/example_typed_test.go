package wal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/wal"
)

// Append and read values of a type. A nil value, which deletes a key in a compacted log, is said beside it.
func ExampleTyped() {
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

	type price struct{ Cents int }
	type entry = wal.TypedRecord[string, price]
	prices := wal.NewTyped[string, price](l, wal.String{}, wal.JSON[price]{})
	if _, err := prices.Append(entry{Key: "apple", Value: price{30}}, entry{Key: "pear", Value: price{45}}, entry{Key: "apple", NoValue: true}); err != nil {
		log.Fatal(err)
	}
	for r, err := range prices.Records(0) {
		if err != nil {
			log.Fatal(err)
		}
		if r.NoValue {
			fmt.Println(r.Key, "is gone")
			continue
		}
		fmt.Println(r.Key, r.Value.Cents)
	}
	// Output:
	// apple 30
	// pear 45
	// apple is gone
}

// Get one record by its offset, and tell why there is none.
func ExampleLog_Get() {
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

	if _, err := l.Append(wal.Record{Value: []byte("one")}); err != nil {
		log.Fatal(err)
	}
	r, err := l.Get(0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", r.Value)
	_, err = l.Get(1)
	fmt.Println(errors.Is(err, wal.ErrOffsetOutOfRange))
	// Output:
	// one
	// true
}
