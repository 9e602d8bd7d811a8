package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/wal"
)

// TestDump_Fixtures requires that the command gives the document of each partition, one by one and as a log directory.
// What is in a document is held against Kafka's own in package dump.
func TestDump_Fixtures(t *testing.T) {
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		dir := x.Unpack(t)
		before := tree(t, dir.LogDir)
		all := map[string]json.RawMessage{}
		r := logtool(t, "", "dump", "--json", dir.LogDir)
		if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
			t.Fatal(err)
		}
		names, damaged := []string{}, false
		for name, d := range x.Dumps {
			names = append(names, name)
			wrong := d.Damage != nil && !strings.Contains(name, "tail-zero") && !strings.Contains(name, "preallocated")
			damaged = damaged || wrong
			var want bytes.Buffer
			if _, err := dump.WriteJSON(context.Background(), &want, vfs.OS, filepath.Join(dir.LogDir, name), dump.Options{}); err != nil {
				t.Fatal(err)
			}
			one := logtool(t, "", "dump", "--json", filepath.Join(dir.LogDir, name))
			if one.stdout != want.String()+"\n" || string(all[name]) != want.String() || (one.status == exitProblems) != wrong {
				t.Errorf("%s: exit status %d, another document", name, one.status)
			}
			if text := logtool(t, "", "dump", filepath.Join(dir.LogDir, name)); text.status != one.status {
				t.Errorf("%s: as text: exit status %d, as JSON %d", name, text.status, one.status)
			}
		}
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
			t.Errorf("partitions %q, want %q", got, names)
		}
		if (r.status == exitProblems) != damaged || r.err != "" {
			t.Errorf("exit status %d, damaged %v, %s", r.status, damaged, r.err)
		}
		if after := tree(t, dir.LogDir); !maps.Equal(before, after) {
			t.Error("the directory was changed")
		}
	})
}

// TestInspect_Fixtures requires that nothing is wrong with what a broker left, killed or not, and that damage is found.
func TestInspect_Fixtures(t *testing.T) {
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		dir := x.Unpack(t)
		before := tree(t, dir.LogDir)
		r := logtool(t, "", "inspect", dir.LogDir)
		want := exitHealthy
		if len(x.DamageDone) > 0 && !strings.Contains(x.DamageDone[0].What, "copies of the files") && !leavesNoTrace(x.Name) {
			want = exitProblems
		}
		if r.status != want {
			t.Errorf("exit status %d, want %d\n%s%s", r.status, want, r.stdout, r.err)
		}
		if after := tree(t, dir.LogDir); !maps.Equal(before, after) {
			t.Error("the directory was changed")
		}
	})
}

// leavesNoTrace tells what was done to a directory and cannot be told from what a writer leaves that was killed: an
// unfinished append, left-over files, a snapshot that was never written, a higher log start, a batch behind a gap.
func leavesNoTrace(fixture string) bool {
	for _, what := range []string{"torn", "tail-", "swap-leftover", "snapshot-deleted", "snapshots-deleted", "log-start-mid", "batch-after-gap", "partition-metadata-deleted"} {
		if strings.Contains(fixture, what) {
			return true
		}
	}
	return false
}

func TestInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must(t, "one\ntwo\n", "append", dir)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, args := range append(slices.Clone(readingCommands), []string{"recover", "--apply"}, []string{"demo", "--records", "1000", "--rm"}) {
		if args[0] != "demo" {
			args = append(args, dir)
		}
		var out, err bytes.Buffer
		if status := run(ended, args, strings.NewReader(""), &out, &err); status != exitInterrupted || !strings.Contains(err.String(), "interrupted") {
			t.Errorf("%q: exit status %d, %s", args, status, err.String())
		}
	}
}

var readingCommands = [][]string{{"inspect"}, {"recover"}, {"dump"}, {"dump", "--json"}, {"cat"}}

// TestAppend_Interrupted ends an append that waits for more: what it had read is stored.
func TestAppend_Interrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	ctx, cancel := context.WithCancel(context.Background())
	in, feed := io.Pipe()
	var out, complaints bytes.Buffer
	status := make(chan int)
	go func() { status <- run(ctx, []string{"append", dir, "--batch", "2"}, in, &out, &complaints) }()
	if _, err := io.WriteString(feed, "one\ntwo\nthree\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(feed, "four, without an end"); err != nil { // the lines before it have been read
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	cancel()
	if s := <-status; s != exitInterrupted {
		t.Errorf("exit status %d: %s", s, complaints.String())
	}
	feed.Close()
	if got := must(t, "", "cat", dir); got != "0\t\\N\tone\n1\t\\N\ttwo\n2\t\\N\tthree\n" {
		t.Errorf("stored:\n%s", got)
	}
}

// TestAppend_Lingers feeds records one by one: each is stored without waiting for a whole batch.
func TestAppend_Lingers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	in, feed := io.Pipe()
	out, lines := io.Pipe()
	status := make(chan int, 1)
	go func() {
		status <- run(context.Background(), []string{"append", dir}, in, lines, io.Discard)
		lines.Close()
	}()
	answer := make([]byte, 200)
	for i, want := range []string{"appended 1 record, offsets 0 to 0\n", "appended 1 record, offsets 1 to 1\n"} {
		fmt.Fprintf(feed, "record %d\n", i)
		n, err := out.Read(answer)
		if err != nil || string(answer[:n]) != want {
			t.Fatalf("%q, %v", answer[:n], err)
		}
	}
	feed.Close()
	rest, err := io.ReadAll(out)
	if err != nil || string(rest) != "2 records appended, 0 stored before\n" || <-status != exitHealthy {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestAppend_LargeInput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	// Batches are divided by bytes, so that lines of 100 KiB fit although a hundred of them would not.
	long := strings.Repeat("x", 100<<10)
	out := must(t, strings.Repeat(long+"\n", 30), "append", dir, "--codec", "lz4")
	if !strings.HasSuffix(out, "30 records appended, 0 stored before\n") {
		t.Error(out)
	}
	if r := logtool(t, "ok\n"+strings.Repeat("y", 2<<20)+"\n", "append", dir); r.status != exitCannotRun || !strings.Contains(r.err, "too large") {
		t.Errorf("exit status %d, %s", r.status, r.err)
	}
	if r := logtool(t, strings.Repeat("y", maxLineBytes+1), "append", dir); r.status != exitCannotRun || !strings.Contains(r.err, "line 1: longer than") {
		t.Errorf("exit status %d, %s", r.status, r.err)
	}
	// The last record that was right was stored, and the log is closed in order.
	if got := must(t, "", "cat", dir, "--from", "30"); got != "30\t\\N\tok\n" {
		t.Errorf("%.100q", got)
	}
	if got := must(t, "", "inspect", dir); !strings.Contains(got, "closed in order") {
		t.Error(got)
	}
}

func TestAppend_Locked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	l, err := wal.Open(context.Background(), dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Append(wal.Record{Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"append"}, {"recover", "--apply"}, {"recover", "--remove-kept", "--apply"}} {
		if r := logtool(t, "x\n", append(args, dir)...); r.status != exitCannotRun || !strings.Contains(r.err, "in use") {
			t.Errorf("%q: exit status %d, %s", args, r.status, r.err)
		}
	}
	// Reading works beside the writer.
	for _, args := range readingCommands {
		if r := logtool(t, "", append(args, dir)...); r.status != exitHealthy {
			t.Errorf("%q: exit status %d\n%s%s", args, r.status, r.stdout, r.err)
		}
	}
}

func TestOutputFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must(t, "one\ntwo\n", "append", dir)
	for _, args := range append(slices.Clone(readingCommands), []string{"inspect", "--json"}, []string{"cat", "--json"}) {
		var err bytes.Buffer
		if status := run(context.Background(), append(args, dir), strings.NewReader(""), brokenWriter{}, &err); status != exitCannotRun {
			t.Errorf("%q: exit status %d, %s", args, status, err.String())
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("nobody listens") }

func TestDemo(t *testing.T) {
	for _, sync := range []string{"commit", "none"} {
		dir := filepath.Join(t.TempDir(), "d")
		r := logtool(t, "", "demo", dir, "--records", "40000", "--json", "--sync", sync)
		if r.status != exitHealthy {
			t.Fatalf("%s: exit status %d\n%s%s", sync, r.status, r.stdout, r.err)
		}
		figures := map[string]int64{}
		if err := json.Unmarshal([]byte(r.stdout), &figures); err != nil {
			t.Fatal(err)
		}
		want := []string{"acknowledged", "bytesCut", "bytesScanned", "doubled", "duplicates", "lost", "recoverMillis", "resent", "written"}
		if got := slices.Sorted(maps.Keys(figures)); !slices.Equal(got, want) {
			t.Errorf("figures %q", got)
		}
		if figures["written"] != 40000 || figures["lost"] != 0 || figures["doubled"] != 0 || figures["acknowledged"] == 0 || figures["duplicates"] == 0 {
			t.Errorf("%s: %v", sync, figures)
		}
		if r := logtool(t, "", "inspect", dir); r.status != exitHealthy {
			t.Errorf("%s: inspect: exit status %d\n%s%s", sync, r.status, r.stdout, r.err)
		}
		if r := logtool(t, "", "demo", dir); r.status != exitCannotRun || !strings.Contains(r.err, "not empty") {
			t.Errorf("a second time: exit status %d, %s", r.status, r.err)
		}
	}
	dir := filepath.Join(t.TempDir(), "d")
	text := must(t, "", "demo", dir, "--records", "1000", "--seed", "7", "--rm")
	for _, want := range []string{"writing    1000 records of 4 producers", "killed     when ", "recovered  in ", "  lost          0\n", "  doubled       0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("--rm left the directory: %v", err)
	}
}

// TestTally shows that the demo's bookkeeping notices what it is there for.
func TestTally(t *testing.T) {
	record := func(producer int, n int64) *wal.Stored {
		r := demoRecords(producer, n, n+1)[0]
		return &wal.Stored{Record: r}
	}
	c := newTally(8)
	for i := range demoProducers {
		for n := range int64(2) {
			if i == 3 && n == 1 {
				continue // lost
			}
			if err := c.tick(record(i, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c.missing() != 1 || c.doubled != 0 || c.read != 7 {
		t.Errorf("missing %d, doubled %d, read %d", c.missing(), c.doubled, c.read)
	}
	if err := c.tick(record(0, 1)); err != nil || c.doubled != 1 {
		t.Errorf("doubled %d, %v", c.doubled, err)
	}
	changed := record(3, 1)
	changed.Value[50] ^= 1
	for _, s := range []*wal.Stored{changed, record(0, 2), {Record: wal.Record{Key: []byte("demo-9"), Value: []byte("1 x")}}, {}} {
		if err := c.tick(s); err == nil {
			t.Errorf("%q: no complaint", s.Value)
		}
	}
	if c.missing() != 1 {
		t.Errorf("a record with other content counts: %d missing", c.missing())
	}
}

func TestLedger(t *testing.T) {
	var g ledger
	err := g.read(strings.NewReader("S 0 10\nA 0 10\nS 3 5\nD 0 10\nA 0 1"), func() error { return nil })
	if err != nil || g.acknowledged[0] != 10 || g.sent[3] != 5 || g.duplicates != 10 || g.total != 10 {
		t.Errorf("%+v, %v", g, err)
	}
	for _, bad := range []string{"A 7 1\n", "A\n", "nonsense\n", "A -1 1\n"} {
		if err := g.read(strings.NewReader(bad), func() error { return nil }); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "a\x1b[0m": `"a\x1b[0m"`, "a\nb": `"a\nb"`, "\u202e": `"\u202e"`, "\xff": `"\xff"`, "é\"": "é\"", "\u009b": `"\u009b"`,
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := escapeLines("one\ntwo\x07"); got != `one; two\a` {
		t.Error(got)
	}
	for _, c := range []struct {
		n    int64
		noun string
		want string
	}{{1, "byte", "1 byte"}, {0, "byte", "0 bytes"}, {2, "batch", "2 batches"}, {3, "index entry", "3 index entries"}} {
		if got := count(c.n, c.noun); got != c.want {
			t.Error(got)
		}
	}
	var out bytes.Buffer
	if err := writeJSONLine(&out, "\x7f\u009b\u202e\U000e0001<é"); err != nil || out.String() != `"\u007f\u009b\u202e\udb40\udc01<é"`+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for in, want := range map[string]string{"a\tb": `a\tb`, `a\b`: `a\\b`, "": "", `say "hi"`: `say "hi"`, `\"`: `\\"`} {
		if got := field([]byte(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// FuzzRecordJSON reads any line as a record, and what was read it writes and reads again.
func FuzzRecordJSON(f *testing.F) {
	f.Add(`{"offset":1,"timestamp":5,"key":"a","value":{"base64":"AP8="},"headers":[["h",null]]}`)
	f.Add(`{"key":null}`)
	f.Fuzz(func(t *testing.T, line string) {
		r, err := parseLine([]byte(line), &appendOptions{format: "json"})
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := writeJSONLine(&out, jsonOf(0, &r)); err != nil {
			t.Fatal(err)
		}
		again, err := parseLine(bytes.TrimSpace(out.Bytes()), &appendOptions{format: "json"})
		if err != nil || !sameRecord(r, again) {
			t.Errorf("%q\nread as %+v\nthen as %+v, %v", line, r, again, err)
		}
	})
}

func sameRecord(a, b wal.Record) bool {
	same := func(p, q []byte) bool { return (p == nil) == (q == nil) && bytes.Equal(p, q) }
	if !same(a.Key, b.Key) || !same(a.Value, b.Value) || len(a.Headers) != len(b.Headers) || !a.Time.Equal(b.Time) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !same(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

// TestReadingBesideAWriter lets the commands look at a log that is written, rolled and checkpointed all the time.
func TestReadingBesideAWriter(t *testing.T) {
	for _, sync := range []wal.SyncMode{wal.SyncCommit, wal.SyncNone} {
		dir := filepath.Join(t.TempDir(), "d")
		l, err := wal.Open(context.Background(), dir, wal.Options{Sync: sync, SegmentBytes: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		stop, stopped := make(chan struct{}), make(chan error)
		go func() {
			for {
				select {
				case <-stop:
					stopped <- l.Close()
					return
				default:
				}
				if _, err := l.Append(demoRecords(0, 0, 100)...); err != nil {
					stopped <- errors.Join(err, l.Close())
					return
				}
			}
		}()
		for range 5 {
			for _, args := range [][]string{{"inspect"}, {"recover"}, {"dump", "--no-records"}, {"dump", "--json", "--no-records"}, {"cat", "--max", "1000"}} {
				if r := logtool(t, "", append(args, dir)...); r.status != exitHealthy {
					t.Errorf("%v, %q: exit status %d\n%.2000s%s", sync, args, r.status, r.stdout, r.err)
				}
			}
		}
		close(stop)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

// TestDropFinished takes back what was found at a place where a whole batch is by now, and nothing else.
func TestDropFinished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must(t, "one\ntwo\n", "append", dir, "--batch", "1")
	const name = "00000000000000000000.log"
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	at := func(file string, position, offset int64) finding {
		return finding{File: file, Problem: true, Position: known(position), Offset: known(offset)}
	}
	for _, c := range []struct {
		what string
		f    finding
		kept bool
	}{
		{"a batch is there", at(name, 0, 0), false},
		{"another batch is there", at(name, 0, 1), true},
		{"no batch begins there", at(name, 5, 0), true},
		{"the log ends there", at(name, info.Size(), 2), false},
		{"the file is gone", at("00000000000000000009.log", 0, 9), false},
		{"of the file as a whole", finding{File: name, Problem: true}, true},
		{"another kind of file", at("00000000000000000000.index", 0, 0), true},
	} {
		r := &partitionResult{}
		r.found.Add(c.f)
		if err := (&app{fsys: vfs.OS}).dropFinished(context.Background(), dir, r); err != nil {
			t.Fatal(err)
		}
		if kept := r.Verdict == verdictProblems; kept != c.kept {
			t.Errorf("%s: kept is %v", c.what, kept)
		}
	}
}
