package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/internal/verify"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/recovery"
	"github.com/oncelog/oncelog/segment"
	"github.com/oncelog/oncelog/wal"
)

// recoverSchema is the version of the document that recover writes.
const recoverSchema = "oncelog.recover/1"

// policies are the values of --policy.
var policies = map[string]wal.Policy{
	"strict": wal.Strict, "tolerate-torn-tail": wal.TolerateTornTail, "point-in-time": wal.PointInTime,
}

type recoverOptions struct {
	policy                  string
	apply, removeKept, json bool
}

func (a *app) recoverCommand() *cobra.Command {
	var o recoverOptions
	cmd := &cobra.Command{
		Use:   "recover DIR",
		Short: "Show, or with --apply do, what brings a partition back into order",
		Long: `Show which bytes of a partition would be kept aside, cut, trimmed, removed or made anew; with --apply do it, and leave
the log closed in order. Whatever is cut is copied into a file oncelog.cut-… in the directory first. Transactions of named
producers that a dead writer left open are aborted, as by every open for writing; that appends a marker for each.

Then everything is verified, as inspect does it, since an open reads no more than it needs. The exit status is 0 where the
plan can be carried out, or was, though bytes are cut; 1 where the policy refuses it, or something wrong is left that cannot be
repaired from what is there, which is listed.

The policies:
  strict              refuse whenever there is a byte to cut that is not zero
  tolerate-torn-tail  cut what an interrupted write left behind, refuse damage
  point-in-time       cut at the first bad byte, as Kafka does, and remove every later segment

--remove-kept shows the files with the copies that earlier recoveries made, and with --apply removes them; nothing else is
done then.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.recover(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.policy, "policy", "tolerate-torn-tail", "what may be cut: strict, tolerate-torn-tail or point-in-time")
	f.BoolVar(&o.apply, "apply", false, "do it")
	f.BoolVar(&o.removeKept, "remove-kept", false, "be about the files oncelog.cut-… only")
	f.BoolVar(&o.json, "json", false, "write JSON")
	return cmd
}

// recoverResult is the answer to recover.
type recoverResult struct {
	Schema   string    `json:"schema"`
	Path     string    `json:"path"`
	Policy   string    `json:"policy"`
	Applied  bool      `json:"applied"`
	Refused  bool      `json:"refused"`
	LogStart int64     `json:"logStart"`
	LogEnd   int64     `json:"logEnd"`
	BytesCut int64     `json:"bytesCut"` // and kept aside; a plan counts what it knows
	Trimmed  int64     `json:"bytesTrimmed"`
	Findings []finding `json:"findings"`
	Left     []finding `json:"left"` // problems that an open does not notice, or cannot repair
}

// keptResult is the answer to recover --remove-kept.
type keptResult struct {
	Schema  string     `json:"schema"`
	Path    string     `json:"path"`
	Applied bool       `json:"applied"`
	Kept    []keptFile `json:"kept"`
}

// keptFile is a copy of what was cut.
type keptFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func (a *app) recover(ctx context.Context, arg string, o recoverOptions) error {
	policy, ok := policies[o.policy]
	if !ok {
		return fmt.Errorf("--policy %s is none of strict, tolerate-torn-tail and point-in-time", quote(o.policy))
	}
	t, err := a.findPartition(arg)
	if err != nil {
		return err
	}
	if o.removeKept {
		r, err := a.removeKept(t.path, o.apply)
		if err != nil {
			return err
		}
		return a.printKept(r, o.json)
	}
	recoverOrPlan := a.planRecovery
	if o.apply {
		recoverOrPlan = a.applyRecovery
	}
	r, err := recoverOrPlan(ctx, t.path, policy)
	if err != nil {
		return err
	}
	r.Schema, r.Path, r.Policy = recoverSchema, t.path, o.policy
	if r.Findings == nil {
		r.Findings = []finding{}
	}
	if r.Left, err = a.problemsLeft(ctx, r); err != nil {
		return err
	}
	if err := a.printRecovery(r, o); err != nil {
		return err
	}
	if r.Refused || len(r.Left) > 0 {
		return errProblems
	}
	return nil
}

// planRecovery finds out what would be done.
func (a *app) planRecovery(ctx context.Context, dir string, policy wal.Policy) (*recoverResult, error) {
	reader := *a
	reader.fsys = readOnlyFS{a.fsys}
	p, err := reader.inspectPartition(ctx, dir, policy, false)
	if errors.Is(err, recovery.ErrNotLog) || err == nil && p.Segments == 0 && !p.found.Refused() {
		return nil, errNoLog(dir)
	}
	if err != nil {
		return nil, err
	}
	r := &recoverResult{Findings: p.Findings, Refused: p.found.Refused()}
	if p.report == nil {
		return r, nil
	}
	r.LogStart, r.LogEnd, r.BytesCut, r.Trimmed = p.report.LogStart, p.report.LogEnd, p.report.BytesCut, p.report.BytesTrimmed
	for i := range r.Findings {
		f := &r.Findings[i]
		cuts := f.Decision == recovery.CutTail.String() || f.Decision == recovery.CutSegment.String()
		if !cuts || f.Position == nil || f.End == nil {
			continue
		}
		if f.Kept, err = a.freeCutName(dir, segment.Parse(f.File).Offset, *f.Position); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// problemsLeft verifies everything, as inspect does, and returns the problems that a recovery has left, or would leave: an open
// reads no more than it needs, and what is missing nobody can bring back. Of a refused one all is left.
func (a *app) problemsLeft(ctx context.Context, r *recoverResult) ([]finding, error) {
	left := []finding{}
	if r.Refused {
		return left, nil
	}
	policy := policies[r.Policy]
	if r.Applied {
		policy = wal.TolerateTornTail
	}
	reader := *a
	reader.fsys = readOnlyFS{a.fsys}
	p, err := reader.inspectPartition(ctx, r.Path, policy, true)
	if err != nil {
		return nil, err
	}
	for _, f := range p.Findings {
		if f.Problem && (r.Applied || f.Decision == "" && !goes(r.Findings, &f)) {
			left = append(left, f)
		}
	}
	return left, nil
}

// goes tells whether what a finding is about goes with what is cut, or is a file that is made anew.
func goes(list []finding, f *finding) bool {
	at := segment.Parse(f.File)
	for i := range list {
		c := &list[i]
		if c.Decision == recovery.Rebuild.String() && c.File == f.File && at.Kind != segment.KindLog {
			return true
		}
		if c.Decision != recovery.CutTail.String() && c.Decision != recovery.CutSegment.String() || at.Kind == segment.KindUnknown {
			continue
		}
		n := segment.Parse(c.File)
		behind := at.Kind != segment.KindLog || f.Position == nil || c.Position == nil || *f.Position >= *c.Position
		if at.Offset > n.Offset || at.Offset == n.Offset && behind {
			return true
		}
	}
	return false
}

// freeCutName is the name that recovery gives the copy of what it cuts at a place.
func (a *app) freeCutName(dir string, base, position int64) (string, error) {
	for n := int64(0); ; n++ {
		name := segment.Name{Kind: segment.KindCut, Offset: base, Position: position, Number: n}.String()
		there, err := a.exists(filepath.Join(dir, name))
		if err != nil || !there {
			return name, err
		}
	}
}

// applyRecovery opens the log for writing, which recovers it, and closes it in order. What the plan says is refused, of which
// it knows more than the open, is not tried. A directory without a log is not made one, and one that cannot be read within
// reason is not opened.
func (a *app) applyRecovery(ctx context.Context, dir string, policy wal.Policy) (*recoverResult, error) {
	plan, err := a.planRecovery(ctx, dir, policy)
	if err != nil || plan.Refused {
		return plan, err
	}
	l, err := wal.OpenFS(ctx, a.fsys, dir, wal.Options{DamagePolicy: policy, CheckSegments: true, Now: a.now})
	var refused *recovery.RefusedError
	if errors.As(err, &refused) {
		r := resultOf(dir, refused.Report)
		r.Refused = true
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	report := l.RecoveryReport()
	if err := l.Close(); err != nil {
		return nil, err
	}
	r := resultOf(dir, &report)
	r.Applied = true
	return r, nil
}

func resultOf(dir string, report *recovery.Report) *recoverResult {
	var found findings
	for _, f := range report.Findings {
		found.Add(verify.OfRecovery(dir, f))
	}
	return &recoverResult{LogStart: report.LogStart, LogEnd: report.LogEnd, BytesCut: report.BytesCut, Trimmed: report.BytesTrimmed,
		Findings: found.List}
}

// removeKept lists the files with copies of what was cut, and with apply removes them.
func (a *app) removeKept(dir string, apply bool) (r *keptResult, err error) {
	if apply {
		// A recovery that is under way makes a copy before it cuts: nobody may be writing.
		lock, err := a.fsys.Lock(filepath.Join(dir, lockName), 0, 1, true)
		if errors.Is(err, vfs.ErrLocked) {
			return nil, fmt.Errorf("%s: %w: nothing was removed", quote(dir), wal.ErrLocked)
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
	}
	entries, err := a.fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	r = &keptResult{Schema: recoverSchema, Path: dir, Applied: apply, Kept: []keptFile{}}
	for _, e := range entries {
		if segment.Parse(e.Name).Kind != segment.KindCut || e.Kind != vfs.Regular {
			continue
		}
		path := filepath.Join(dir, e.Name)
		info, err := a.fsys.Stat(path)
		if err != nil {
			return nil, err
		}
		if apply {
			if err := a.fsys.Remove(path); err != nil {
				return nil, err
			}
		}
		r.Kept = append(r.Kept, keptFile{Name: e.Name, Bytes: info.Size})
	}
	if apply {
		err = a.fsys.SyncDir(dir)
	}
	return r, err
}

// lockName is the file that a writer holds a lock on.
var lockName = segment.Name{Kind: segment.KindLock}.String()

func (a *app) printRecovery(r *recoverResult, o recoverOptions) error {
	if o.json {
		return writeJSON(a.out, r)
	}
	w := bufio.NewWriter(a.out)
	fmt.Fprintf(w, "partition %s\n", quote(r.Path))
	fmt.Fprintf(w, "  policy    %s\n", r.Policy)
	for i := range r.Findings {
		fmt.Fprintf(w, "  %s\n", strings.Replace(lineOf(&r.Findings[i]), ", kept in ", keptWord(r.Applied), 1))
	}
	for i := range r.Left {
		fmt.Fprintf(w, "  left: %s\n", lineOf(&r.Left[i]))
	}
	fmt.Fprintf(w, "  result    %s\n", r.outcome())
	return w.Flush()
}

func (a *app) printKept(r *keptResult, asJSON bool) error {
	if asJSON {
		return writeJSON(a.out, r)
	}
	w := bufio.NewWriter(a.out)
	fmt.Fprintf(w, "partition %s\n", quote(r.Path))
	for _, k := range r.Kept {
		fmt.Fprintf(w, "  %s, %s\n", k.Name, count(k.Bytes, "byte"))
	}
	switch {
	case len(r.Kept) == 0:
		fmt.Fprintf(w, "  no files were kept\n")
	case r.Applied:
		fmt.Fprintf(w, "  %s removed\n", count(len(r.Kept), "file"))
	default:
		fmt.Fprintf(w, "  nothing was changed; --apply removes them\n")
	}
	return w.Flush()
}

func keptWord(applied bool) string {
	if applied {
		return ", kept in "
	}
	return ", to be kept in "
}

func (r *recoverResult) outcome() string {
	log := fmt.Sprintf("log from offset %d to %d, %s kept aside and cut, %s trimmed",
		r.LogStart, r.LogEnd, count(r.BytesCut, "byte"), count(r.Trimmed, "zero byte"))
	left := ""
	if n := len(r.Left); n > 0 {
		left = fmt.Sprintf("; %s left that no recovery repairs: restore the partition from a copy, or read around it", count(n, "problem"))
	}
	switch {
	case r.Refused:
		return "refused; nothing was changed"
	case r.Applied:
		return "done: " + log + left
	}
	return "planned: " + log + "; nothing was changed, --apply does it" + left
}
