package cleaner

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/segment"
)

// files reads all files of the log, but for what a read may make: indexes.
func (l *testLog) files() map[string]string {
	l.t.Helper()
	list, err := l.mem.ReadDir(testDir)
	if err != nil {
		l.t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range list {
		p, err := vfs.ReadFile(l.mem, filepath.Join(testDir, e.Name), 1<<30)
		if err != nil {
			l.t.Fatal(err)
		}
		all[e.Name] = string(p)
	}
	return all
}

func sameFiles(a, b map[string]string) string {
	for name, p := range a {
		if q, ok := b[name]; !ok || q != p {
			return name
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			return name
		}
	}
	return ""
}

// twoSegments is a log in which every kind of batch is.
func twoSegments(t testing.TB) *testLog {
	l := newTestLog(t)
	zipped := record.BuilderOptions{Compression: record.Gzip}
	l.add(l.batch(record.BuilderOptions{}, "a=1", "b"), l.batch(zipped, "a=2", "c=1"), l.batch(inTxn(3, 0), "d=1"))
	l.add(l.batch(producer(1, 0), "a=3"), marker(3, record.Commit), l.batch(zipped, "c=2", "b=2"))
	return l
}

// Whatever bit is wrong in whatever batch, the round stops with the file and the byte, and nothing has changed.
func TestClean_DamageStopsIt(t *testing.T) {
	l := twoSegments(t)
	for s := range l.set.All() {
		good, err := vfs.ReadFile(l.mem, s.Path(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		for at := range int64(len(good)) {
			in := inBatch(t, good, at)
			if in >= 12 && in < 16 {
				continue // the leader epoch, which no checksum covers and nobody here reads
			}
			// Both where the batch is dirty and where it is not.
			for _, dirty := range []int64{0, l.next - 1} {
				if _, err := f.WriteAt([]byte{good[at] ^ 1<<(at%8)}, at); err != nil {
					t.Fatal(err)
				}
				before := l.files()
				r := l.round()
				r.FirstDirty = dirty
				c := New(l.options(), r)
				_, err := c.Index()
				if err == nil {
					var groups [][]*segment.Segment
					if groups, err = c.Groups(); err == nil {
						_, err = c.Clean(groups[0])
					}
				}
				var corrupt *segment.CorruptError
				if !errors.As(err, &corrupt) || corrupt.Path != s.Path() || corrupt.Position > at && in >= 8 {
					t.Fatalf("byte %d of %s, dirty from %d: %v", at, s.Path(), dirty, err)
				}
				if name := sameFiles(before, l.files()); name != "" {
					t.Fatalf("byte %d of %s, dirty from %d: %s changed", at, s.Path(), dirty, name)
				}
			}
			if _, err := f.WriteAt(good[at:at+1], at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, err := l.clean(l.options(), l.round()); err != nil {
		t.Errorf("after all damage was undone: %v", err)
	}
}

// inBatch is how far a byte lies inside its batch.
func inBatch(t *testing.T, p []byte, at int64) int64 {
	begin := int64(0)
	for b, err := range record.All(p) {
		if err != nil {
			t.Fatal(err)
		}
		if at < begin+int64(b.Size()) {
			return at - begin
		}
		begin += int64(b.Size())
	}
	t.Fatalf("byte %d is behind the end", at)
	return 0
}

// A batch whose checksum is right and whose records are nonsense is named.
func TestClean_RecordsThatCannotBeRead(t *testing.T) {
	l := newTestLog(t)
	b := l.batch(record.BuilderOptions{}, "a=1", "b=2")
	b[61] = 0x7f                                      // length of the first record
	b.SetMaxTimestamp(record.LogAppendTime, testTime) // a new checksum
	l.add(l.batch(record.BuilderOptions{}, "c=1"), b, l.batch(record.BuilderOptions{}, "c=2"))
	before := l.files()
	_, _, err := l.clean(l.options(), l.round())
	var bad *BatchError
	if !errors.As(err, &bad) || bad.BaseOffset != 1 || bad.Position <= 0 || !errors.Is(err, record.ErrInvalidRecord) {
		t.Errorf("%v", err)
	}
	if name := sameFiles(before, l.files()); name != "" {
		t.Errorf("%s changed", name)
	}
}

// A failed operation, or an end that is asked for, leaves the log as it was and nothing beside it.
func TestClean_FaultAtEveryOperation(t *testing.T) {
	stop := errors.New("stop")
	for n := 1; ; n++ {
		done := 0
		for _, how := range []string{"fault", "stop"} {
			l := twoSegments(t)
			before := l.files()
			o := l.options()
			want := error(syscall.EIO)
			if how == "fault" {
				kinds := vfstest.Kinds(vfstest.OpCreate, vfstest.OpWrite, vfstest.OpAllocate, vfstest.OpSync, vfstest.OpSyncData,
					vfstest.OpSyncDir, vfstest.OpSetModTime, vfstest.OpTruncate)
				l.fsys = vfstest.Inject(l.mem, vfstest.FailNth(kinds, n, vfstest.Fault{Err: syscall.EIO}, false))
				o.FS = l.fsys
			} else {
				asked := 0
				want = stop
				o.Stop = func() error {
					if asked++; asked == n {
						return stop
					}
					return nil
				}
			}
			c := New(o, l.round())
			_, err := c.Index()
			var groups [][]*segment.Segment
			if err == nil {
				groups, err = c.Groups()
			}
			if err == nil {
				var s *segment.Segment
				if s, err = c.Clean(groups[0]); err == nil {
					done++
					if err := s.Remove(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err != nil && !errors.Is(err, want) {
				t.Fatalf("%s %d: %v", how, n, err)
			}
			if name := sameFiles(before, l.files()); name != "" {
				t.Fatalf("%s %d: %s changed", how, n, name)
			}
		}
		if done == 2 {
			if n < 8 {
				t.Errorf("only %d operations", n)
			}
			return
		}
	}
}

// What an earlier attempt left behind is not in the way.
func TestClean_LeftoverIsOverwritten(t *testing.T) {
	l := twoSegments(t)
	for _, kind := range []segment.Kind{segment.KindLog, segment.KindTxnIndex, segment.KindOffsetIndex} {
		name := segment.Name{Kind: kind, Suffix: segment.SuffixCleaned}.Path(testDir)
		if err := vfs.WriteFileAtomic(l.mem, name, 0o644, bytes.Repeat([]byte("x"), 100)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.clean(l.options(), l.round()); err != nil {
		t.Fatal(err)
	}
	for name, p := range l.files() {
		if strings.Contains(p, "xxxx") {
			t.Errorf("%s is left", name)
		}
	}
}

// The time of change of what is replaced stays: where no record has a time it is all that tells the age.
func TestClean_KeepsTheTimeOfChange(t *testing.T) {
	l := twoSegments(t)
	last := time.UnixMilli(1_600_000_000_000)
	for s := range l.set.All() {
		if err := s.SetModTime(last); err != nil {
			t.Fatal(err)
		}
		last = last.Add(time.Hour)
	}
	if _, _, err := l.clean(l.options(), l.round()); err != nil {
		t.Fatal(err)
	}
	if got, err := l.set.First().ModTime(); err != nil || !got.Equal(last.Add(-time.Hour)) || l.set.Len() != 1 {
		t.Errorf("%v, %v, %d segments", got, err, l.set.Len())
	}
}

// Whatever a log file holds, a round ends, with an error or with a log that can be compacted again.
func FuzzClean(f *testing.F) {
	l := twoSegments(f)
	var all []byte
	for s := range l.set.All() {
		p, err := vfs.ReadFile(l.mem, s.Path(), 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p, int64(0), uint16(100))
		all = append(all, p...)
	}
	f.Add(all, int64(3), uint16(5000))
	f.Fuzz(func(t *testing.T, p []byte, dirty int64, mapBytes uint16) {
		l := newTestLog(t)
		s := l.add()
		if err := vfs.WriteFileAtomic(l.mem, s.Path(), 0o644, p); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		l.set = segment.NewSet(segment.Open(l.mem, testDir, 0, segment.Config{}))
		o := l.options()
		o.MapBytes, o.Limits.MaxRecordBytes = int64(mapBytes), 1<<20
		r := l.round()
		r.Set, r.End, r.FirstDirty = l.set, 1<<40, max(0, dirty%(1<<40-1))
		for range 2 {
			if _, _, err := l.clean(o, r); err != nil {
				return
			}
			r.Set = l.set
		}
	})
}
