package wal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// txnState is how far a transaction has come, as its program knows.
type txnState uint8

const (
	txnOpen       txnState = iota // or aborted: its records must not be seen
	txnCommitting                 // Commit was called and has not returned: all or nothing
	txnCommitted                  // Commit has returned
	txnDurable                    // and a power cut may not take it back
)

// sentTxn is a transaction of the program under test. Its values are "name number record".
type sentTxn struct {
	name   string
	number int
	values []string
	state  txnState
}

// txnCrash is a program with transactions under two names, and plain appends between, on a disk that loses power. After a crash it
// goes on, several times: lives.
type txnCrash struct {
	opts    Options
	rand    *rand.Rand
	sent    []sentTxn
	running map[string]*Transaction
	log     *Log
	plain   int
}

var txnNames = []string{"orders", "payments"}

func (c *txnCrash) last(name string) *sentTxn {
	for i := range slices.Backward(c.sent) {
		if c.sent[i].name == name {
			return &c.sent[i]
		}
	}
	return nil
}

func (c *txnCrash) open(fsys vfs.FS) error {
	l, err := OpenFS(context.Background(), fsys, simDir, c.opts)
	c.log, c.running = l, map[string]*Transaction{}
	return err
}

// step does one random thing.
func (c *txnCrash) step(fsys vfs.FS) error {
	name := txnNames[c.rand.IntN(len(txnNames))]
	txn := c.running[name]
	n := c.rand.IntN(30)
	switch {
	case n == 0:
		return c.settled(errors.Join(c.log.Close(), c.open(fsys)))
	case n == 1:
		return c.settled(c.log.Checkpoint())
	case n == 2:
		return c.settled(c.log.Flush())
	case n == 3:
		return c.log.Roll()
	case n < 8:
		c.plain++
		_, err := c.log.Append(Record{Value: []byte("plain")})
		return err
	case txn == nil:
		p, err := c.log.Producer(name, ProducerOptions{})
		if err != nil {
			return err
		}
		number := 0
		if before := c.last(name); before != nil {
			number = before.number + 1
		}
		c.sent = append(c.sent, sentTxn{name: name, number: number})
		c.running[name], err = p.Begin()
		return err
	case n < 22:
		return c.append(c.last(name), txn)
	}
	delete(c.running, name)
	s := c.last(name)
	if n >= 28 {
		return txn.Abort()
	}
	s.state = txnCommitting
	err := txn.Commit()
	if err == nil {
		s.state = txnCommitted
		if c.opts.Sync == SyncCommit {
			s.state = txnDurable
		}
	}
	return err
}

func (c *txnCrash) append(s *sentTxn, txn *Transaction) error {
	var recs []Record
	for range 1 + c.rand.IntN(3) {
		v := fmt.Sprintf("%s %d %d", s.name, s.number, len(s.values))
		s.values = append(s.values, v)
		recs = append(recs, Record{Value: []byte(v)})
	}
	_, err := txn.AppendWithPosition(fmt.Append(nil, s.number), recs...)
	return err
}

// settled notes that everything committed so far is on disk.
func (c *txnCrash) settled(err error) error {
	for i := range c.sent {
		if err == nil && c.sent[i].state == txnCommitted {
			c.sent[i].state = txnDurable
		}
	}
	return err
}

// check opens what a crash left: each transaction is there as a whole or not at all, as its state says, none is open, the last
// position is that of the last one there, and the names go on. It returns which transactions are there.
func (c *txnCrash) check(fsys vfs.FS, kill bool) (there map[string]bool, err error) {
	l, err := OpenFS(context.Background(), fsys, simDir, c.opts)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if txns := l.OpenTransactions(); len(txns) > 0 {
		return nil, fmt.Errorf("after the open transactions are open: %+v", txns)
	}
	if r := l.RecoveryReport(); r.Problems() {
		return nil, fmt.Errorf("a crash is reported as a problem: %v", r.Findings)
	}
	got := map[string][]string{}
	for r, err := range l.Records(0) {
		if err != nil {
			return nil, err
		}
		if v := string(r.Value); v != "plain" {
			txn := v[:strings.LastIndex(v, " ")]
			got[txn] = append(got[txn], v)
		}
	}
	there, newest := map[string]bool{}, map[string]string{}
	for _, s := range c.sent {
		key := fmt.Sprint(s.name, " ", s.number)
		values, is := got[key]
		delete(got, key)
		switch {
		case is && !slices.Equal(values, s.values):
			return nil, fmt.Errorf("of transaction %s there are %q of %q", key, values, s.values)
		case is && s.state == txnOpen:
			return nil, fmt.Errorf("transaction %s was not committed and is there", key)
		case !is && len(s.values) > 0 && (s.state == txnDurable || s.state == txnCommitted && kill):
			return nil, fmt.Errorf("transaction %s was committed and is not there", key)
		case is:
			there[key], newest[s.name] = true, fmt.Sprint(s.number)
		}
	}
	if len(got) > 0 {
		return nil, fmt.Errorf("nobody sent %v", slices.Collect(maps.Keys(got)))
	}
	for _, name := range txnNames {
		p, err := l.Producer(name, ProducerOptions{})
		if err != nil {
			return nil, err
		}
		if position, _, err := p.LastPosition(); err != nil || string(position) != newest[name] {
			return nil, fmt.Errorf("last position of %s is %q, %v, want %q", name, position, err, newest[name])
		}
		txn, err := p.Begin()
		if err == nil {
			_, err = txn.Append(Record{Value: []byte("plain")})
		}
		if err == nil {
			err = txn.Abort()
		}
		if err != nil {
			return nil, fmt.Errorf("%s does not go on: %w", name, err)
		}
	}
	return there, nil
}

// crash checks a crash and, sometimes, one more inside the open that follows it.
func (c *txnCrash) crash(mem *vfstest.Mem, o vfstest.CrashOptions) error {
	kill := o.Mode == vfstest.Kill
	if _, err := c.check(mem.Crash(o), kill); err != nil {
		return err
	}
	if c.rand.IntN(4) > 0 {
		return nil
	}
	m, at, again := mem.Crash(o), 1+c.rand.IntN(30), vfstest.RandomCrash(c.rand.Uint64())
	var interrupted *vfstest.Mem
	fsys := vfstest.Inject(m, vfstest.Each(vfstest.Writes, func(vfstest.Op, bool) {
		if at--; at == 0 {
			interrupted = m.Crash(again)
		}
	}))
	l, err := OpenFS(context.Background(), fsys, simDir, c.opts)
	if err == nil {
		err = abandonLog(l)
	}
	if err != nil || interrupted == nil {
		return err
	}
	if _, err := c.check(interrupted, kill && again.Mode == vfstest.Kill); err != nil {
		return fmt.Errorf("after an open that was interrupted by %+v: %w", again, err)
	}
	return nil
}

func (c *txnCrash) run(seed uint64, lives, steps int) (states int, err error) {
	mem := vfstest.NewMemWith(vfstest.MemOptions{Seed: seed})
	if err := errors.Join(mem.MkdirAll("/data", 0o755), mem.SyncDir("/")); err != nil {
		return 0, err
	}
	for range lives {
		var failure error
		disk := mem
		fsys := vfstest.Inject(disk, vfstest.Each(vfstest.Writes, func(op vfstest.Op, after bool) {
			if failure != nil || c.rand.IntN(8) > 0 {
				return
			}
			states++
			o := vfstest.RandomCrash(c.rand.Uint64())
			if err := c.crash(disk, o); err != nil {
				failure = fmt.Errorf("crash %+v at %v (after: %v): %w", o, op, after, err)
			}
		}))
		err := c.open(fsys)
		for i := 0; i < steps && err == nil && failure == nil; i++ {
			err = c.step(fsys)
		}
		if err = errors.Join(err, failure); err != nil {
			return states, err
		}
		// The machine goes down, and what is there after that was promised.
		o := vfstest.RandomCrash(c.rand.Uint64())
		mem = disk.Crash(o)
		there, err := c.check(mem.Crash(vfstest.CrashOptions{Mode: vfstest.Kill}), o.Mode == vfstest.Kill)
		if err != nil {
			return states, err
		}
		if err := abandonLog(c.log); err != nil {
			return states, err
		}
		for i := range c.sent {
			s := &c.sent[i]
			if s.state = txnOpen; there[fmt.Sprint(s.name, " ", s.number)] {
				s.state = txnCommitted
			}
		}
		if err := c.open(mem); err != nil {
			return states, err
		}
		if err := c.settled(errors.Join(c.log.Close())); err != nil {
			return states, err
		}
	}
	return states, nil
}

func TestTransaction_PowerCuts(t *testing.T) {
	want := 1000
	if testing.Short() {
		want = 200
	}
	if *crashStates > 0 {
		want = *crashStates
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for states, seed := 0, uint64(1); states < want; seed++ {
				if *crashSeed != 0 {
					seed, states = *crashSeed, want
				}
				c := &txnCrash{rand: rand.New(rand.NewPCG(seed, 11))}
				c.opts = Options{Sync: mode, SegmentBytes: 900, CheckpointBytes: 700, IndexIntervalBytes: 200, manual: true}
				n, err := c.run(seed, 3, 50)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				states += n
			}
		})
	}
}
