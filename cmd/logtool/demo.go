package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/wal"
)

type demoOptions struct {
	records  int64
	seed     uint64
	sync     string
	json, rm bool
}

func (a *app) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo [DIR]",
		Short: "Kill a writer in the middle of its work, and account for every record",
		Long: `Let a second process append records under several names and send some of its batches twice, as over a bad network. Kill
it with SIGKILL while it writes. Open the log again, send again whatever was not acknowledged, and the last batches that
were; append the rest; then read everything back and hold each record against the senders' ledger.

The figures: written is how many records were read back, acknowledged how many had been before the kill, resent how many
were sent again after it, duplicates how many the log recognised, in both processes. bytesScanned, bytesCut and
recoverMillis are about the first open after the kill. lost and doubled have to be 0, else the exit status is 1.

The directory, by default a temporary one, is left for other commands; --rm removes it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("seed") {
				o.seed = rand.Uint64() >> 32
			}
			return a.demo(cmd.Context(), args, o)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&o.records, "records", 1_000_000, "how many records to append")
	f.Uint64Var(&o.seed, "seed", 0, "decides batch sizes, repetitions and the moment of the kill; default: a random one")
	f.StringVar(&o.sync, "sync", "commit", "commit, interval or none: what an acknowledgement promises; a kill takes back none of them")
	f.BoolVar(&o.json, "json", false, "write the figures as JSON and nothing else")
	f.BoolVar(&o.rm, "rm", false, "remove the directory at the end")
	return cmd
}

// demoFigures is what demo reports.
type demoFigures struct {
	Written       int64 `json:"written"`
	Acknowledged  int64 `json:"acknowledged"`
	Resent        int64 `json:"resent"`
	Duplicates    int64 `json:"duplicates"`
	BytesScanned  int64 `json:"bytesScanned"`
	BytesCut      int64 `json:"bytesCut"`
	RecoverMillis int64 `json:"recoverMillis"` // rounded up
	Lost          int64 `json:"lost"`
	Doubled       int64 `json:"doubled"`
}

func (a *app) demo(ctx context.Context, args []string, o demoOptions) (err error) {
	if o.records < 1 || o.records > 1<<31 {
		return fmt.Errorf("--records %d is not between 1 and %d", o.records, int64(1<<31))
	}
	if _, ok := syncModes[o.sync]; !ok {
		return fmt.Errorf("--sync %s is none of commit, interval and none", quote(o.sync))
	}
	dir, made, err := demoDir(args)
	if err != nil {
		return err
	}
	d := demo{a: a, dir: dir, o: o, random: rand.New(rand.NewPCG(o.seed, 1))}
	defer func() {
		interrupted := ctx.Err() != nil && made
		if o.rm || interrupted {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := d.run(ctx); err != nil {
		return err
	}
	if o.json {
		err = writeJSONLine(a.out, d.figures)
	} else {
		err = d.print()
	}
	if err == nil && (d.figures.Lost != 0 || d.figures.Doubled != 0) {
		err = errProblems
	}
	return err
}

// demoDir returns an empty directory, and whether it was made for this run.
func demoDir(args []string) (dir string, made bool, err error) {
	if len(args) == 0 {
		dir, err = os.MkdirTemp("", "oncelog-demo-")
		return dir, true, err
	}
	dir = absolute(args[0])
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return dir, false, os.MkdirAll(dir, 0o755)
	case err != nil:
		return "", false, err
	case len(entries) > 0:
		return "", false, fmt.Errorf("%s is not empty", quote(dir))
	}
	return dir, false, nil
}

// demo is one run.
type demo struct {
	a       *app
	dir     string
	o       demoOptions
	random  *rand.Rand
	ledger  ledger
	figures demoFigures
}

// say tells what happens, for those who watch.
func (d *demo) say(format string, args ...any) error {
	if d.o.json {
		return nil
	}
	_, err := fmt.Fprintf(d.a.out, format+"\n", args...)
	return err
}

func (d *demo) run(ctx context.Context) error {
	kill := int64(float64(d.o.records) * (0.15 + 0.7*d.random.Float64()))
	if err := d.say("writing    %d records of %s into %s, seed %d", d.o.records, count(demoProducers, "producer"), quote(d.dir), d.o.seed); err != nil {
		return err
	}
	if err := d.writeAndKill(ctx, kill); err != nil {
		return err
	}
	for _, n := range d.ledger.acknowledged {
		d.figures.Acknowledged += n
	}
	if err := d.say("killed     when %d records had been acknowledged", d.figures.Acknowledged); err != nil {
		return err
	}
	if err := d.goOn(ctx); err != nil {
		return err
	}
	return d.readBack(ctx)
}

// writeAndKill starts the writer and kills it when so many records were acknowledged. What it had written into the ledger
// by then counts.
func (d *demo) writeAndKill(ctx context.Context, kill int64) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.CommandContext(ctx, self, demoWriterName, d.dir,
		fmt.Sprintf("--records=%d", d.o.records), fmt.Sprintf("--seed=%d", d.o.seed), "--sync="+d.o.sync)
	var complaints bytes.Buffer
	child.Stderr = &complaints
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	killed := false
	err = d.ledger.read(out, func() error {
		if killed || d.ledger.total < kill {
			return nil
		}
		killed = true
		return child.Process.Kill()
	})
	waitErr := child.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case waitErr != nil && !killed:
		return fmt.Errorf("the writer failed: %w: %s", waitErr, strings.TrimSpace(complaints.String()))
	}
	return nil
}

// goOn opens the log after the kill, and lets every producer go on.
func (d *demo) goOn(ctx context.Context) error {
	start := time.Now()
	l, err := wal.OpenFS(ctx, d.a.fsys, d.dir, demoLogOptions(d.o))
	if err != nil {
		return err
	}
	elapsed := time.Since(start)
	r := l.RecoveryReport()
	d.figures.BytesScanned, d.figures.BytesCut = r.BytesScanned, r.BytesCut
	d.figures.RecoverMillis = (elapsed + time.Millisecond - 1).Milliseconds()
	err = d.say("recovered  in %v: %s read, %s cut, log end %d", elapsed.Round(10*time.Microsecond), count(r.BytesScanned, "byte"), count(r.BytesCut, "byte"), r.LogEnd)
	if err == nil {
		err = d.resend(ctx, l)
	}
	return errors.Join(err, l.Close())
}

// resend lets the producers send again from a little before what was acknowledged, up to their ends.
func (d *demo) resend(ctx context.Context, l *wal.Log) error {
	var group sync.WaitGroup
	errs := make([]error, demoProducers)
	var mu sync.Mutex
	for i := range demoProducers {
		from := max(0, d.ledger.acknowledged[i]-int64(d.random.IntN(demoOverlap)))
		d.figures.Resent += max(0, d.ledger.sent[i]-from)
		w := newDemoSender(l, i, d.o, from, func(_ byte, _ int, _ int64) error { return nil })
		w.again = func(skipped int) {
			mu.Lock()
			d.figures.Duplicates += int64(skipped)
			mu.Unlock()
		}
		group.Go(func() { errs[i] = w.run(ctx) })
	}
	group.Wait()
	d.figures.Duplicates += d.ledger.duplicates
	return errors.Join(errs...)
}

// readBack reads the whole log, opened once more, and ticks off each record.
func (d *demo) readBack(ctx context.Context) error {
	l, err := wal.OpenFS(ctx, d.a.fsys, d.dir, wal.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer l.Close() // nothing was written
	if err := d.say("reading    offsets %d to %d back", l.Offsets().LogStart, l.Offsets().LogEnd); err != nil {
		return err
	}
	c := newTally(d.o.records)
	for s, err := range l.Records(l.Offsets().LogStart) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := c.tick(&s); err != nil {
			fmt.Fprintf(d.a.err, "logtool: %v\n", err)
		}
	}
	d.figures.Written, d.figures.Doubled = c.read, c.doubled
	d.figures.Lost = c.missing()
	return nil
}

func (d *demo) print() error {
	f := &d.figures
	var b strings.Builder
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"written", f.Written}, {"acknowledged", f.Acknowledged}, {"resent", f.Resent}, {"duplicates", f.Duplicates},
		{"bytesScanned", f.BytesScanned}, {"bytesCut", f.BytesCut}, {"recoverMillis", f.RecoverMillis}, {"lost", f.Lost}, {"doubled", f.Doubled},
	} {
		fmt.Fprintf(&b, "  %-14s%d\n", n.name, n.value)
	}
	if !d.o.rm {
		fmt.Fprintf(&b, "the log is in %s; look into it with\n  %s inspect %s\n", quote(d.dir), programName(), shellQuote(d.dir))
	}
	_, err := fmt.Fprint(d.a.out, b.String())
	return err
}

// programName is how the program was called, as far as that can be repeated.
func programName() string {
	name := os.Args[0]
	if strings.Contains(name, "go-build") {
		return "go run ./cmd/logtool"
	}
	if path, err := exec.LookPath(filepath.Base(name)); err == nil && absolute(path) == absolute(name) {
		return filepath.Base(name)
	}
	return name
}

// shellQuote makes a path one word of a command line.
func shellQuote(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !(r == '/' || r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) < 0 {
		return path
	}
	if isPlain(path) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return quote(path)
}
