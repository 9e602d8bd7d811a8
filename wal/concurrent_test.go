package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
	"github.com/oncelog/oncelog/record"
)

// crowd lets many goroutines use one log and keeps the ledger of what they were told. Every record says who appended it,
// in which transaction, and as the how manyeth, and its other bytes follow from that: so a reader can tell from a record
// alone whether it is one that was appended.
type crowd struct {
	t     *testing.T
	l     *Log
	seed  uint64
	begin time.Time

	mu       sync.Mutex
	acks     []ack              // guarded by mu
	outcomes map[txnName]bool   // true: committed; set before the marker is appended; guarded by mu
	seen     map[int64]seen     // batches that readers got, by base offset; guarded by mu
	lasts    map[string]Offsets // newest reading of the offsets of each reader; guarded by mu
	failed   bool               // guarded by mu
}

// ack is an append that was acknowledged.
type ack struct {
	who         string
	n           int64 // of the first record
	records     int64
	first, last int64
	call, done  time.Duration // since the begin
}

type txnName struct {
	who string
	txn int
}

type seen struct {
	crc  uint32
	last int64
}

func (c *crowd) rand(who string) *rand.Rand {
	h := c.seed
	for _, b := range []byte(who) {
		h = h*131 + uint64(b)
	}
	return rand.New(rand.NewPCG(h, 3))
}

func (c *crowd) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.failed {
		c.t.Errorf("seed %d: "+format, append([]any{c.seed}, args...)...)
	}
	c.failed = true
}

// over tells whether a goroutine is to end: the log is closed, or something went wrong.
func (c *crowd) over(what string, err error) bool {
	if err != nil && !errors.Is(err, ErrClosed) {
		c.errorf("%s: %v", what, err)
	}
	return err != nil
}

func valueOf(who string, txn int, n int64) []byte {
	head := fmt.Sprintf("%s|%d|%d|", who, txn, n)
	return append([]byte(head), bytes.Repeat([]byte{byte('a' + n%26)}, int(n*37%211))...)
}

// parseValue is the reverse of valueOf. It is not ok for bytes that nobody appended.
func parseValue(v []byte) (who string, txn int, n int64, ok bool) {
	p := strings.SplitN(string(v), "|", 4)
	if len(p) != 4 {
		return "", 0, 0, false
	}
	txn, err1 := strconv.Atoi(p[1])
	n, err2 := strconv.ParseInt(p[2], 10, 64)
	return p[0], txn, n, err1 == nil && err2 == nil && bytes.Equal(v, valueOf(p[0], txn, n))
}

func (c *crowd) records(who string, n int64, k int) []Record {
	recs := make([]Record, k)
	for i := range recs {
		recs[i] = Record{Value: valueOf(who, -1, n+int64(i))}
	}
	return recs
}

// raw builds the batch of a producer. The keys say how many records it has.
func (c *crowd) raw(who string, txn int, p record.Producer, k int) []byte {
	b := record.NewBuilder(record.BuilderOptions{Producer: &p, Transactional: txn >= 0})
	for i := range k {
		r := record.Record{Key: []byte(fmt.Sprintf("%d/%d", i, k)), Value: valueOf(who, txn, int64(p.BaseSequence)+int64(i))}
		if err := b.Append(time.Now().UnixMilli(), r); err != nil {
			c.errorf("build: %v", err)
		}
	}
	p2, err := b.Batch()
	if err != nil {
		c.errorf("build: %v", err)
	}
	return bytes.Clone(p2)
}

func (c *crowd) now() time.Duration { return time.Since(c.begin) }

// acked takes an acknowledgement down, and checks that readers see what it is about.
func (c *crowd) acked(a ack) {
	o := c.l.Offsets()
	a.done = c.now()
	if o.HighWatermark <= a.last || o.LogEnd <= a.last {
		c.errorf("%s: acknowledged up to %d, readers see %+v", a.who, a.last, o)
	}
	if a.last-a.first+1 != a.records {
		c.errorf("%s: %+v", a.who, a)
	}
	c.mu.Lock()
	c.acks = append(c.acks, a)
	c.mu.Unlock()
}

// plain appends without a name.
func (c *crowd) plain(who string) {
	r := c.rand(who)
	for n := int64(0); ; {
		k := 1 + r.IntN(3)
		call := c.now()
		res, err := c.l.Append(c.records(who, n, k)...)
		if c.over(who, err) {
			return
		}
		c.acked(ack{who: who, n: n, records: int64(k), first: res.First, last: res.Last, call: call})
		n += int64(k)
	}
}

// async keeps several appends in flight.
func (c *crowd) async(who string) {
	type flight struct {
		p *Pending
		a ack
	}
	r := c.rand(who)
	var flying []flight
	land := func(keep int) bool {
		for ; len(flying) > keep; flying = flying[1:] {
			f := flying[0]
			res, err := f.p.Wait(context.Background())
			if c.over(who, err) {
				return false
			}
			f.a.first, f.a.last = res.First, res.Last
			c.acked(f.a)
		}
		return true
	}
	for n := int64(0); ; {
		k := 1 + r.IntN(3)
		f := flight{a: ack{who: who, n: n, records: int64(k), call: c.now()}}
		f.p = c.l.AppendAsync(c.records(who, n, k)...)
		flying = append(flying, f)
		if n += int64(k); !land(r.IntN(16)) {
			land(0) // what was accepted before Close is acknowledged, whatever came of its neighbours
			return
		}
	}
}

// named appends under a name, and appends much of it again.
func (c *crowd) named(who string) {
	r := c.rand(who)
	p, err := c.l.Producer(who, ProducerOptions{})
	if c.over(who, err) {
		return
	}
	var before []ack
	for n := int64(0); ; {
		if len(before) > 0 && r.IntN(3) == 0 {
			a := before[max(0, len(before)-1-r.IntN(5))]
			res, err := p.AppendAt(uint64(a.n), c.records(who, a.n, int(a.records))...)
			if c.over(who, err) {
				return
			}
			if !res.Duplicate || res.First != a.first || res.Last != a.last {
				c.errorf("%s: %+v appended again: %+v", who, a, res)
			}
		}
		again := 0
		if n > 0 {
			again = r.IntN(min(4, int(n)))
		}
		k := 1 + r.IntN(3)
		call := c.now()
		res, err := p.AppendAt(uint64(n)-uint64(again), c.records(who, n-int64(again), again+k)...)
		if c.over(who, err) {
			return
		}
		if res.Skipped != again || res.Duplicate {
			c.errorf("%s: %d of %d stored before: %+v", who, again, again+k, res)
		}
		a := ack{who: who, n: n, records: int64(k), first: res.First, last: res.Last, call: call}
		c.acked(a)
		before = append(before, a)
		if n += int64(k); p.NextSequence() != uint64(n) {
			c.errorf("%s: next %d after %d", who, p.NextSequence(), n)
		}
	}
}

// idempotent sends ready batches, some of them several times at once.
func (c *crowd) idempotent(who string, id int64) {
	r := c.rand(who)
	send := func(n int64, k int) (ack, bool, error) {
		a := ack{who: who, n: n, records: int64(k), call: c.now()}
		info, err := c.l.AppendAsLeader(c.raw(who, -1, record.Producer{ID: id, BaseSequence: int32(n)}, k), LeaderAppend{TransactionVersion: NoTransactionVersion})
		a.first, a.last = info.FirstOffset, info.LastOffset
		return a, info.Duplicate, err
	}
	var before []ack
	for n := int64(0); ; {
		k := 1 + r.IntN(3)
		copies := 1 + r.IntN(3)*r.IntN(2)
		var all sync.WaitGroup
		var mu sync.Mutex
		var first ack
		stored, ended := 0, false
		for i := range copies {
			all.Go(func() {
				a, dup, err := send(n, k)
				end := c.over(who, err)
				mu.Lock()
				defer mu.Unlock()
				if end {
					ended = true
					return
				}
				if first.who != "" && (first.first != a.first || first.last != a.last) {
					c.errorf("%s: copy %d of %d at %d and at %d", who, i, n, first.first, a.first)
				}
				if o := c.l.Offsets(); o.LogEnd <= a.last {
					c.errorf("%s: told %+v (duplicate %v), readers see %+v", who, a, dup, o)
				}
				if first.who == "" || !dup {
					first = a
				}
				if !dup {
					stored++
				}
			})
		}
		all.Wait()
		if ended {
			return
		}
		if stored != 1 {
			c.errorf("%s: %d copies of %d, %d stored", who, copies, n, stored)
		}
		c.acked(first)
		before = append(before, first)
		n += int64(k)
		old := before[max(0, len(before)-1-r.IntN(5))]
		a, dup, err := send(old.n, int(old.records))
		if c.over(who, err) {
			return
		}
		if !dup || a.first != old.first || a.last != old.last {
			c.errorf("%s: retry of %+v: %+v, duplicate %v", who, old, a, dup)
		}
	}
}

// transactional appends transactions and ends them both ways.
func (c *crowd) transactional(who string, id int64) {
	r := c.rand(who)
	seq := int64(0)
	for txn := 0; ; txn++ {
		for range 1 + r.IntN(4) {
			k := 1 + r.IntN(3)
			a := ack{who: who, n: seq, records: int64(k), call: c.now()}
			info, err := c.l.AppendAsLeader(c.raw(who, txn, record.Producer{ID: id, BaseSequence: int32(seq)}, k), LeaderAppend{TransactionVersion: NoTransactionVersion})
			if c.over(who, err) {
				return
			}
			a.first, a.last = info.FirstOffset, info.LastOffset
			c.acked(a)
			seq += int64(k)
			if r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			}
		}
		commit := r.IntN(2) == 0
		c.mu.Lock()
		c.outcomes[txnName{who, txn}] = commit
		c.mu.Unlock()
		m := record.EndTxnMarker{Type: record.Abort}
		if commit {
			m.Type = record.Commit
		}
		if _, err := c.l.AppendEndTxnMarker(record.Producer{ID: id}, m, MarkerAppend{}); c.over(who, err) {
			return
		}
	}
}

// keeper rolls, flushes, takes checkpoints and looks at the log.
func (c *crowd) keeper(who string) {
	r := c.rand(who)
	for {
		var err error
		switch r.IntN(8) {
		case 0, 1:
			err = c.l.Roll()
		case 2:
			err = c.l.Flush()
		case 3:
			err = c.l.Checkpoint()
		case 4:
			err = c.l.TakeProducerSnapshot()
		case 5:
			if hit, found, terr := c.l.OffsetForTimestamp(c.begin.UnixMilli()); found && hit.Offset != 0 {
				c.errorf("%s: first record since the begin is %+v", who, hit)
			} else {
				err = terr
			}
		case 6:
			for e := range c.l.Producers() {
				if e.BatchCount() > 5 {
					c.errorf("%s: %+v", who, e)
				}
			}
			c.l.Stats()
			c.l.OpenTransactions()
		case 7:
			if _, found := c.l.ProducerEntry(NamedProducerID("named")); found {
				c.l.HasLateTransaction(time.Now())
			}
			_, err = c.l.UpdateHighWatermark(0)
		}
		if c.over(who, err) {
			return
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
}

// run lets everybody work until the log is closed, and returns what Tail yielded.
func (c *crowd) run(d time.Duration) map[int64]string {
	var all sync.WaitGroup
	all.Go(func() { c.plain("plain") })
	all.Go(func() { c.plain("second") })
	all.Go(func() { c.async("async") })
	all.Go(func() { c.named("named") })
	all.Go(func() { c.named("another") })
	all.Go(func() { c.idempotent("idempotent", 5) })
	all.Go(func() { c.transactional("txn1", 6) })
	all.Go(func() { c.transactional("txn2", 7) })
	all.Go(func() { c.reader("random1") })
	all.Go(func() { c.reader("random2") })
	for i := range Isolation(3) {
		all.Go(func() { c.sequential(fmt.Sprint("level", i), i) })
	}
	tailed := map[int64]string{}
	all.Go(func() { c.tail("tail", tailed) })
	all.Go(func() { c.keeper("keeper1") })
	all.Go(func() { c.keeper("keeper2") })
	var held []*Fetch
	all.Go(func() { held = c.holder("holder") })
	time.Sleep(d)
	if err := c.l.Close(); err != nil {
		c.t.Errorf("close: %v", err)
	}
	all.Wait()
	for _, f := range held {
		if err := f.Close(); err != nil {
			c.t.Error(err)
		}
	}
	return tailed
}

// verify opens the log again and holds it against the ledger.
func (c *crowd) verify(dir string, o Options, tailed map[int64]string) {
	t := c.t
	l := openTest(t, dir, o)
	if r := l.RecoveryReport(); !r.Clean || len(r.Findings) > 0 {
		t.Errorf("after Close: %+v", r)
	}
	stored, err := readAll(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkProducers(l, stored); err != nil {
		t.Error(err)
	}
	values := map[int64][]byte{}
	inLog := map[int64]seen{}
	next := int64(0)
	count := map[string]int64{}
	for _, p := range stored {
		b := record.Batch(p)
		if b.BaseOffset() != next {
			t.Fatalf("batch at %d where %d comes next", b.BaseOffset(), next)
		}
		next = b.NextOffset()
		inLog[b.BaseOffset()] = seen{crc: b.CRC(), last: b.LastOffset()}
		for _, r := range c.batch("check", b) {
			values[r.Offset] = r.Value
			// In the order in which each appended, nothing twice, nothing left out.
			who, _, n, _ := parseValue(r.Value)
			if n != count[who] {
				t.Fatalf("record %d of %s is its %d, want %d", r.Offset, who, n, count[who])
			}
			count[who]++
		}
	}
	for base, s := range c.seen {
		if inLog[base] != s {
			t.Errorf("a reader got a batch %+v at %d, the log holds %+v", s, base, inLog[base])
		}
	}
	slices.SortFunc(c.acks, func(a, b ack) int { return int(a.first - b.first) })
	latest := ack{call: -1} // the one that was called last of those with lower offsets
	for _, a := range c.acks {
		for i := range a.records {
			if who, _, n, _ := parseValue(values[a.first+i]); who != a.who || n != a.n+i {
				t.Fatalf("%+v is not at its offset: %q", a, values[a.first+i])
			}
		}
		if latest.call > a.done {
			t.Errorf("%+v returned before %+v was called, and lies behind it", a, latest)
		}
		if a.call > latest.call {
			latest = a
		}
	}
	want := map[int64]string{}
	for at, v := range values {
		who, txn, _, _ := parseValue(v)
		if txn < 0 || c.outcomes[txnName{who, txn}] && at < l.Offsets().LastStable {
			want[at] = string(v)
		}
	}
	maps.DeleteFunc(want, func(at int64, _ string) bool { return at >= l.Offsets().LastStable })
	got := map[int64]string{}
	for s, err := range l.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		got[s.Offset] = string(s.Value)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d committed records, want %d", len(got), len(want))
	}
	end := int64(-1)
	for at := range tailed {
		end = max(end, at)
	}
	maps.DeleteFunc(want, func(at int64, _ string) bool { return at > end })
	if !maps.Equal(tailed, want) {
		t.Errorf("a tail got %d records, want %d up to %d", len(tailed), len(want), end)
	}
	t.Logf("seed %d: %d batches, %d acknowledgements, %d segments, tail up to %d", c.seed, len(stored), len(c.acks), l.Stats().Segments, end)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// openFiles are the descriptors and maps of this process that lie in dir, where the system tells.
func openFiles(t *testing.T, dir string) (list []string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) {
			list = append(list, to)
		}
	}
	m, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(m)) {
		if strings.Contains(line, dir) {
			list = append(list, line)
		}
	}
	return list
}

// lateSyncs is an injector that makes syncs take their time.
func lateSyncs() vfstest.Injector {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 1))
	return vfstest.Each(vfstest.Kinds(vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir), func(_ vfstest.Op, after bool) {
		mu.Lock()
		d := time.Duration(r.IntN(4000)) * time.Microsecond
		mu.Unlock()
		if after {
			time.Sleep(d)
		}
	})
}

func TestLog_Concurrent(t *testing.T) {
	duration, rounds := 400*time.Millisecond, 1
	if os.Getenv("ONCELOG_LONG") != "" {
		duration, rounds = 2*time.Second, 15
	}
	for _, late := range []bool{false, true} {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%v/late=%v", mode, late), func(t *testing.T) {
				for range rounds {
					seed := rand.Uint64()
					dir := filepath.Join(t.TempDir(), "t-0")
					o := Options{
						Sync: mode, SegmentBytes: 40_000, IndexIntervalBytes: 300, MaxMessageBytes: 4000, GroupBytes: 8000,
						CheckpointBytes: 60_000, SyncEvery: 3 * time.Millisecond, SyncBytes: 10_000, SyncMessages: 500,
					}
					var warnings bytes.Buffer
					o.Logger = slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
					fsys := vfs.OS
					if late {
						fsys = vfstest.Inject(vfs.OS, lateSyncs())
					}
					l, err := OpenFS(context.Background(), fsys, dir, o)
					if err != nil {
						t.Fatal(err)
					}
					c := &crowd{t: t, l: l, seed: seed, begin: time.Now(), outcomes: map[txnName]bool{}, seen: map[int64]seen{}, lasts: map[string]Offsets{}}
					tailed := c.run(duration/2 + time.Duration(seed%uint64(duration)))
					if n := l.Stats().Warnings; n != 0 {
						t.Errorf("seed %d: %d warnings: %s", seed, n, warnings.String())
					}
					c.verify(dir, o, tailed)
					if list := openFiles(t, dir); len(list) > 0 {
						t.Errorf("left open: %v", list)
					}
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}
