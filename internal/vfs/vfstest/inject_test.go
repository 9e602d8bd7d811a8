package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
)

func TestKind_partition(t *testing.T) {
	methods := make(map[string]bool)
	add := func(typ reflect.Type, not ...string) {
		for i := range typ.NumMethod() {
			if name := typ.Method(i).Name; !slices.Contains(not, name) {
				methods[typ.Name()+"."+name] = false
			}
		}
	}
	add(reflect.TypeFor[vfs.FS]())
	add(reflect.TypeFor[vfs.File](), "Name")
	add(reflect.TypeFor[vfs.Mapping](), "Bytes")
	add(reflect.TypeFor[io.Closer]())
	names := make(map[string]bool)
	for k := range kinds {
		info := kindTable[k]
		if _, ok := methods[info.method]; !ok {
			t.Errorf("kind %d stands for %q, which is no method", k, info.method)
		}
		methods[info.method] = true
		if info.name == "" || names[info.name] {
			t.Errorf("kind %d has the name %q", k, info.name)
		}
		names[info.name] = true
		if o := (Op{Kind: k}); Writes(o) == Reads(o) {
			t.Errorf("%v is not either a read or a write", k)
		}
	}
	for method, covered := range methods {
		if !covered {
			t.Errorf("no kind for %s", method)
		}
	}
}

// use makes one operation of each kind and returns the first error.
func use(fsys vfs.FS) error {
	if err := fsys.MkdirAll("/d", 0o755); err != nil {
		return err
	}
	f, err := fsys.OpenFile("/d/a", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := useFile(f)
	if m != nil {
		defer m.Close()
	}
	if err != nil {
		return err
	}
	l, err := fsys.Lock("/d/lock", 3, 4, true)
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := fsys.Stat("/d/a"); err != nil {
		return err
	}
	if _, err := fsys.ReadDir("/d"); err != nil {
		return err
	}
	if _, err := fsys.BootID("/d"); err != nil {
		return err
	}
	if err := fsys.SetModTime("/d/a", time.UnixMilli(1)); err != nil {
		return err
	}
	if err := fsys.Rename("/d/a", "/d/b"); err != nil {
		return err
	}
	if err := fsys.SyncDir("/d"); err != nil {
		return err
	}
	g, err := fsys.OpenFile("/d/b", os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(g.Close(), fsys.Remove("/d/b"), l.Close(), m.Close(), f.Close())
}

func useFile(f vfs.File) (vfs.Mapping, error) {
	if err := f.Allocate(100); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte("content"), 5); err != nil {
		return nil, err
	}
	if err := errors.Join(f.SyncData(), f.Truncate(50), f.Sync(), f.DropCache(1, 2)); err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(make([]byte, 7), 5); err != nil {
		return nil, err
	}
	if _, err := f.Stat(); err != nil {
		return nil, err
	}
	m, err := f.Map(50, true)
	if err != nil {
		return nil, err
	}
	return m, m.Flush()
}

func TestInject_everyOperation(t *testing.T) {
	var record Record
	var count Count
	must(t, use(Inject(NewMem(), Chain(&record, &count))))
	ops := record.Ops()
	for k := range kinds {
		if count.Of(k) == 0 {
			t.Errorf("no %v", k)
		}
	}
	if count.Of() != len(ops) {
		t.Errorf("%d operations counted, %d recorded", count.Of(), len(ops))
	}
	for _, want := range []Op{
		{Kind: OpWrite, Path: "/d/a", Off: 5, N: 7}, {Kind: OpAllocate, Path: "/d/a", N: 100},
		{Kind: OpLock, Path: "/d/lock", Off: 3, N: 4}, {Kind: OpRename, Path: "/d/a", To: "/d/b"},
		{Kind: OpMap, Path: "/d/a", N: 50}, {Kind: OpFlush, Path: "/d/a", N: 50}, {Kind: OpTruncate, Path: "/d/a", N: 50},
	} {
		if !slices.Contains(ops, want) {
			t.Errorf("no %v in %v", want, ops)
		}
	}

	for _, how := range []How{Instead, Half, Done} {
		for n := 1; ; n++ {
			nth := FailNth(nil, n, Fault{Err: syscall.EIO, How: how}, false)
			err := use(Inject(NewMem(), nth))
			op, failed := nth.Failed()
			if !failed {
				if n <= len(ops) || err != nil {
					t.Fatalf("no operation %d: %v", n, err)
				}
				break
			}
			if n > len(ops)-3 {
				continue // the deferred second closes, whose errors nobody sees
			}
			var pathErr *fs.PathError
			var linkErr *os.LinkError
			if !errors.Is(err, syscall.EIO) || !errors.As(err, &pathErr) && !errors.As(err, &linkErr) {
				t.Errorf("%v fails: %v", op, err)
			}
		}
	}
}

func TestInject_writeFaults(t *testing.T) {
	for how, want := range map[How]string{Instead: "", Half: "abc", Done: "abcdef"} {
		m := NewMem()
		f := mustOpen(t, Inject(m, FailNth(Kinds(OpWrite), 1, Fault{ErrNoSpace, how}, false)), "a", os.O_RDWR|os.O_CREATE)
		n, err := f.WriteAt([]byte("abcdef"), 0)
		if got := content(t, m, "a"); n != len(want) || !errors.Is(err, vfs.ErrNoSpace) || string(got) != want {
			t.Errorf("fault %d: wrote %d bytes, %q, %v", how, n, got, err)
		}
		if _, err := f.WriteAt([]byte("abcdef"), 0); err != nil {
			t.Errorf("the second write fails too: %v", err)
		}
	}
	f := mustOpen(t, Inject(NewMem(), FailNth(Writes, 2, Fault{Err: syscall.EIO}, true)), "a", os.O_RDWR|os.O_CREATE)
	for range 3 {
		if err := f.Sync(); !errors.Is(err, syscall.EIO) {
			t.Errorf("a fault for ever: %v", err)
		}
	}
}

// failedSync returns a file whose unsynced bytes a failed sync has lost, and the file system below the injector.
func failedSync(t *testing.T, how string) (*Mem, vfs.FS, vfs.File) {
	m, plain := synced(t, 2000)
	must(t, plain.Close())
	fault := Fault{Err: syscall.EIO}
	fsys := Inject(m, FailNth(Kinds(OpSync, OpSyncData, OpFlush), 1, fault, false))
	f := mustOpen(t, fsys, "a", os.O_RDWR)
	mustWrite(t, f, 0, bytes.Repeat([]byte("n"), 1000))
	var err error
	switch how {
	case "sync":
		err = f.Sync()
	case "sync of data":
		err = f.SyncData()
	case "flush":
		mp, mapErr := f.Map(2000, true)
		must(t, mapErr)
		mp.Bytes()[1999] = 'n'
		err = mp.Flush()
		must(t, mp.Close())
	}
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("%s: %v", how, err)
	}
	return m, fsys, f
}

func TestInject_failedSyncLosesData(t *testing.T) {
	old := bytes.Repeat([]byte("o"), 2000)
	for _, how := range []string{"sync", "sync of data", "flush"} {
		m, _, f := failedSync(t, how)
		must(t, f.Sync()) // the second sync succeeds, and has nothing to write
		if got := content(t, m, "a"); got[0] != 'n' {
			t.Errorf("%s: the cache lost the new bytes", how)
		}
		for _, o := range []CrashOptions{{Mode: AllLost}, {Mode: AllKept}, {Mode: PowerCut}} {
			if got := content(t, m.Crash(o), "a"); !bytes.Equal(got, old) {
				t.Errorf("%s: %v: a sync after a failed one saved the bytes", how, o.Mode)
			}
		}
		if got := content(t, m.Crash(CrashOptions{}), "a"); got[0] != 'n' {
			t.Errorf("%s: a kill lost the cache", how)
		}

		// A store beside what was lost saves its own sector only.
		mustWrite(t, f, 600, []byte("s"))
		must(t, f.Sync())
		got := content(t, m.Crash(CrashOptions{Mode: AllLost}), "a")
		if got[0] != 'o' || got[600] != 's' || got[1999] != 'o' {
			t.Errorf("%s: a later write saved %q, %q, %q", how, got[0], got[600], got[1999])
		}

		must(t, f.DropCache(0, 0))
		if got := content(t, m, "a"); got[0] != 'o' || got[600] != 's' {
			t.Errorf("%s: a dropped cache still hides the truth", how)
		}
	}
}

func TestInject_failedSyncThenTheSameWrite(t *testing.T) {
	m, _, f := failedSync(t, "sync")
	mustWrite(t, f, 0, bytes.Repeat([]byte("n"), 1000))
	must(t, f.SyncData())
	if got := content(t, m.Crash(CrashOptions{Mode: AllLost}), "a"); got[0] != 'n' || got[999] != 'n' {
		t.Error("writing the lost bytes again does not save them")
	}
}

func TestInject_failedSyncAndMapping(t *testing.T) {
	m, _, f := failedSync(t, "sync")
	mp, err := f.Map(2000, true)
	must(t, err)
	mp.Bytes()[1500] = 'd' // dirty: dropping the cache must keep it
	must(t, f.DropCache(0, 0))
	if b := mp.Bytes(); b[0] != 'o' || b[1500] != 'd' {
		t.Error("a mapping hides the truth, or lost a dirty byte, after the cache was dropped")
	}
	m.opt.KeepMapped = true
	m, _, f = failedSync(t, "sync")
	m.opt.KeepMapped = true
	mp, err = f.Map(2000, true)
	must(t, err)
	must(t, f.DropCache(0, 0))
	if mp.Bytes()[0] != 'n' {
		t.Error("a mapped page was dropped")
	}
}

func TestInject_failedSyncOfGrowth(t *testing.T) {
	lose := func() (*Mem, vfs.File) {
		m, plain := synced(t, 100)
		must(t, plain.Close())
		f := mustOpen(t, Inject(m, FailNth(Kinds(OpSyncData), 1, Fault{Err: syscall.EIO}, false)), "a", os.O_RDWR)
		mustWrite(t, f, 100, bytes.Repeat([]byte("lost"), 2000))
		if err := f.SyncData(); err == nil {
			t.Fatal("no error")
		}
		must(t, f.SyncData())
		return m, f
	}
	expect := func(what string, m *Mem, mode CrashMode, size int) {
		t.Helper()
		if got := content(t, m.Crash(CrashOptions{Mode: mode}), "a"); len(got) != size {
			t.Errorf("%s: size %d, want %d", what, len(got), size)
		}
	}
	m, f := lose()
	expect("after a failed sync and a good one", m, AllKept, 100)
	mustWrite(t, f, 0, []byte("below"))
	must(t, f.SyncData())
	mustWrite(t, f, 0, []byte("start"))
	expect("after a write below", m, AllKept, 8100)

	m, f = lose()
	mustWrite(t, f, 100, []byte("again"))
	expect("after a new write", m, AllKept, 8100)
	must(t, f.SyncData())
	expect("after a new write and a sync", m, AllLost, 8100)

	m, f = lose()
	mp, err := f.Map(8100, true)
	must(t, err)
	mp.Bytes()[8000] = 's'
	must(t, mp.Flush())
	expect("after a store and a flush", m, AllLost, 8100)
}

func TestInject_failedSyncOfCut(t *testing.T) {
	m, plain := synced(t, 3000)
	must(t, plain.Close())
	f := mustOpen(t, Inject(m, FailNth(Kinds(OpSync), 1, Fault{Err: syscall.EIO}, false)), "a", os.O_RDWR)
	must(t, f.Truncate(1000))
	if err := f.Sync(); err == nil {
		t.Fatal("no error")
	}
	must(t, f.Sync())
	if got := content(t, m.Crash(CrashOptions{Mode: AllKept}), "a"); len(got) != 3000 || got[2999] != 'o' {
		t.Errorf("size %d after a cut, a failed sync and a good one", len(got))
	}
	must(t, f.Truncate(3000))
	must(t, f.Sync())
	if got := content(t, m.Crash(CrashOptions{Mode: AllLost}), "a"); len(got) != 3000 || got[999] != 'o' || got[2999] != 0 {
		t.Errorf("size %d after growing and a sync; the last byte is %q", len(got), got[len(got)-1])
	}
}

func TestInject_failedSyncDir(t *testing.T) {
	m := NewMem()
	fsys := Inject(m, FailNth(Kinds(OpSyncDir), 1, Fault{Err: syscall.EIO}, false))
	if err := vfs.WriteFileAtomic(fsys, "a", 0o644, []byte("x")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("atomic write without a sync of the directory: %v", err)
	}
	must(t, fsys.SyncDir("/"))
	if content(t, m, "a") == nil || content(t, m.Crash(CrashOptions{Mode: AllKept}), "a") != nil {
		t.Error("a sync after a failed one saved the name")
	}
}

func TestInject_doneButReported(t *testing.T) {
	m, plain := synced(t, 100)
	must(t, plain.Close())
	fsys := Inject(m, FailNth(Kinds(OpSync, OpRename), 1, Fault{syscall.EIO, Done}, true))
	f := mustOpen(t, fsys, "a", os.O_RDWR)
	mustWrite(t, f, 0, []byte("new"))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if got := content(t, m.Crash(CrashOptions{Mode: AllLost}), "a"); string(got[:3]) != "new" {
		t.Error("a sync that was done is not")
	}
	if err := fsys.Rename("a", "b"); !errors.Is(err, syscall.EIO) || content(t, m, "b") == nil {
		t.Errorf("a rename that was done is not: %v", err)
	}
}

func TestInject_crashAtEachOperation(t *testing.T) {
	m := NewMem()
	var states []string
	look := func(o Op, after bool) {
		c := m.Crash(CrashOptions{Mode: AllLost})
		states = append(states, string(content(t, c, "/a")))
	}
	fsys := Inject(m, Each(Writes, look))
	must(t, vfs.WriteFileAtomic(fsys, "/a", 0o644, []byte("one")))
	must(t, vfs.WriteFileAtomic(fsys, "/a", 0o644, []byte("two")))
	if got := strings.Join(slices.Compact(states), ","); got != ",one,two" || len(states) != 20 {
		t.Errorf("%d states: %s", len(states), got)
	}
}
