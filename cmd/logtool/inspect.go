package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/verify"
	"github.com/oncelog/oncelog/recovery"
)

// inspectSchema is the version of the document that inspect writes.
const inspectSchema = "oncelog.inspect/1"

func (a *app) inspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect DIR|FILE",
		Short: "Tell whether a log is whole, and what an open would do to it",
		Long: `Tell what an open for writing would do to a partition directory, or to each one of a log directory, and what it would
refuse; then verify every checksum and hold every index entry against the log. Of a single file, whether it is whole.

One line for each finding: file, bytes, offsets, the next good offset, what is wrong, and what an open would do.
Nothing is written. Beside a running writer the answer is about the moment of reading.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.inspect(cmd.Context(), args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// inspection is the answer to inspect.
type inspection struct {
	Schema     string            `json:"schema"`
	Path       string            `json:"path"`
	Kind       string            `json:"kind"` // partition, logdir or file
	Healthy    bool              `json:"healthy"`
	Partitions []partitionResult `json:"partitions,omitempty"`
	File       *fileResult       `json:"file,omitempty"`
}

func (a *app) inspect(ctx context.Context, arg string, asJSON bool) error {
	t, err := a.find(arg)
	if err != nil {
		return err
	}
	reader := *a
	reader.fsys = readOnlyFS{a.fsys}
	result := inspection{Schema: inspectSchema, Path: t.path, Kind: [...]string{"partition", "logdir", "file"}[t.kind], Healthy: true}
	switch t.kind {
	case singleFile:
		r, err := reader.inspectFile(ctx, t.path)
		if err != nil {
			return err
		}
		result.File, result.Healthy = r, !r.problems()
	case partitionDir:
		err = reader.inspectInto(ctx, &result, t.path)
		if p := result.Partitions; err == nil && p[0].Segments == 0 && !p[0].found.Refused() {
			err = errNoLog(t.path)
		}
	default:
		for _, name := range t.skipped {
			p := partitionResult{Path: filepath.Join(t.path, name), Verdict: verdictProblems}
			p.found.Add(finding{File: name, Problem: true, Reason: "looks like a partition and is no directory; it was not followed"})
			result.Partitions, result.Healthy = append(result.Partitions, p), false
		}
		for _, name := range t.partitions {
			if err = reader.inspectInto(ctx, &result, filepath.Join(t.path, name)); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	if err := a.printInspection(&result, asJSON); err != nil {
		return err
	}
	if !result.Healthy {
		return errProblems
	}
	return nil
}

// inspectInto adds one partition to the answer.
func (a *app) inspectInto(ctx context.Context, result *inspection, dir string) error {
	p, err := a.inspectPartition(ctx, dir, recovery.TolerateTornTail, true)
	if errors.Is(err, recovery.ErrNotLog) {
		return errNoLog(dir)
	}
	if err != nil {
		return err
	}
	result.Partitions = append(result.Partitions, *p)
	result.Healthy = result.Healthy && !p.found.Problems() && !p.found.Refused()
	return nil
}

func errNoLog(dir string) error { return fmt.Errorf("%s: no log in the directory", quote(dir)) }

// Verdicts about a partition.
const (
	verdictHealthy  = "healthy"  // an open works, and nothing is wrong
	verdictProblems = "problems" // an open for writing works, and something is wrong
	verdictRefused  = "refused"  // an open for writing is refused
)

// partitionResult is what was found in one partition directory.
type partitionResult struct {
	Path     string    `json:"path"`
	Verdict  string    `json:"verdict"`
	Open     *openPlan `json:"open"` // what an open for writing does; null where it was not tried
	Segments int       `json:"segments"`
	LogBytes int64     `json:"logBytes"`
	Checked  *checked  `json:"checked,omitempty"` // what was verified
	Changing bool      `json:"changing"`          // the directory changed while it was read

	Findings []finding `json:"findings"`
	Omitted  int       `json:"findingsOmitted"`
	found    findings
	report   *recovery.Report // what an open would find; nil where it was not tried
}

// openPlan is what an open for writing does.
type openPlan struct {
	WrittenBy     string `json:"writtenBy"` // oncelog, or another program
	Mode          string `json:"mode,omitempty"`
	SameBoot      bool   `json:"sameBoot"`
	InOrder       bool   `json:"closedInOrder"`
	LogStart      int64  `json:"logStart"`
	LogEnd        int64  `json:"logEnd"`
	DurableEnd    *int64 `json:"durableEnd"`
	RecoveryPoint int64  `json:"recoveryPoint"`
	BytesScanned  int64  `json:"bytesScanned"`
	Producers     int    `json:"producers"`
	OpenTxns      int    `json:"openTransactions"`
}

func planOf(r *recovery.Report) *openPlan {
	p := &openPlan{WrittenBy: "another program", SameBoot: r.SameBoot, InOrder: r.Clean, LogStart: r.LogStart, LogEnd: r.LogEnd,
		DurableEnd: knownIf(r.Durable), RecoveryPoint: r.RecoveryPoint, BytesScanned: r.BytesScanned, Producers: r.Producers, OpenTxns: r.OpenTxns}
	if r.Writer == recovery.Us {
		p.WrittenBy, p.Mode = "oncelog", r.Mode.String()
	}
	return p
}

func (a *app) inspectOnce(ctx context.Context, dir string, policy recovery.Policy, all bool) (*partitionResult, error) {
	list, err := dump.List(a.fsys, dir)
	if err != nil {
		return nil, err
	}
	r := &partitionResult{Path: dir, Segments: len(list.Segments)}
	sane, err := a.checkSizes(list, r)
	if err != nil {
		return nil, err
	}
	var report *recovery.Report
	if sane {
		if report, err = a.inspectRecovery(ctx, dir, policy, r); err != nil {
			return nil, err
		}
		r.report = report
	}
	if all {
		c, err := verify.Run(ctx, a.fsys, list, &r.found, report)
		if err != nil {
			return nil, err
		}
		r.Checked = &c
	}
	r.conclude()
	return r, nil
}

// inspectRecovery asks what an open would do.
func (a *app) inspectRecovery(ctx context.Context, dir string, policy recovery.Policy, r *partitionResult) (*recovery.Report, error) {
	boot, err := a.fsys.BootID(dir)
	if err != nil {
		return nil, err
	}
	report, err := recovery.Inspect(ctx, a.fsys, recovery.Params{Dir: dir, Policy: policy, BootID: boot, CheckSegments: true, Logger: discard(), Now: a.now})
	var refused *recovery.RefusedError
	switch {
	case errors.As(err, &refused):
		report = refused.Report
	case isUnsupported(err):
		// Verification names the file. Nothing more can be said of an open: it is refused as soon as it meets the version.
		r.found.Add(finding{File: ".", Problem: true, Decision: recovery.Refuse.String(),
			Reason: strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")})
		return nil, nil
	case err != nil:
		return nil, err
	}
	for _, f := range report.Findings {
		r.found.Add(verify.OfRecovery(dir, f))
	}
	r.Open = planOf(report)
	if report.Writer != recovery.Us {
		// Another program leaves its mark for all its partitions at once.
		m, err := kafkadir.ReadMarker(a.fsys, filepath.Dir(dir))
		if err != nil {
			return nil, err
		}
		r.Open.InOrder = m.Present
	}
	return report, nil
}

// isUnsupported tells whether an error is about a version that only a newer program knows.
func isUnsupported(err error) bool {
	return errors.Is(err, recovery.ErrUnsupportedVersion) || errors.Is(err, index.ErrUnsupportedVersion) || errors.Is(err, checkpoint.ErrUnsupportedVersion)
}

// conclude draws the verdict.
func (r *partitionResult) conclude() {
	r.Findings, r.Omitted = r.found.List, r.found.Omitted
	if r.Findings == nil {
		r.Findings = []finding{}
	}
	switch {
	case r.found.Refused():
		r.Verdict = verdictRefused
	case r.found.Problems():
		r.Verdict = verdictProblems
	default:
		r.Verdict = verdictHealthy
	}
}

func (a *app) printInspection(result *inspection, asJSON bool) error {
	for i := range result.Partitions {
		result.Partitions[i].conclude()
	}
	if asJSON {
		return writeJSON(a.out, result)
	}
	w := bufio.NewWriter(a.out)
	if result.Kind == "logdir" {
		fmt.Fprintf(w, "log directory %s, %s\n", quote(result.Path), count(len(result.Partitions), "partition"))
	}
	for i := range result.Partitions {
		result.Partitions[i].print(w)
	}
	if result.File != nil {
		result.File.print(w)
	}
	return w.Flush()
}

func (r *partitionResult) print(w *bufio.Writer) {
	fmt.Fprintf(w, "partition %s\n", quote(r.Path))
	says := map[string]string{
		verdictHealthy:  "healthy",
		verdictProblems: "problems, but an open for writing works",
		verdictRefused:  "an open for writing is refused",
	}
	fmt.Fprintf(w, "  verdict   %s\n", says[r.Verdict])
	r.printPlan(w)
	if c := r.Checked; c != nil {
		fmt.Fprintf(w, "  verified  %s with %s, %s, %s\n", count(c.Batches, "batch"), count(c.Records, "record"),
			count(c.IndexEntries, "index entry"), count(c.Snapshots, "snapshot"))
	}
	if r.Changing {
		fmt.Fprintf(w, "  changing  the directory was written while it was read\n")
	}
	for i := range r.Findings {
		fmt.Fprintf(w, "  %s\n", lineOf(&r.Findings[i]))
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "  and %d more\n", r.Omitted)
	}
}

func (r *partitionResult) printPlan(w *bufio.Writer) {
	p := r.Open
	if p == nil {
		fmt.Fprintf(w, "  log       %s, %s\n", count(r.Segments, "segment"), count(r.LogBytes, "byte"))
		return
	}
	fmt.Fprintf(w, "  log       offsets %d to %d, %s, %s\n", p.LogStart, p.LogEnd, count(r.Segments, "segment"), count(r.LogBytes, "byte"))
	by := p.WrittenBy
	if p.Mode != "" {
		by += ", " + p.Mode
	}
	if p.InOrder {
		by += ", closed in order"
	} else {
		by += ", not closed in order"
	}
	if p.DurableEnd != nil {
		by += fmt.Sprintf(", durable up to %d", *p.DurableEnd)
	}
	fmt.Fprintf(w, "  written   by %s\n", by)
	fmt.Fprintf(w, "  open      reads %s from offset %d on, then knows %s and %s\n",
		count(p.BytesScanned, "byte"), p.RecoveryPoint, count(p.Producers, "producer"), count(p.OpenTxns, "open transaction"))
}
