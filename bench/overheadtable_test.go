package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/oncelog/oncelog/record"
)

// overhead collects what BenchmarkOverhead found, for the table at the end.
var overhead overheadTable

type overheadTable struct {
	mu   sync.Mutex
	rows map[overheadRow]map[overheadStep]cost
}

type overheadRow struct{ records, bytes int }

// overheadStep is one of the comparisons and, where it has producers, their number.
type overheadStep struct {
	name      string
	producers int
}

var overheadSteps = []overheadStep{{"bytes", 0}, {"check", 1}, {"check", 1000}, {"append", 1}, {"append", 1000}}

// cost is a median with its 95% interval, in nanoseconds and in percent.
type cost struct{ ns, nsLow, nsHigh, percent, percentLow, percentHigh float64 }

func (t *overheadTable) add(b *testing.B, step overheadStep, batch record.Batch, with, ns, percent samples) {
	b.Helper()
	var c cost
	c.ns, c.nsLow, c.nsHigh = ns.interval()
	c.percent, c.percentLow, c.percentHigh = percent.interval()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(with.median(), "with-ns/op")
	b.ReportMetric(c.ns, "cost-ns/op")
	b.ReportMetric(c.nsLow, "cost-low-ns/op")
	b.ReportMetric(c.nsHigh, "cost-high-ns/op")
	b.ReportMetric(c.percent, "cost-%")
	b.ReportMetric(c.percentLow, "cost-low-%")
	b.ReportMetric(c.percentHigh, "cost-high-%")
	b.ReportMetric(float64(batch.Size()), "B/batch")
	b.ReportMetric(share(idBytes, batch.Size()), "12B-%")
	b.ReportMetric(share(idEpochBytes, batch.Size()), "14B-%")

	t.mu.Lock()
	defer t.mu.Unlock()
	row := overheadRow{int(batch.Count()), batch.Size()}
	if t.rows == nil {
		t.rows = map[overheadRow]map[overheadStep]cost{}
	}
	if t.rows[row] == nil {
		t.rows[row] = map[overheadStep]cost{}
	}
	t.rows[row][step] = c
}

// share is n of a batch without any of the fields, in percent.
func share(n, batch int) float64 { return 100 * float64(n) / float64(batch-idEpochBytes) }

// print writes the table in Markdown, if there is anything in it.
func (t *overheadTable) print(w io.Writer) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprint(w, "\nWhat producer id, epoch and sequence cost a batch: median [95% interval] of paired differences.\n\n",
		"| records | bytes | + 12 B | + 14 B | the bytes | and the check, 1 producer | of 1,000 | whole append, 1 producer | of 1,000 |\n",
		"|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	rows := slices.SortedFunc(maps.Keys(t.rows), func(a, b overheadRow) int {
		return cmp.Or(cmp.Compare(a.records, b.records), cmp.Compare(a.bytes, b.bytes))
	})
	for _, r := range rows {
		fmt.Fprintf(w, "| %d | %d | %.2f %% | %.2f %% |", r.records, r.bytes, share(idBytes, r.bytes), share(idEpochBytes, r.bytes))
		for _, step := range overheadSteps {
			c, measured := t.rows[r][step]
			if !measured {
				fmt.Fprint(w, " – |")
				continue
			}
			fmt.Fprintf(w, " %.1f ns [%.1f, %.1f], %.1f %% [%.1f, %.1f] |", c.ns, c.nsLow, c.nsHigh, c.percent, c.percentLow, c.percentHigh)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
