package kafkatest

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Environment variables that name directories with more fixtures and traces than the package carries.
const (
	FixturesEnv = "ONCELOG_FIXTURES"
	TracesEnv   = "ONCELOG_TRACES"
)

//go:embed testdata/fixtures testdata/traces
var carried embed.FS

// maxUnpacked bounds what a compressed file may grow to, in bytes.
const maxUnpacked = 1 << 30

// source is a place with fixtures or traces: what the package carries, and a directory beside it.
type source struct {
	env    string // name of the environment variable
	folder string // in carried
}

var (
	fixtureSource = source{FixturesEnv, "testdata/fixtures"}
	traceSource   = source{TracesEnv, "testdata/traces"}
)

// dir is the directory that the environment names, nil if it names none.
func (s source) dir() (fs.FS, error) {
	path := os.Getenv(s.env)
	if path == "" {
		return nil, nil
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s=%s: not an absolute path, and tests run in many directories", s.env, path)
	}
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s: %w", s.env, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s=%s: not a directory", s.env, path)
	}
	return os.DirFS(path), nil
}

// own is what the package carries.
func (s source) own() fs.FS {
	sub, err := fs.Sub(carried, s.folder)
	if err != nil {
		panic(err) // a wrong constant
	}
	return sub
}

// names lists what is there, without the given endings, sorted: the directory of the environment if there is one, else
// what the package carries.
func (s source) names(endings ...string) ([]string, error) {
	fsys, err := s.dir()
	if err != nil {
		return nil, err
	}
	if fsys == nil {
		fsys = s.own()
	}
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		for _, ending := range endings {
			if name, ok := strings.CutSuffix(e.Name(), ending); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("%s=%s: nothing there that ends in %s", s.env, os.Getenv(s.env), strings.Join(endings, " or "))
	}
	return names, nil
}

// read returns a file of the given name with the first ending that is there, in the directory of the environment or else
// among what the package carries, uncompressed. A missing one is fs.ErrNotExist.
func (s source) read(name string, endings ...string) ([]byte, error) {
	dir, err := s.dir()
	if err != nil {
		return nil, err
	}
	for _, fsys := range []fs.FS{dir, s.own()} {
		for _, ending := range endings {
			if fsys == nil {
				continue
			}
			p, err := fs.ReadFile(fsys, name+ending)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil && strings.HasSuffix(ending, ".gz") {
				p, err = gunzip(p)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name+ending, err)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func gunzip(p []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err == nil && len(out) > maxUnpacked {
		err = fmt.Errorf("more than %d bytes", maxUnpacked)
	}
	return out, err
}

// unavailable ends a test that asked for something by name: it cannot run where only the package's own choice is.
func (s source) unavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(s.env) == "" {
		t.Skipf("%v: not among what the module carries; %s can name a directory that has it", err, s.env)
	}
	t.Fatal(err)
}
