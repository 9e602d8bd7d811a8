package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/wal"
)

// TestCat_Follow shows each record as soon as it is there, and goes on when the writer is another one.
func TestCat_Follow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must(t, "0\n", "append", dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, w := io.Pipe()
	var complaints bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"cat", "--follow", dir}, strings.NewReader(""), w, &complaints)
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	want := func(n int) {
		t.Helper()
		if !lines.Scan() || lines.Text() != fmt.Sprintf("%d\t\\N\t%[1]d", n) {
			t.Fatalf("line %d is %q, %v; %s", n, lines.Text(), lines.Err(), complaints.String())
		}
	}
	want(0)
	for n := 1; n < 20; n += 2 {
		l, err := wal.Open(t.Context(), dir, wal.Options{SegmentBytes: 200})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if _, err := l.Append(wal.Record{Value: []byte(fmt.Sprint(n + i))}); err != nil {
				t.Fatal(err)
			}
			want(n + i)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if s := <-status; s != exitInterrupted {
		t.Errorf("exit status %d: %s", s, complaints.String())
	}
}

// TestBackup_BesideAWriter says that somebody writes, and copies what is there.
func TestBackup_BesideAWriter(t *testing.T) {
	dir, dest := filepath.Join(t.TempDir(), "d"), filepath.Join(t.TempDir(), "b")
	l, err := wal.Open(t.Context(), dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if _, err := l.Append(wal.Record{Value: []byte(fmt.Sprint(n))}); err != nil {
			t.Fatal(err)
		}
		r := logtool(t, "", "backup", dir, dest)
		if r.status != exitHealthy || !strings.Contains(r.err, "a writer has") {
			t.Errorf("exit status %d: %s%s", r.status, r.stdout, r.err)
		}
		if got := must(t, "", "cat", dest, "--from", fmt.Sprint(n)); got != fmt.Sprintf("%d\t\\N\t%[1]d\n", n) {
			t.Errorf("the copy ends with %q", got)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
