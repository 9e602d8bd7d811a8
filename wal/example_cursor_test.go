package wal_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/oncelog/oncelog/wal"
)

// Process records one after the other, and after a restart go on behind the last one that was done.
func ExampleLog_Cursor() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	run := func(most int) {
		l, err := wal.Open(context.Background(), dir, wal.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer l.Close()
		if l.Offsets().LogEnd == 0 {
			for _, v := range []string{"one", "two", "three"} {
				if _, err := l.Append(wal.Record{Value: []byte(v)}); err != nil {
					log.Fatal(err)
				}
			}
		}
		c, err := l.Cursor("invoices", wal.CursorOptions{Pin: true}) // retention waits for this reader
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("goes on at", c.Start().Offset)
		for r, err := range c.Records() {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("  %s\n", r.Value)
			if err := c.Commit(r.Offset + 1); err != nil {
				log.Fatal(err)
			}
			if most--; most == 0 {
				break
			}
		}
	}
	run(2)
	run(2)
	// Output:
	// goes on at 0
	//   one
	//   two
	// goes on at 2
	//   three
}
