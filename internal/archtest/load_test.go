package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/oncelog/oncelog"

// file is one Go file of the module, whatever platform it is for.
type file struct {
	pkg    string // path below the module, "" for its root
	name   string // path below the module, with slashes
	test   bool
	lines  int
	fset   *token.FileSet
	syntax *ast.File
}

// imports are the import paths of a file.
func (f file) imports() []string {
	var out []string
	for _, spec := range f.syntax.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			out = append(out, path)
		}
	}
	return out
}

// at is the place of a node as file and line.
func (f file) at(n ast.Node) string {
	return f.name + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// parse makes a file of source text.
func parse(name string, src []byte) (file, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	pkg := filepath.ToSlash(filepath.Dir(name))
	if pkg == "." {
		pkg = ""
	}
	return file{
		pkg: pkg, name: name, test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(src, []byte{'\n'}), fset: fset, syntax: syntax,
	}, nil
}

// packages runs go list over the module and parses every Go file in the directories of its packages: go list alone shows
// the imports of one platform. The directories are walked as well, because go test takes a result from its cache unless
// a file or a directory changed that the test itself has opened.
var packages = sync.OnceValues(func() ([]file, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	unlisted, err := goDirs("../..")
	if err != nil {
		return nil, err
	}
	var files []file
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Dir string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		pkg := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		delete(unlisted, pkg)
		more, err := parseDir(p.Dir, pkg)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	if len(unlisted) > 0 {
		return nil, fmt.Errorf("go list knows nothing of the directories %v", slices.Sorted(maps.Keys(unlisted)))
	}
	return files, nil
})

// goDirs returns the directories of the module that hold Go files, by their path below root with slashes.
func goDirs(root string) (map[string]bool, error) {
	dirs := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			if filepath.Ext(path) == ".go" {
				rel, err := filepath.Rel(root, filepath.Dir(path))
				dirs[filepath.ToSlash(rel)] = true
				return err
			}
			return nil
		case path == root:
			return nil
		case d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"):
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
			return fs.SkipDir // a module of its own
		}
		return nil
	})
	return dirs, err
}

func parseDir(dir, pkg string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".go" {
			continue
		}
		src, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		f, err := parse(filepath.ToSlash(filepath.Join(pkg, e.Name())), src)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// check runs one rule over all files of the module.
func check(t *testing.T, rule func(file) []string) {
	t.Helper()
	files, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files found", len(files))
	}
	for _, f := range files {
		for _, complaint := range rule(f) {
			t.Error(complaint)
		}
	}
}
