package segment

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse_EveryName(t *testing.T) {
	const n = "00000000000000012345"
	rows := []struct {
		name string
		want Name
	}{
		{n + ".log", Name{Kind: KindLog, Offset: 12345}},
		{"00000000000000000000.index", Name{Kind: KindOffsetIndex}},
		{"09223372036854775807.timeindex", Name{Kind: KindTimeIndex, Offset: math.MaxInt64}},
		{n + ".txnindex", Name{Kind: KindTxnIndex, Offset: 12345}},
		{n + ".snapshot", Name{Kind: KindSnapshot, Offset: 12345}},
		{n + ".snapshot.deleted", Name{Kind: KindSnapshot, Offset: 12345, Suffix: ".deleted"}},
		{n + ".log.cleaned", Name{Kind: KindLog, Offset: 12345, Suffix: ".cleaned"}},
		{n + ".index.swap", Name{Kind: KindOffsetIndex, Offset: 12345, Suffix: ".swap"}},
		{n + ".log.swap.deleted", Name{Kind: KindLog, Offset: 12345, Suffix: ".swap.deleted"}},
		{n + "-0000000007.checkpoint", Name{Kind: KindMetadataSnapshot, Offset: 12345, Number: 7}},
		{n + "-0000000007.checkpoint.part", Name{Kind: KindMetadataSnapshot, Offset: 12345, Number: 7, Suffix: ".part"}},
		{"leader-epoch-checkpoint", Name{Kind: KindLeaderEpochs}},
		{"leader-epoch-checkpoint.tmp", Name{Kind: KindLeaderEpochs, Suffix: ".tmp"}},
		{"partition.metadata", Name{Kind: KindPartitionMetadata}},
		{"oncelog.state", Name{Kind: KindState}},
		{"oncelog.state.tmp", Name{Kind: KindState, Suffix: ".tmp"}},
		{"oncelog.lock", Name{Kind: KindLock}},
		{"oncelog.next", Name{Kind: KindNext}},
		{"oncelog.reserve", Name{Kind: KindReserve}},
		{"oncelog.cursors", Name{Kind: KindCursors}},
		{"oncelog.backup", Name{Kind: KindBackup}},
		{"oncelog.unfinished.log", Name{Kind: KindUnfinished}},
		{"oncelog.producers-" + n, Name{Kind: KindProducers, Offset: 12345}},
		{"oncelog.cut-" + n + "-00000000000000000078-3", Name{Kind: KindCut, Offset: 12345, Position: 78, Number: 3}},
		{"oncelog.cut-" + n + "-00000000000000000078-0", Name{Kind: KindCut, Offset: 12345, Position: 78}},
	}
	for _, r := range rows {
		got := Parse(r.name)
		if diff := cmp.Diff(r.want, got); diff != "" {
			t.Errorf("%s: %s", r.name, diff)
		}
		if back := got.String(); back != r.name {
			t.Errorf("%s comes back as %s", r.name, back)
		}
	}
	seen := map[Kind]bool{}
	for _, r := range rows {
		seen[r.want.Kind] = true
	}
	for _, p := range patterns {
		if !seen[p.kind] {
			t.Errorf("no row for the pattern of kind %d", p.kind)
		}
	}
}

func TestParse_OtherNames(t *testing.T) {
	for name, want := range map[string]Name{
		"":                               {},
		".":                              {},
		"log":                            {},
		"00000000000000012345":           {},
		"00000000000000012345.logs":      {},
		"00000000000000012345.log.":      {},
		"00000000000000012345.log.old":   {},
		"x00000000000000012345.log":      {Kind: KindIrregular},
		"12345.log":                      {Kind: KindIrregular},
		"12345.log.swap":                 {Kind: KindIrregular, Suffix: ".swap"},
		".log":                           {Kind: KindIrregular},
		"0000000000000000000١.log":       {Kind: KindIrregular}, // an Arabic-Indic digit
		"+0000000000000012345.log":       {Kind: KindIrregular},
		"-0000000000000000001.log":       {Kind: KindIrregular},
		"99999999999999999999.log":       {Kind: KindIrregular}, // beyond 2^63-1
		"09223372036854775808.log":       {Kind: KindIrregular},
		"000000000000000000001.log":      {Kind: KindIrregular}, // 21 digits
		"backup.log":                     {Kind: KindIrregular},
		"00000000000000012345-7.log":     {Kind: KindIrregular},
		"0000000000000000001a.timeindex": {Kind: KindIrregular},
		"oncelog.cut-00000000000000012345-00000000000000000078-03": {},
		"oncelog.cut-00000000000000012345-00000000000000000078-":   {},
		"oncelog.cut-00000000000000012345-00000000000000000078":    {},
		"oncelog.producers-12345":                                  {},
		"oncelog.statex":                                           {},
		"oncelog.":                                                 {},
		".kafka_cleanshutdown":                                     {},
		"00000000000000012345-7.checkpoint":                        {},
	} {
		if diff := cmp.Diff(want, Parse(name)); diff != "" {
			t.Errorf("%q: %s", name, diff)
		}
	}
}

func TestName_Suffixes(t *testing.T) {
	n := Name{Kind: KindLog, Suffix: ".swap.deleted"}
	if diff := cmp.Diff([]string{".swap", ".deleted"}, n.Suffixes()); diff != "" {
		t.Error(diff)
	}
	if !n.HasSuffix(SuffixSwap) || !n.HasSuffix(SuffixDeleted) || n.HasSuffix(SuffixCleaned) || n.HasSuffix("") {
		t.Error("wrong suffixes")
	}
	if s := (Name{Kind: KindLog}).Suffixes(); s != nil {
		t.Errorf("a plain name has suffixes %v", s)
	}
	if s := (Name{Kind: KindIrregular}).String() + (Name{}).String(); s != "" {
		t.Errorf("kinds without a name have %q", s)
	}
}

func TestKafkaOffset(t *testing.T) {
	for name, want := range map[string]int64{
		"00000000000000012345.log.swap": 12345, "12345.snapshot": 12345, "-5.log": -5, "+7.x": 7, "0.": 0,
	} {
		if got, ok := KafkaOffset(name); !ok || got != want {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "5", ".log", "oncelog.state", "99999999999999999999.log", " 5.log", "leader-epoch-checkpoint"} {
		if got, ok := KafkaOffset(name); ok {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{
		"00000000000000012345.log", "00000000000000012345.txnindex.cleaned", "leader-epoch-checkpoint.tmp", "x.log",
		"oncelog.cut-00000000000000012345-00000000000000000078-3", "00000000000000012345-0000000007.checkpoint.part",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n := Parse(name)
		joined := ""
		for _, s := range n.Suffixes() {
			joined += s
		}
		if joined != n.Suffix {
			t.Errorf("suffixes %q of %q", joined, n.Suffix)
		}
		if n.Kind == KindUnknown || n.Kind == KindIrregular {
			return
		}
		if n.Offset < 0 || n.Position < 0 || n.Number < 0 {
			t.Errorf("negative number in %+v", n)
		}
		if back := n.String(); back != name {
			t.Errorf("%q comes back as %q", name, back)
		}
		if again := Parse(n.String()); again != n {
			t.Errorf("%+v comes back as %+v", n, again)
		}
	})
}
