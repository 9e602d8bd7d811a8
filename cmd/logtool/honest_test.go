package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
	"github.com/oncelog/oncelog/wal"
)

const honestDir = "/data/t-0"

// disk is a simulated disk with a partition, to be damaged.
type disk struct {
	t testing.TB
	*vfstest.Mem
	logs []string // names of the log files
}

// honestLog writes a log of several segments with transactions, and leaves it closed, or as a process leaves it that was
// killed, or a power cut.
func honestLog(t testing.TB, mode wal.SyncMode, closed bool, crash vfstest.CrashMode) *vfstest.Mem {
	t.Helper()
	m := vfstest.NewMem()
	if err := errors.Join(m.MkdirAll("/data", 0o755), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_700_000_000_000)
	l, err := wal.OpenFS(context.Background(), m, honestDir, wal.Options{Sync: mode, SegmentBytes: 4 << 10, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		p := record.Producer{ID: int64(i % 4), BaseSequence: int32(i / 4)}
		transactional := p.ID < 2
		b := record.NewBuilder(record.BuilderOptions{Producer: &p, Transactional: transactional})
		if err := b.Append(now.UnixMilli()+int64(i), record.Record{Value: bytes.Repeat([]byte{'a' + byte(i%26)}, 200+i)}); err != nil {
			t.Fatal(err)
		}
		p2, err := b.Batch()
		if err == nil {
			_, err = l.AppendAsLeader(p2, wal.LeaderAppend{LeaderEpoch: int32(i / 20)})
		}
		if err == nil && transactional && i%8 < 2 {
			kind := record.Abort
			if i%16 < 8 {
				kind = record.Commit
			}
			_, err = l.AppendEndTxnMarker(record.Producer{ID: p.ID}, record.EndTxnMarker{Type: kind}, wal.MarkerAppend{LeaderEpoch: int32(i / 20)})
		}
		if err == nil && i == 40 {
			err = l.Checkpoint()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if closed {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return m
	}
	t.Cleanup(func() { _ = l.Close() })
	return m.Crash(vfstest.CrashOptions{Mode: crash})
}

func (d *disk) path(name string) string { return filepath.Join(honestDir, name) }

func (d *disk) check(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) read(name string) []byte {
	d.t.Helper()
	p, err := vfs.ReadFile(d, d.path(name), 1<<24)
	d.check(err)
	return p
}

// write replaces a file.
func (d *disk) write(name string, p []byte) {
	d.t.Helper()
	f, err := d.OpenFile(d.path(name), vfs.O_RDWR|vfs.O_CREATE|vfs.O_TRUNC, 0o644)
	d.check(err)
	_, err = f.WriteAt(p, 0)
	d.check(errors.Join(err, f.Sync(), f.Close()))
}

func (d *disk) remove(name string) { d.t.Helper(); d.check(d.Mem.Remove(d.path(name))) }

// change replaces a file by what f makes of its content.
func (d *disk) change(name string, f func(p []byte) []byte) {
	d.t.Helper()
	d.write(name, f(d.read(name)))
}

// list names the files of a kind.
func (d *disk) list(kind segment.Kind) (names []string) {
	d.t.Helper()
	entries, err := d.ReadDir(honestDir)
	d.check(err)
	for _, e := range entries {
		if n := segment.Parse(e.Name); n.Kind == kind && n.Suffix == "" {
			names = append(names, e.Name)
		}
	}
	return names
}

// of names another file of the segment of a log file.
func of(log string, kind segment.Kind) string {
	return segment.FileName(kind, segment.Parse(log).Offset)
}

func (d *disk) files() map[string]string {
	d.t.Helper()
	entries, err := d.ReadDir(honestDir)
	d.check(err)
	m := map[string]string{}
	for _, e := range entries {
		if e.Name == lockName {
			continue // it stays when it was made
		}
		m[e.Name] = fmt.Sprint("kind ", e.Kind)
		if e.Kind == vfs.Regular {
			m[e.Name] = string(d.read(e.Name))
		}
	}
	return m
}

// damage is one thing that may happen to a directory.
type damage struct {
	name string
	do   func(d *disk)
}

func noise(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(31*i + 7)
	}
	return p
}

// batchEnd is where the n-th batch of a log file ends.
func batchEnd(p []byte, n int) int {
	rest := p
	for range n {
		_, next, err := record.Next(rest)
		if err != nil {
			break
		}
		rest = next
	}
	return len(p) - len(rest)
}

// content is a log file without reserved space.
func content(p []byte) []byte { return p[:batchEnd(p, 1000)] }

// damages lists what is tried, alone and with another.
func damages() (list []damage) {
	add := func(name string, do func(d *disk)) { list = append(list, damage{name, do}) }
	add("nothing", func(*disk) {})
	for _, where := range []string{"first", "middle", "last but one", "last"} {
		log := func(d *disk) string {
			n := len(d.logs)
			return d.logs[map[string]int{"first": 0, "middle": n / 2, "last but one": n - 2, "last": n - 1}[where]]
		}
		on := func(what string, f func(p []byte) []byte) {
			add(where+" log "+what, func(d *disk) { d.change(log(d), f) })
		}
		on("emptied", func([]byte) []byte { return nil })
		on("shortened by a byte", func(p []byte) []byte { p = content(p); return p[:len(p)-1] })
		on("shortened by a batch", func(p []byte) []byte { return p[:batchEnd(p, 2)] })
		on("grown by zeros", func(p []byte) []byte { return append(p, make([]byte, 300)...) })
		on("grown by noise", func(p []byte) []byte { return append(content(p), noise(70)...) })
		on("flipped", func(p []byte) []byte { p[batchEnd(p, 3)+80] ^= 4; return p })
		on("zeroed over two batches", func(p []byte) []byte { clear(p[batchEnd(p, 1)+100 : batchEnd(p, 2)+50]); return p })
		on("without its first batch", func(p []byte) []byte { return p[batchEnd(p, 1):] })
		add(where+" log removed", func(d *disk) { d.remove(log(d)) })
		add(where+" segment removed", func(d *disk) {
			name := log(d)
			for _, k := range []segment.Kind{segment.KindLog, segment.KindOffsetIndex, segment.KindTimeIndex, segment.KindTxnIndex} {
				if slices.Contains(d.list(k), of(name, k)) {
					d.remove(of(name, k))
				}
			}
		})
		add(where+" indexes removed", func(d *disk) {
			d.remove(of(log(d), segment.KindOffsetIndex))
			d.remove(of(log(d), segment.KindTimeIndex))
		})
	}
	add("transaction indexes damaged", func(d *disk) {
		for _, name := range d.list(segment.KindTxnIndex) {
			d.change(name, func(p []byte) []byte { clear(p[2:]); return p })
		}
	})
	add("two logs exchanged", func(d *disk) {
		a, b := d.logs[1], d.logs[2]
		p, q := d.read(a), d.read(b)
		d.write(a, q)
		d.write(b, p)
	})
	add("snapshots removed", func(d *disk) {
		for _, name := range d.list(segment.KindSnapshot) {
			d.remove(name)
		}
	})
	add("newest snapshot flipped", func(d *disk) {
		names := d.list(segment.KindSnapshot)
		d.change(names[len(names)-1], func(p []byte) []byte { p[len(p)-3] ^= 1; return p })
	})
	add("side files removed", func(d *disk) {
		for _, name := range d.list(segment.KindProducers) {
			d.remove(name)
		}
	})
	add("leader epochs removed", func(d *disk) { d.remove("leader-epoch-checkpoint") })
	add("leader epochs damaged", func(d *disk) { d.write("leader-epoch-checkpoint", []byte("0\n1\nx y\n")) })
	add("state removed", func(d *disk) { d.remove("oncelog.state") })
	add("state damaged", func(d *disk) { d.change("oncelog.state", func(p []byte) []byte { clear(p); return p }) })
	add("a deletion interrupted", func(d *disk) { d.write("00000000000000000000.log.deleted", noise(99)) })
	add("a compaction interrupted", func(d *disk) { d.write(d.logs[1]+".cleaned", noise(99)) })
	add("a replacement interrupted", func(d *disk) { d.write(d.logs[1]+".swap", d.read(d.logs[1])) })
	add("a replacement damaged", func(d *disk) { d.write(d.logs[1]+".swap", append(d.read(d.logs[1]), noise(50)...)) })
	add("an index without a log", func(d *disk) { d.write("00000000000000000003.index", nil) })
	add("an odd name", func(d *disk) { d.write("abc.log", nil) })
	add("a directory", func(d *disk) { d.check(d.MkdirAll(d.path("00000000000000000005.log"), 0o755)) })
	add("a stale snapshot", func(d *disk) { d.write("00000000000000009999.snapshot", noise(40)) })
	return list
}

// apart tells whether two damages have nothing to do with one another, so that both can be done.
func apart(a, b damage) bool {
	same := func(word string) bool { return strings.Contains(a.name, word) && strings.Contains(b.name, word) }
	gone := strings.HasSuffix(a.name, "log removed") || strings.HasSuffix(b.name, "log removed") ||
		strings.HasSuffix(a.name, "segment removed") || strings.HasSuffix(b.name, "segment removed")
	return a.name != b.name && !same("state") && !same("leader") && !same("snapshot") && !(same(" log ") || gone) && !same("exchanged") &&
		!(gone && (same("first") || same("middle") || same("last"))) && !(gone && same("replacement"))
}

// A plan says what is then done and what is refused, with the same exit status. What is refused changes nothing at all, and
// what is done leaves nothing more to do. An inspection agrees on what is refused.
func TestRecover_IsHonest(t *testing.T) {
	all := damages()
	var cases []damage
	long := os.Getenv("ONCELOG_LONG") != ""
	for j, a := range all {
		cases = append(cases, a)
		for i, b := range all {
			// One pair for each, unless there is time for all.
			if apart(a, b) && (long || i == (7*j+3)%len(all) && !testing.Short()) {
				cases = append(cases, damage{a.name + ", " + b.name, func(d *disk) { a.do(d); b.do(d) }})
			}
		}
	}
	refused, done := 0, 0
	for _, base := range []struct {
		name   string
		mode   wal.SyncMode
		closed bool
		crash  vfstest.CrashMode
	}{
		{"closed", wal.SyncCommit, true, 0},
		{"killed", wal.SyncCommit, false, vfstest.Kill},
		{"killed, unsynced", wal.SyncNone, false, vfstest.Kill},
		{"power cut, unsynced", wal.SyncNone, false, vfstest.AllKept},
	} {
		if base.crash == vfstest.AllKept && !long {
			continue
		}
		m := honestLog(t, base.mode, base.closed, base.crash)
		for _, c := range cases {
			d := &disk{t: t, Mem: m.Crash(vfstest.CrashOptions{})}
			d.logs = d.list(segment.KindLog)
			c.do(d)
			d.SyncAll()
			for _, policy := range []wal.Policy{wal.Strict, wal.TolerateTornTail, wal.PointInTime} {
				where := fmt.Sprintf("%s, %s, %v", base.name, c.name, policy)
				if checkHonest(&disk{t: t, Mem: d.Crash(vfstest.CrashOptions{})}, where, policy) {
					refused++
				} else {
					done++
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d refused, %d done", refused, done)
	if refused < 100 || done < 100 {
		t.Errorf("%d refused, %d done", refused, done)
	}
}

func checkHonest(d *disk, where string, policy wal.Policy) (refused bool) {
	t := d.t
	t.Helper()
	ctx := context.Background()
	a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, fsys: d.Mem, now: func() time.Time { return time.UnixMilli(1_700_000_100_000) }}
	before := d.files()
	plan, err := a.planRecovery(ctx, honestDir, policy)
	if err != nil {
		t.Errorf("%s: plan: %v", where, err)
		return
	}
	if !maps.Equal(before, d.files()) {
		t.Errorf("%s: the plan changed the directory", where)
	}
	// The library by itself refuses nothing more, and where it does refuse it changes nothing either.
	e := &disk{t: t, Mem: d.Crash(vfstest.CrashOptions{})}
	l, err := wal.OpenFS(ctx, e.Mem, honestDir, wal.Options{DamagePolicy: policy, CheckSegments: true, Now: a.now})
	switch {
	case err == nil:
		_ = l.Close()
		if plan.Refused {
			t.Errorf("%s: opened, and the plan is to refuse: %v", where, lines(plan.Findings))
		}
	case !plan.Refused:
		t.Errorf("%s: open: %v", where, err)
	case !maps.Equal(before, e.files()):
		t.Errorf("%s: refused, and the directory changed: %s", where, differences(before, e.files()))
	}
	if err != nil && !errors.Is(err, wal.ErrRefused) {
		t.Errorf("%s: open: %v", where, err)
	}
	did, err := a.applyRecovery(ctx, honestDir, policy)
	if err != nil {
		t.Errorf("%s: apply: %v", where, err)
		return
	}
	if did.Refused != plan.Refused {
		t.Errorf("%s: the plan is refused %v, the deed %v", where, plan.Refused, did.Refused)
	}
	if did.LogStart != plan.LogStart || did.LogEnd != plan.LogEnd || did.BytesCut != plan.BytesCut || did.Trimmed != plan.Trimmed ||
		!reflect.DeepEqual(lines(did.Findings), lines(plan.Findings)) {
		t.Errorf("%s: planned %+v\n  %s\ndone %+v\n  %s", where, *plan, strings.Join(lines(plan.Findings), "\n  "), *did, strings.Join(lines(did.Findings), "\n  "))
	}
	if plan.Refused {
		if !maps.Equal(before, d.files()) {
			t.Errorf("%s: refused, and the directory changed: %s", where, differences(before, d.files()))
		}
		return true
	}
	again, err := a.applyRecovery(ctx, honestDir, policy)
	if err != nil {
		t.Errorf("%s: apply once more: %v", where, err)
		return
	}
	again.Findings = slices.DeleteFunc(again.Findings, func(f finding) bool { return f.Decision == "" })
	if again.Refused || len(again.Findings) > 0 || again.BytesCut != 0 || again.Trimmed != 0 || again.LogEnd != did.LogEnd {
		t.Errorf("%s: there is more to do: %+v\n  %s\nafter\n  %s", where, *again, strings.Join(lines(again.Findings), "\n  "), strings.Join(lines(did.Findings), "\n  "))
	}
	return false
}

func lines(list []finding) (s []string) {
	for i := range list {
		s = append(s, lineOf(&list[i]))
	}
	return s
}

func differences(a, b map[string]string) string {
	var s []string
	for name, p := range a {
		if q, ok := b[name]; !ok {
			s = append(s, name+" is gone")
		} else if p != q {
			s = append(s, name+" changed")
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			s = append(s, name+" is new")
		}
	}
	slices.Sort(s)
	return strings.Join(s, ", ")
}
