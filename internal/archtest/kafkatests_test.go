package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kafkaTest is a unit test that Kafka has for the storage of a partition, or a few of one kind, and what takes its place here.
type kafkaTest struct {
	class  string
	names  string // of the tests, or what they are about
	tests  string // "package Test Test; package Test": a subtest of TestTrace is a recorded life of Kafka's own log
	not    string // why it does not apply
	cleans bool   // it is about compaction, whose tests are named as they come
}

// Every test that Kafka has for a partition has one here, or a reason why not, and the tests named exist.
func TestKafkaTests(t *testing.T) {
	files, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				exists[f.pkg+" "+fn.Name.Name] = true
			}
		}
	}
	applies, waits := 0, 0
	for _, k := range slices.Concat(kafkaLogTests, kafkaFileTests) {
		switch {
		case k.class == "" || k.names == "":
			t.Errorf("%+v: what is it?", k)
		case k.tests == "" && k.not == "" && k.cleans:
			waits++
		case (k.tests == "") == (k.not == ""):
			t.Errorf("%s %s: either tests, or a reason why it does not apply", k.class, k.names)
		case k.not == "":
			applies++
		}
		for part := range strings.SplitSeq(k.tests, ";") {
			words := strings.Fields(part)
			for i, name := range words {
				if i == 0 {
					continue
				}
				function, trace, _ := strings.Cut(name, "/")
				if !exists[words[0]+" "+function] {
					t.Errorf("%s %s: there is no %s in %s", k.class, k.names, function, words[0])
				}
				if trace != "" && !isTrace(trace) {
					t.Errorf("%s %s: there is no trace %s", k.class, k.names, trace)
				}
			}
		}
	}
	t.Logf("%d have tests, %d about compaction are not named yet, of %d", applies, waits, len(kafkaLogTests)+len(kafkaFileTests))
	if n := len(kafkaLogTests) + len(kafkaFileTests); n != 310 {
		t.Errorf("%d of 310", n)
	}
}

// isTrace tells whether there is a recorded life of that name. The full set is not always at hand.
func isTrace(name string) bool {
	dirs := []string{filepath.Join("..", "kafkatest", "testdata", "traces")}
	all := os.Getenv("ONCELOG_TRACES")
	if all != "" {
		dirs = append(dirs, all)
	}
	for _, dir := range dirs {
		if found, err := filepath.Glob(filepath.Join(dir, name+".jsonl*")); err == nil && len(found) > 0 {
			return true
		}
	}
	return all == ""
}
