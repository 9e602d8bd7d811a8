package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the output of the scripts in testdata into them")

// TestMain lets the test binary be the process that the demo kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == demoWriterName {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// result is what a command line did.
type result struct {
	status      int
	stdout, err string
}

// logtool runs a command line.
func logtool(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	status := run(context.Background(), args, strings.NewReader(stdin), &out, &err)
	r := result{status, out.String(), err.String()}
	for _, s := range []string{r.stdout, r.err} {
		if i := strings.IndexFunc(s, func(c rune) bool { return c != '\n' && c != '\t' && !isPlain(string(c)) }); i >= 0 {
			t.Errorf("%q: the output has %q", args, s[i:min(len(s), i+10)])
		}
	}
	return r
}

// must runs a command line that has to succeed, and returns its output.
func must(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	r := logtool(t, stdin, args...)
	if r.status != exitHealthy || r.err != "" {
		t.Fatalf("logtool %q: exit status %d\n%s%s", args, r.status, r.stdout, r.err)
	}
	return r.stdout
}

// tree is the content of everything below a directory, to see that nothing has changed.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := []byte(nil)
		if info.Mode().IsRegular() && info.Size() < 1<<26 {
			if content, err = os.ReadFile(path); err != nil && !os.IsPermission(err) {
				return err
			}
		}
		files[path] = info.Mode().String() + info.ModTime().String() + string(content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestVersion(t *testing.T) {
	if out := must(t, "", "--version"); !strings.HasPrefix(out, "logtool version ") || !strings.Contains(out, runtime.Version()) {
		t.Errorf("--version says %q", out)
	}
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	released := &debug.BuildInfo{GoVersion: "go1.26"}
	released.Main.Version = "v1.2.3"
	checkout := &debug.BuildInfo{GoVersion: "go1.26",
		Settings: []debug.BuildSetting{setting("vcs.revision", "abc"), setting("vcs.modified", "true")}}
	for want, info := range map[string]*debug.BuildInfo{"v1.2.3 go1.26": released, "devel abc modified go1.26": checkout} {
		if got := version(info, true); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
	if got := version(nil, false); got != "unknown" {
		t.Errorf("without build information: %q", got)
	}
}
