package wal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// leftBy are the values that are there after a crash.
func leftBy(t testing.TB, mem *vfstest.Mem, mode vfstest.CrashMode, o Options) []string {
	t.Helper()
	l := openFS(t, mem.Crash(vfstest.CrashOptions{Mode: mode}), o)
	defer l.Close()
	return committed(t, l)
}

// openSynced is openMem on a disk that keeps the directory of the log.
func openSynced(t testing.TB, o Options) (*Log, *vfstest.Mem) {
	t.Helper()
	mem := vfstest.NewMem()
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return openFS(t, mem, o), mem
}

// What each Ack promises in each mode, and no less.
func TestAck_Promises(t *testing.T) {
	for _, mode := range modes {
		o := Options{Sync: mode, manual: true}
		for _, ack := range []Ack{AckSync, AckMemory, AckDisk} {
			for _, named := range []bool{false, true} {
				l, mem := openSynced(t, o)
				put := func(v string) (err error) {
					if named {
						var p *Producer
						if p, err = l.Producer("p", ProducerOptions{Ack: ack}); err == nil {
							_, err = p.Append(Record{Value: []byte(v)})
						}
						return err
					}
					_, err = l.AppendAck(ack, Record{Value: []byte(v)})
					return err
				}
				for _, v := range []string{"a", "b"} {
					if err := put(v); err != nil {
						t.Fatal(err)
					}
				}
				want := []string{"a", "b"}
				if got := leftBy(t, mem, vfstest.Kill, o); !slices.Equal(got, want) {
					t.Errorf("%v, %v, named %v: after a kill %q", mode, ack, named, got)
				}
				onDisk := ack == AckDisk || mode == SyncCommit
				got := leftBy(t, mem, vfstest.PowerCut, o)
				if onDisk && !slices.Equal(got, want) {
					t.Errorf("%v, %v, named %v: after a power cut %q", mode, ack, named, got)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// With AckNone nothing is waited for, and the record comes all the same.
func TestAck_None(t *testing.T) {
	for _, mode := range modes {
		l := openTest(t, t.TempDir(), Options{Sync: mode})
		for i := range 20 {
			if r, err := l.AppendAck(AckNone, Record{Value: fmt.Append(nil, i)}); err != nil || r.First != int64(i) {
				t.Fatalf("%v: %+v, %v", mode, r, err)
			}
		}
		if err := l.Wait(t.Context(), 19, TxnCommitted); err != nil {
			t.Fatal(err)
		}
		if n := len(committed(t, l)); n != 20 {
			t.Errorf("%v: %d records", mode, n)
		}
	}
}

// Appends that come together share a sync also where the mode makes none.
func TestAck_DiskSharesSyncs(t *testing.T) {
	mem := vfstest.NewMem()
	if err := mem.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	const goroutines = 16
	var syncs atomic.Int64
	var l *Log
	fsys := vfstest.Inject(mem, vfstest.Each(func(o vfstest.Op) bool {
		return o.Kind == vfstest.OpSyncData && strings.HasSuffix(o.Path, ".log")
	}, func(_ vfstest.Op, after bool) {
		for !after && syncs.Load() == 0 && l.tickets.Load() < goroutines {
			runtime.Gosched() // the others append meanwhile
		}
		if !after {
			syncs.Add(1)
		}
	}))
	l = openFS(t, fsys, Options{Sync: SyncNone, manual: true})
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			if _, err := l.AppendAck(AckDisk, Record{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := syncs.Load(); n != 1 && n != 2 {
		t.Errorf("%d syncs for %d appends", n, goroutines)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// What a name says of itself with AckDisk is on disk.
func TestAck_DiskNextSequence(t *testing.T) {
	for _, mode := range []SyncMode{SyncInterval, SyncNone} {
		o := Options{Sync: mode, manual: true}
		l, mem := openSynced(t, o)
		lazy, err := l.Producer("p", ProducerOptions{})
		if err == nil {
			_, err = lazy.AppendWithPosition([]byte("1"), Record{})
		}
		if err != nil || lazy.NextSequence() != 1 {
			t.Fatalf("%d, %v", lazy.NextSequence(), err)
		}
		p, err := l.Producer("p", ProducerOptions{Ack: AckDisk})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(leftBy(t, mem, vfstest.PowerCut, o)); n != 1 {
			t.Errorf("%v: opened with AckDisk, and %d records after a power cut", mode, n)
		}
		p.name.mu.Lock()
		_, ticket, err := p.storeBatch(1, []Record{{}}, batchOptions{position: []byte("2")})
		p.name.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if n := p.NextSequence(); n != 1 {
			t.Errorf("%v: next is %d, the second record is not on disk", mode, n)
		}
		if position, _, err := p.LastPosition(); err != nil || string(position) != "1" {
			t.Errorf("%v: position %q, %v", mode, position, err)
		}
		if err := p.acknowledge(ticket); err != nil || p.NextSequence() != 2 {
			t.Errorf("%v: next is %d, %v", mode, p.NextSequence(), err)
		}
		if r, err := p.AppendAt(1, Record{}); err != nil || !r.Duplicate {
			t.Errorf("%v: %+v, %v", mode, r, err)
		}
		pending := p.AppendAsync(Record{})
		if _, err := pending.Wait(context.Background()); err != nil || p.NextSequence() != 3 {
			t.Errorf("%v: next is %d, %v", mode, p.NextSequence(), err)
		}
		if n := len(leftBy(t, mem, vfstest.PowerCut, o)); n != 3 {
			t.Errorf("%v: %d records after a power cut", mode, n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A failed sync fails the append that made it, and the log.
func TestAck_DiskFails(t *testing.T) {
	mem := vfstest.NewMem()
	if err := mem.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	fail := false
	fsys := vfstest.Inject(mem, vfstest.Hook{BeforeOp: func(o vfstest.Op) vfstest.Fault {
		if fail && o.Kind == vfstest.OpSyncData && strings.HasSuffix(o.Path, ".log") {
			return vfstest.Fault{Err: errors.New("bad disk")}
		}
		return vfstest.Fault{}
	}})
	l := openFS(t, fsys, Options{Sync: SyncNone, manual: true})
	fail = true
	for range 2 {
		if _, err := l.AppendAck(AckDisk, Record{}); !errors.Is(err, ErrFailed) {
			t.Errorf("%v", err)
		}
	}
	_ = l.Close()
}

// What a name promises does not go with some settings, and both are named.
func TestProducer_SettingsThatDefeatIt(t *testing.T) {
	l := openTest(t, t.TempDir(), Options{UnknownProducers: UnknownRefused})
	for _, c := range []struct {
		o    ProducerOptions
		says []string
	}{
		{ProducerOptions{Ack: AckNone}, []string{`Producer "p"`, "AckNone"}},
		{ProducerOptions{Ack: 9}, []string{"Ack(9)"}},
		{ProducerOptions{StartAt: 7}, []string{"StartAt 7", "UnknownProducers"}},
	} {
		_, err := l.Producer("p", c.o)
		for _, word := range c.says {
			if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), word) {
				t.Errorf("%+v: %v", c.o, err)
			}
		}
	}
	if p, err := l.Producer("p", ProducerOptions{}); err != nil {
		t.Error(err)
	} else if _, err := p.Append(Record{}); err != nil {
		t.Error(err)
	}
	if _, err := l.AppendAck(9, Record{}); !errors.Is(err, ErrInvalidOptions) {
		t.Error(err)
	}
}
