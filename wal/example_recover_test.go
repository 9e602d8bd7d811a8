package wal_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/oncelog/oncelog/wal"
)

// A program is killed while it writes. The next open finds what was acknowledged, cuts the half of a batch behind it, and
// tells.
func ExampleLog_RecoveryReport() {
	dir, err := os.MkdirTemp("", "oncelog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	running, left := filepath.Join(dir, "running"), filepath.Join(dir, "left")

	l, err := wal.Open(context.Background(), running, wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	p, err := l.Producer("meter", wal.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for n := range uint64(3) {
		if _, err := p.AppendAt(n, wal.Record{Value: fmt.Appendf(nil, "reading %d", n)}); err != nil {
			log.Fatal(err)
		}
	}
	// What a kill would leave at this moment, in the middle of the fourth append.
	if err := os.CopyFS(left, os.DirFS(running)); err != nil {
		log.Fatal(err)
	}
	tearLastBatch(left, l.Stats().ActiveBytes)
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}

	l, err = wal.Open(context.Background(), left, wal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	report := l.RecoveryReport()
	fmt.Println("closed in order:", report.Clean)
	fmt.Println("log end:", report.LogEnd)
	fmt.Println("bytes cut:", report.BytesCut, "and kept in files:", report.CutFiles)
	p, err = l.Producer("meter", wal.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("go on at:", p.NextSequence())
	// Output:
	// closed in order: false
	// log end: 3
	// bytes cut: 40 and kept in files: 1
	// go on at: 3
}

// tearLastBatch writes the first bytes of another batch behind the end, as a write that was interrupted does.
func tearLastBatch(dir string, end int64) {
	f, err := os.OpenFile(filepath.Join(dir, "00000000000000000000.log"), os.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	head := make([]byte, 40)
	if _, err := f.ReadAt(head, 0); err != nil {
		log.Fatal(err)
	}
	if _, err := f.WriteAt(head, end); err != nil {
		log.Fatal(err)
	}
}
