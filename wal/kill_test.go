//go:build unix

package wal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oncelog/oncelog/record"
	"github.com/oncelog/oncelog/recovery"
)

// The test binary runs itself as a child that appends and is killed. What the child must know comes in by standard input,
// what it does goes out by a pipe, a line each: one write, which a kill cannot tear.

const (
	killVar       = "ONCELOG_KILL_CHILD"
	killProducers = 4
	killRetries   = 5
)

// killBatch is one batch of a producer. Its bytes follow from producer and index.
type killBatch struct {
	Index int   // among the batches of its producer
	Seq   int32 // of the first record
	First int64 // offset, once it is acknowledged
}

// killLife is what a child gets.
type killLife struct {
	Dir  string
	Mode SyncMode
	Next [killProducers]killBatch   // to go on with
	Last [killProducers][]killBatch // to send again first
}

// killLine is a line of the child. Kinds: started, opened, retried, forgotten, acked, failed.
type killLine struct {
	Kind            string
	Producer, Index int
	Seq             int32
	First           int64
	Dup             bool
	Cut             int // opened: torn tails that were cut off
	Text            string
}

func killOptions(mode SyncMode) Options {
	return Options{Sync: mode, SegmentBytes: 1 << 20, CheckpointBytes: 16 << 10, IndexIntervalBytes: 1024, MaxIndexBytes: 1 << 16,
		SyncEvery: 2 * time.Millisecond}
}

// killRecords is how many records a batch has.
func killRecords(producer, index int) int32 { return 1 + int32((index*7+producer)%3) }

// killValue is unique. Now and then it is so long that a kill can hit the kernel in the middle of copying it.
func killValue(producer, index, n int) []byte {
	v := fmt.Appendf(nil, "producer %d batch %d record %d ", producer, index, n)
	size := 40 + index%200
	if index/8%4 == 3 {
		size = 200_000
	}
	return append(v, bytes.Repeat([]byte{'a' + byte(index%26)}, size)...)
}

func killBytes(producer int, b killBatch) ([]byte, error) {
	w := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: int64(producer), BaseSequence: b.Seq}})
	for i := range killRecords(producer, b.Index) {
		if err := w.Append(time.Now().UnixMilli(), record.Record{Value: killValue(producer, b.Index, int(i))}); err != nil {
			return nil, err
		}
	}
	return w.Batch()
}

// TestKill_Child is the child.
func TestKill_Child(t *testing.T) {
	if os.Getenv(killVar) == "" {
		return // it runs in a process of its own
	}
	out := os.NewFile(3, "pipe")
	say := func(l killLine) {
		p, err := json.Marshal(l)
		if err == nil {
			_, err = out.Write(append(p, '\n'))
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := killChild(os.Stdin, say); err != nil {
		say(killLine{Kind: "failed", Text: err.Error()})
	}
}

func killChild(in io.Reader, say func(killLine)) error {
	var life killLife
	if err := json.NewDecoder(in).Decode(&life); err != nil {
		return err
	}
	say(killLine{Kind: "started"})
	l, err := Open(context.Background(), life.Dir, killOptions(life.Mode))
	if err != nil {
		return err
	}
	r := l.RecoveryReport()
	opened := killLine{Kind: "opened"}
	for _, f := range r.Findings {
		if f.Decision == recovery.CutTail {
			opened.Cut++
		}
	}
	if r.Problems() {
		return fmt.Errorf("a kill is reported as a problem: %v", r.Findings)
	}
	say(opened)
	for producer, list := range life.Last {
		for _, b := range list {
			info, err := killSend(l, producer, b)
			if errors.Is(err, ErrOutOfOrderSequence) {
				say(killLine{Kind: "forgotten", Producer: producer, Index: b.Index, Text: err.Error()})
				continue
			}
			if err != nil {
				return fmt.Errorf("producer %d, retry of %+v: %w", producer, b, err)
			}
			say(killLine{Kind: "retried", Producer: producer, Index: b.Index, First: info.FirstOffset, Dup: info.Duplicate})
		}
	}
	errs := make([]error, killProducers)
	var wg sync.WaitGroup
	for producer, b := range life.Next {
		wg.Go(func() {
			for {
				info, err := killSend(l, producer, b)
				if err != nil {
					errs[producer] = fmt.Errorf("producer %d, %+v: %w", producer, b, err)
					return
				}
				say(killLine{Kind: "acked", Producer: producer, Index: b.Index, Seq: b.Seq, First: info.FirstOffset, Dup: info.Duplicate})
				b.Seq += killRecords(producer, b.Index)
				b.Index++
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func killSend(l *Log, producer int, b killBatch) (AppendInfo, error) {
	p, err := killBytes(producer, b)
	if err != nil {
		return AppendInfo{}, err
	}
	return l.AppendAsLeader(p, LeaderAppend{TransactionVersion: NoTransactionVersion})
}

// killParent keeps the ledger of one log.
type killParent struct {
	life  killLife
	rand  *rand.Rand
	acked [killProducers][]killBatch

	// Of the present child, by producer: whether it got an acknowledgement, and whether the fifth newest acknowledged batch
	// is not remembered. That must be so if the batch that was under way is stored as well, and makes six.
	began, forgotten [killProducers]bool

	kills, inOpen, torn, retried, found int
}

// run starts a child, kills it and takes in what it said.
func (k *killParent) run(oneCPU bool) error {
	in, err := json.Marshal(k.life)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	var said bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill_Child$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), killVar+"=1")
	if oneCPU {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	cmd.Stdin, cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), []*os.File{w}, &said, &said
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return err
	}
	err = k.listen(r, cmd.Process)
	state := cmd.Wait()
	if err == nil && !strings.Contains(fmt.Sprint(state), "killed") {
		err = fmt.Errorf("the child ended by itself: %v\n%s", state, said.Bytes())
	}
	k.kills++
	return err
}

// listen reads what the child says until it is gone, and kills it: mostly some time after its first acknowledgement, now and
// then while it opens the log.
func (k *killParent) listen(r io.Reader, child *os.Process) error {
	kill := func(after time.Duration) { time.AfterFunc(after, func() { child.Kill() }) }
	early := k.rand.IntN(8) == 0
	lines := bufio.NewScanner(r)
	k.began, k.forgotten = [killProducers]bool{}, [killProducers]bool{}
	retries, acks, opened := 0, 0, false
	defer func() { child.Kill() }()
	for lines.Scan() {
		var l killLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("%q: %w", lines.Bytes(), err)
		}
		switch l.Kind {
		case "started":
			if early {
				kill(time.Duration(k.rand.IntN(4000)) * time.Microsecond)
			}
		case "opened":
			k.torn += l.Cut
			opened = true
		case "retried", "forgotten":
			list := k.life.Last[l.Producer]
			want := list[l.Index-list[0].Index]
			k.forgotten[l.Producer] = k.forgotten[l.Producer] || l.Kind == "forgotten"
			switch {
			case l.Kind == "forgotten" && len(list) == killRetries && want == list[0]:
			case l.Kind == "forgotten" || l.First != want.First || !l.Dup:
				return fmt.Errorf("retry of %+v of producer %d is answered with %+v", want, l.Producer, l)
			default:
				k.retried++
			}
			retries++
		case "acked":
			if acks++; acks == 1 && !early {
				kill(2*time.Millisecond + time.Duration(k.rand.IntN(13000))*time.Microsecond)
			}
			if err := k.ack(&l); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s", l.Text)
		}
	}
	want := 0
	for _, list := range k.life.Last {
		want += len(list)
	}
	if acks > 0 && retries != want {
		return fmt.Errorf("%d retries were answered, want %d", retries, want)
	}
	if !opened {
		k.inOpen++
	}
	return lines.Err()
}

// ack takes an acknowledgement in. Only the batch that was under way when the last child was killed may be a duplicate.
func (k *killParent) ack(l *killLine) error {
	list := k.acked[l.Producer]
	b := killBatch{Index: l.Index, Seq: l.Seq, First: l.First}
	began := k.began[l.Producer]
	k.began[l.Producer] = true
	if l.Index != len(list) || l.Dup && began {
		return fmt.Errorf("producer %d acknowledges %+v, which was not next (%d) or new", l.Producer, l, len(list))
	}
	if sixth := l.Dup && len(k.life.Last[l.Producer]) == killRetries; !began && k.forgotten[l.Producer] != sixth {
		return fmt.Errorf("producer %d: oldest of five batches forgotten: %t, a sixth was stored: %t", l.Producer, !sixth, sixth)
	}
	if n := len(list); n > 0 && b.First <= list[n-1].First {
		return fmt.Errorf("producer %d: %+v after %+v", l.Producer, b, list[n-1])
	}
	if l.Dup {
		k.found++
	}
	k.acked[l.Producer] = append(list, b)
	return nil
}

// next prepares the life of the next child.
func (k *killParent) next() {
	for p, list := range k.acked {
		last := list[max(0, len(list)-killRetries):]
		k.life.Last[p] = last
		k.life.Next[p] = killBatch{}
		if n := len(list); n > 0 {
			k.life.Next[p] = killBatch{Index: n, Seq: list[n-1].Seq + killRecords(p, n-1)}
		}
	}
}

// verify reads the whole log: every acknowledged batch is at its offset, offsets have no gap, no value is there twice.
func (k *killParent) verify() (records int64, err error) {
	l, err := Open(context.Background(), k.life.Dir, killOptions(k.life.Mode))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	stored, err := readAll(l)
	if err != nil {
		return 0, err
	}
	var count [killProducers]int
	for _, p := range stored {
		b := record.Batch(p)
		producer := int(b.ProducerID())
		index := count[producer]
		count[producer]++
		if b.BaseOffset() != records {
			return records, fmt.Errorf("batch at offset %d, the one before ends at %d", b.BaseOffset(), records)
		}
		if index < len(k.acked[producer]) && k.acked[producer][index].First != records {
			return records, fmt.Errorf("batch %d of producer %d is at %d, acknowledged at %d", index, producer, records, k.acked[producer][index].First)
		}
		n := 0
		for r, err := range b.Records(record.Limits{}) {
			if err != nil {
				return records, err
			}
			if !bytes.Equal(r.Value, killValue(producer, index, n)) {
				return records, fmt.Errorf("record %d of batch %d of producer %d holds %.60q", n, index, producer, r.Value)
			}
			n++
		}
		if n != int(killRecords(producer, index)) {
			return records, fmt.Errorf("batch %d of producer %d has %d records", index, producer, n)
		}
		records += int64(n)
	}
	for p, n := range count {
		if acked := len(k.acked[p]); n != acked && n != acked+1 {
			return records, fmt.Errorf("%d batches of producer %d, %d were acknowledged", n, p, acked)
		}
	}
	if end := l.Offsets().LogEnd; end != records {
		return records, fmt.Errorf("log end %d, %d records", end, records)
	}
	return records, nil
}

// A process that appends is killed at any moment, again and again. Nothing acknowledged is lost, nothing is there twice, and
// the five newest batches of each producer, sent again, are answered with the offsets that they got at first.
func TestKill_NothingLostNothingTwice(t *testing.T) {
	kills := 450
	if os.Getenv("ONCELOG_LONG") == "1" {
		kills = 3000
	}
	if testing.Short() {
		kills = 30
	}
	const seed = 20
	for i, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			k := &killParent{rand: rand.New(rand.NewPCG(seed, uint64(i)))}
			k.life.Dir, k.life.Mode = t.TempDir(), mode
			for n := range kills / len(modes) {
				if err := k.run(n%2 == 1); err != nil {
					t.Fatalf("seed %d, kill %d: %v", seed, n, err)
				}
				k.next()
			}
			records, err := k.verify()
			if err != nil {
				t.Fatal(err)
			}
			batches := 0
			for _, list := range k.acked {
				batches += len(list)
			}
			t.Logf("%d kills (%d before the log was open), %d torn tails cut, %d retries answered, %d batches found that were stored but not "+
				"acknowledged; %d batches acknowledged, %d records", k.kills, k.inOpen, k.torn, k.retried, k.found, batches, records)
		})
	}
}
