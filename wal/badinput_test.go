package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
)

// patched changes a batch and makes its checksum right again.
func patched(p []byte, change func(p []byte)) []byte {
	p = bytes.Clone(p)
	change(p)
	binary.BigEndian.PutUint32(p[17:], record.Checksum(p[21:]))
	return p
}

func put32(at int, v int32) func([]byte) {
	return func(p []byte) { binary.BigEndian.PutUint32(p[at:], uint32(v)) }
}

func put64(at int, v int64) func([]byte) {
	return func(p []byte) { binary.BigEndian.PutUint64(p[at:], uint64(v)) }
}

// bomb is a batch of one record that is small only as long as it is compressed.
func bomb(t *testing.T, codec record.Compression, size int) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Compression: codec})
	if err := b.Append(1_700_000_000_000, record.Record{Value: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	p, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(p)
}

// badAppend is an append that must be refused.
type badAppend struct {
	name     string
	bytes    []byte
	follower bool
	epoch    int32
	want     error  // nil: nothing is appended, which is no error
	says     string // the message has it
}

func badAppends(t *testing.T) []badAppend {
	good := producerBatch(t, 5, 0, 2, "a", "b")
	at := func(offset int64) []byte { return patched(good, put64(0, offset)) }
	cut := good[:len(good)-1]
	return []badAppend{
		{name: "unknown magic", bytes: patched(good, func(p []byte) { p[16] = 3 }), want: record.ErrMagic, says: "byte 0"},
		{name: "unknown magic is a version", bytes: patched(good, func(p []byte) { p[16] = 9 }), want: ErrUnsupportedVersion, says: "9"},
		{name: "unknown codec", bytes: patched(good, func(p []byte) { p[22] |= 5 }), want: ErrUnsupportedCompression, says: "5"},
		{name: "flipped bit", bytes: func() []byte { p := bytes.Clone(good); p[70] ^= 4; return p }(), want: ErrCorrupt, says: "offset 0"},
		{name: "cut off", bytes: cut},
		{name: "nothing", bytes: nil},
		{name: "length below a header", bytes: patched(good, put32(8, 7)), want: ErrCorrupt, says: "at byte 8"},
		{name: "negative length", bytes: patched(good, put32(8, -9)), want: ErrCorrupt, says: "at byte 8"},
		{name: "greatest length", bytes: patched(good, put32(8, math.MaxInt32))},
		{name: "offset of a producer", bytes: at(7), want: ErrInvalidRecord, says: "base offset is 7"},
		{name: "negative offset of a producer", bytes: at(-5), want: ErrInvalidRecord, says: "base offset is -5"},
		{name: "negative offset delta", bytes: patched(good, put32(23, -1)), want: ErrInvalidRecord, says: "-1"},
		{name: "offset delta above the count", bytes: patched(good, put32(23, math.MaxInt32)), want: ErrInvalidRecord},
		{name: "record count", bytes: patched(good, put32(57, math.MaxInt32)), want: ErrInvalidRecord},
		{name: "negative record count", bytes: patched(good, put32(57, -2)), want: ErrInvalidRecord},
		{name: "negative sequence", bytes: patched(good, put32(53, -7)), want: ErrInvalidRecord, says: "producer 5"},
		{name: "producer id below none", bytes: patched(good, put64(43, -8)), want: ErrInvalidRecord, says: "-8"},
		{name: "record that ends behind its batch", bytes: patched(good, func(p []byte) { p[61] = 0x7e }), want: ErrInvalidRecord},
		{name: "control batch of a producer", bytes: patched(good, func(p []byte) { p[22] |= 1 << 5 }), want: ErrInvalidRecord, says: "control"},
		{name: "negative leader epoch", bytes: good, epoch: -1, want: ErrInvalidArgument, says: "-1"},
		{name: "two batches of a producer", bytes: append(bytes.Clone(good), good...), want: ErrInvalidRecord, says: "2 batches"},
		{name: "gap in the sequence", bytes: patched(good, put32(53, 40)), want: ErrOutOfOrderSequence, says: "40"},
		{name: "larger than a batch may be", bytes: producerBatch(t, 5, 0, 2, strings.Repeat("x", 30<<10)), want: ErrMessageTooLarge, says: "MaxMessageBytes"},
		{name: "larger than a segment", bytes: patched(producerBatch(t, 6, 0, 0, strings.Repeat("x", 18<<10)), put64(0, 2)), follower: true,
			want: ErrBatchTooLarge, says: "SegmentBytes"},
		{name: "follower goes back", bytes: at(1), follower: true, want: ErrUnexpectedOffset, says: "ends at 2"},
		{name: "follower below zero", bytes: at(-3), follower: true, want: ErrInvalidRecord, says: "-3"},
		{name: "follower at the last offset", bytes: at(math.MaxInt64 - 1), follower: true, want: ErrInvalidRecord, says: "out of range"},
		{name: "follower beyond the last offset", bytes: at(math.MaxInt64), follower: true, want: ErrInvalidRecord, says: "out of range"},
		{name: "follower batches descend", bytes: append(at(9), at(2)...), follower: true, want: ErrOffsetsOutOfOrder},
		{name: "follower unknown magic", bytes: patched(at(2), func(p []byte) { p[16] = 77 }), follower: true, want: record.ErrMagic, says: "77"},
	}
}

// Each is refused by an error of its kind that says where; log, producers and files stay as they are, and the next good
// batch is stored at the offset that was next before.
func TestBadInput_Append(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			dir := t.TempDir()
			l := openTest(t, dir, Options{Sync: mode, SegmentBytes: 16 << 10, MaxMessageBytes: 17 << 10, TimestampAfterMax: Never, manual: true})
			if _, err := l.AppendAsLeader(producerBatch(t, 5, 0, 0, "a", "b"), LeaderAppend{}); err != nil {
				t.Fatal(err)
			}
			l.refreshState()
			for _, bad := range badAppends(t) {
				before, state := treeOf(t, dir), fmt.Sprint(l.Offsets(), producerTexts(l))
				var info AppendInfo
				var err error
				if bad.follower {
					info, err = l.AppendAsFollower(bytes.Clone(bad.bytes), 0)
				} else {
					info, err = l.AppendAsLeader(bytes.Clone(bad.bytes), LeaderAppend{LeaderEpoch: bad.epoch})
				}
				switch {
				case bad.want == nil && (err != nil || info.FirstOffset != -1):
					t.Errorf("%s: %+v, %v; want nothing appended", bad.name, info, err)
				case bad.want != nil && (!errors.Is(err, bad.want) || !strings.Contains(fmt.Sprint(err), bad.says)):
					t.Errorf("%s: %v, want %v that says %q", bad.name, err, bad.want, bad.says)
				}
				if after := fmt.Sprint(l.Offsets(), producerTexts(l)); after != state {
					t.Errorf("%s: log is %s, was %s", bad.name, after, state)
				}
				if d := before.difference(treeOf(t, dir)); d != "" {
					t.Errorf("%s: %s", bad.name, d)
				}
			}
			info, err := l.AppendAsLeader(producerBatch(t, 5, 0, 2, "c"), LeaderAppend{})
			if err != nil || info.FirstOffset != 2 {
				t.Errorf("a good batch after %d bad ones: %+v, %v", len(badAppends(t)), info, err)
			}
		})
	}
}

func producerTexts(l *Log) (list []string) {
	for e := range l.Producers() {
		list = append(list, fmt.Sprint(e.ProducerID, e.ProducerEpoch, slices.Collect(e.Batches())))
	}
	slices.Sort(list)
	return list
}

// What a batch claims about the size of its content takes no memory.
func TestBadInput_CompressionBombs(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{MaxDecompressedBytes: 1 << 20, TimestampAfterMax: Never, manual: true})
	for _, codec := range []record.Compression{record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		p := bomb(t, codec, 8<<20)
		if len(p) > 1<<20 {
			t.Fatalf("%v: the bomb has %d bytes", codec, len(p))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := l.AppendAsLeader(p, LeaderAppend{})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("%v: %v, want ErrInvalidRecord", codec, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%v: %d bytes allocated for a record that may have 1 MiB", codec, n)
		}
	}
	if end := l.Offsets().LogEnd; end != 0 {
		t.Errorf("log end %d", end)
	}
}

// Reads outside the log, and options that make no sense.
func TestBadInput_Calls(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, Options{manual: true, TimestampAfterMax: Never})
	if _, err := l.AppendAsLeader(producerBatch(t, 5, 0, 0, "a"), LeaderAppend{}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{-1, 2, math.MinInt64, math.MaxInt64} {
		_, err := l.Read(at, ReadOptions{MaxBytes: 100})
		var e *OffsetError
		if !errors.As(err, &e) || e.Offset != at || e.LogEnd != 1 || !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read at %d: %v", at, err)
		}
	}
	if _, err := l.Read(0, ReadOptions{MaxBytes: -1}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("negative MaxBytes: %v", err)
	}
	other := filepath.Join(t.TempDir(), "new")
	for _, o := range []Options{{SegmentBytes: -1}, {Sync: 9}, {DamagePolicy: 9}, {CheckpointBytes: -1}, {MaxIndexBytes: 3},
		{GroupBytes: 10}, {Compat: true, DamagePolicy: Strict}, {MaxDecompressedBytes: -1}} {
		if _, err := Open(context.Background(), other, o); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := os.Stat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("options were refused and the directory was made: %v", err)
	}
}

// tree is the content of a directory, but for our lock files, which an open that is refused may leave.
type tree map[string]string

func treeOf(t testing.TB, dir string) tree {
	t.Helper()
	found := tree{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Base(name) == lockFile || filepath.Base(name) == ".lock" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			p, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			content = string(p)
		}
		found[name] = info.Mode().String() + content
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (a tree) difference(b tree) string {
	for name, p := range a {
		if b[name] != p {
			return fmt.Sprintf("%s has changed", name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			return fmt.Sprintf("%s appeared", name)
		}
	}
	return ""
}

// badDirectory is a directory that must not be opened for writing.
type badDirectory struct {
	name   string
	make   func(dir string) error
	want   error
	says   string
	killed bool // before the log was closed: what was closed in order is not read at the next open
}

func inFirstLog(change func(p []byte) []byte) func(dir string) error {
	return func(dir string) error {
		name := filepath.Join(dir, "00000000000000000000.log")
		p, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, change(p), 0o644)
	}
}

func inState(change func(slot []byte)) func(dir string) error {
	return func(dir string) error {
		name := filepath.Join(dir, recovery.StateFileName)
		p, err := os.ReadFile(name)
		for i := 0; i+512 <= len(p); i += 4096 {
			change(p[i : i+512])
		}
		return errors.Join(err, os.WriteFile(name, p, 0o644))
	}
}

var badDirectories = []badDirectory{
	{"no log", func(dir string) error {
		return errors.Join(emptyDir(dir), os.WriteFile(filepath.Join(dir, "letter.txt"), []byte("hello"), 0o644))
	}, ErrNotLog, "letter.txt", false},
	{"a batch of an unknown magic, synced", inFirstLog(func(p []byte) []byte { p[16] = 3; return p }), ErrRefused, "00000000000000000000.log: refuse at byte 0", true},
	{"a foreign file under the name of a log file", inFirstLog(func(p []byte) []byte { return []byte(strings.Repeat("foreign ", 100)) }), ErrRefused, "at byte", false},
	{"a log file that was cut inside a batch", inFirstLog(func(p []byte) []byte { return p[:len(p)-3] }), ErrRefused, "at byte", false},
	{"an empty log file", inFirstLog(func([]byte) []byte { return nil }), ErrRefused, "byte 0", false},
	{"a batch of negative length", inFirstLog(func(p []byte) []byte { put32(8, -1)(p); return p }), ErrRefused, "byte 0", true},
	{"a batch of the greatest length", inFirstLog(func(p []byte) []byte { put32(8, math.MaxInt32)(p); return p }), ErrRefused, "byte 0", true},
	{"offsets that overflow", inFirstLog(func(p []byte) []byte { put64(2*len(p)/3, math.MaxInt64-1)(p); return p }), ErrRefused, "at byte", false},
	{"a negative offset", inFirstLog(func(p []byte) []byte { put64(2*len(p)/3, -4)(p); return p }), ErrRefused, "at byte 140", false},
	{"an offset twice", inFirstLog(func(p []byte) []byte { put64(2*len(p)/3, 1)(p); return p }), ErrRefused, "at byte 140", false},
	{"no log file although there were records", func(dir string) error { return os.Remove(filepath.Join(dir, "00000000000000000000.log")) }, ErrRefused, "gone", false},
	{"a log file that is a directory", func(dir string) error { return os.Mkdir(filepath.Join(dir, "00000000000000000900.log"), 0o755) }, ErrRefused, "no regular file", false},
	{"a log file that is a link", func(dir string) error {
		return os.Symlink("/etc/passwd", filepath.Join(dir, "00000000000000000900.log"))
	}, ErrRefused, "no regular file", false},
	{"a state file of an unknown version", inState(func(p []byte) {
		binary.BigEndian.PutUint16(p[8:], 7)
		binary.BigEndian.PutUint64(p[504:], xxhash.Sum64(p[:504]))
	}), ErrUnsupportedVersion, recovery.StateFileName, false},
	{"leader epochs of an unknown version", func(dir string) error {
		return os.WriteFile(filepath.Join(dir, recovery.LeaderEpochFileName), []byte("5\n0\n"), 0o644)
	}, ErrUnsupportedVersion, recovery.LeaderEpochFileName, false},
	// In a log that we wrote last such an entry is damage, since there is one version only that we write.
	{"a transaction index of an unknown version in another program's log", func(dir string) error {
		return errors.Join(os.Remove(filepath.Join(dir, recovery.StateFileName)),
			os.WriteFile(filepath.Join(dir, "00000000000000000000.txnindex"), append([]byte{0, 9}, make([]byte, 32)...), 0o644))
	}, ErrUnsupportedVersion, "00000000000000000000.txnindex", false},
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}

// Each is refused by an error of its kind that names the file and the byte, and nothing is changed.
func TestBadInput_Directories(t *testing.T) {
	for _, bad := range badDirectories {
		for _, policy := range []Policy{TolerateTornTail, Strict} {
			t.Run(bad.name+"/"+policy.String(), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "t-0")
				o := Options{DamagePolicy: policy, manual: true, TimestampAfterMax: Never}
				l := openTest(t, dir, o)
				for i := range 3 {
					if _, err := l.AppendAsLeader(producerBatch(t, 5, 0, int32(i), "a"), LeaderAppend{}); err != nil {
						t.Fatal(err)
					}
				}
				if bad.killed {
					abandon(t, l)
				} else if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if err := bad.make(dir); err != nil {
					t.Fatal(err)
				}
				before := treeOf(t, dir)
				l, err := Open(context.Background(), dir, o)
				if err == nil {
					t.Fatalf("opened: %+v", l.RecoveryReport())
				}
				if !errors.Is(err, bad.want) || !strings.Contains(err.Error(), bad.says) || !strings.Contains(err.Error(), dir) {
					t.Errorf("%v, want %v that says %q", err, bad.want, bad.says)
				}
				if d := before.difference(treeOf(t, dir)); d != "" {
					t.Errorf("%v, and %s", err, d)
				}
			})
		}
	}
}

// Where nothing is read at an open, because the log was closed in order, a batch that was changed is found by whoever reads it.
func TestBadInput_FoundByReaders(t *testing.T) {
	for name, change := range map[string]func(p []byte){
		"a bit of a record":     func(p []byte) { p[65] ^= 1 },
		"offset that overflows": put64(0, math.MaxInt64-1),
		"negative offset":       put64(0, -4),
		"offset of a later one": put64(0, 1),
	} {
		dir := filepath.Join(t.TempDir(), "t-0")
		o := Options{manual: true, TimestampAfterMax: Never}
		l := openTest(t, dir, o)
		for i := range 3 {
			if _, err := l.AppendAsLeader(producerBatch(t, 5, 0, int32(i), "a"), LeaderAppend{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(l.Close(), inFirstLog(func(p []byte) []byte { change(p); return p })(dir)); err != nil {
			t.Fatal(err)
		}
		l, err := Open(context.Background(), dir, o)
		if err == nil {
			_, err = readAll(l)
			if err := l.Close(); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "00000000000000000000.log") || !strings.Contains(err.Error(), "at byte") {
			t.Errorf("%s: %v, want ErrCorrupt with file and byte", name, err)
		}
	}
}

// outOfReach makes one file one that may not be opened.
type outOfReach struct {
	vfs.FS
	name string
}

func (f outOfReach) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.OpenFile(name, flag, perm)
}

func (f outOfReach) Lock(name string, off, n int64, exclusive bool) (io.Closer, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.Lock(name, off, n, exclusive)
}

// A file that cannot be read or written is an error of the file system that names it.
func TestBadInput_FilesOutOfReach(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	l := openTest(t, dir, Options{manual: true})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000000000000000000.log", "00000000000000000000.index", recovery.StateFileName, lockFile} {
		fsys := outOfReach{vfs.OS, filepath.Join(dir, name)}
		before := treeOf(t, dir)
		l, err := OpenFS(context.Background(), fsys, dir, Options{manual: true})
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%s: %v, want one about permission that names the file", name, err)
		}
		if d := before.difference(treeOf(t, dir)); d != "" {
			t.Errorf("%s: %v, and %s", name, err, d)
		}
	}
}
