package archtest

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestImports(t *testing.T)                   { check(t, importRule) }
func TestNoFileSystemBesides(t *testing.T)       { check(t, osRule) }
func TestNoClock(t *testing.T)                   { check(t, clockRule) }
func TestFileLength(t *testing.T)                { check(t, lengthRule) }
func TestExportedNamesHaveComments(t *testing.T) { check(t, docRule) }

func TestPackageComments(t *testing.T) {
	files, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string][]string{}
	for _, f := range files {
		if _, seen := comments[f.pkg]; !seen {
			comments[f.pkg] = nil
		}
		if doc := f.syntax.Doc; doc != nil && !f.test && strings.HasPrefix(doc.Text(), "Package ") || doc != nil && f.syntax.Name.Name == "main" {
			comments[f.pkg] = append(comments[f.pkg], f.name)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(comments)) {
		if n := len(comments[pkg]); n != 1 {
			t.Errorf("%s: %d package comments %v, want one", pkg, n, comments[pkg])
		}
	}
}

// TestTable keeps the table itself in order: every name in it is a package of the table, and nothing leads in a circle.
func TestTable(t *testing.T) {
	for pkg, targets := range edges {
		for _, to := range targets {
			if _, ok := edges[to]; !ok && to != anything {
				t.Errorf("%s may import %s, which is not in the table", pkg, to)
			}
		}
	}
	const underWay, done = 1, 2
	state := map[string]int{}
	var walk func(pkg string)
	walk = func(pkg string) {
		switch state[pkg] {
		case underWay:
			t.Errorf("the table has a circle through %s", pkg)
			return
		case done:
			return
		}
		state[pkg] = underWay
		for _, to := range edges[pkg] {
			walk(to)
		}
		state[pkg] = done
	}
	for pkg := range edges {
		walk(pkg)
	}
}

// TestRules shows each rule a file that breaks it and one that does not.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  func(file) []string
		path  string
		src   string
		wants string // part of the only complaint; "" for none
	}{
		{"an edge of the table", importRule, "index/a.go", `package index; import _ "` + module + `/internal/vfs"`, ""},
		{"an edge that is not there", importRule, "index/a.go", `package index; import _ "` + module + `/record"`, "index does not import record"},
		{"an upward edge", importRule, "segment/a.go", `package segment; import _ "` + module + `/wal"`, "segment does not import wal"},
		{"a test may look down from anywhere", importRule, "record/a_test.go", `package record; import _ "` + module + `/internal/kafkatest"`, ""},
		{"test support outside tests", importRule, "cmd/logtool/a.go", `package main; import _ "` + module + `/internal/kafkatest"`, "does not import internal/kafkatest"},
		{"assertions", importRule, "segment/a.go", `package segment; import _ "` + module + `/internal/invariants"`, ""},
		{"assertions in record", importRule, "record/a.go", `package record; import _ "` + module + `/internal/invariants"`, "record does not import"},
		{"a package without a place", importRule, "util/a.go", `package util`, "not in the table of packages"},
		{"a module where it belongs", importRule, "internal/vfs/a.go", `package vfs; import _ "github.com/edsrzf/mmap-go"`, ""},
		{"a module elsewhere", importRule, "index/a.go", `package index; import _ "github.com/edsrzf/mmap-go"`, "only internal/vfs may"},
		{"a package inside a module", importRule, "record/a.go", `package record; import _ "github.com/klauspost/compress/zstd"`, ""},
		{"a module whose name begins alike", importRule, "record/a.go", `package record; import _ "github.com/klauspost/compressor"`, "not in the list"},
		{"a command's module in the library", importRule, "wal/a.go", `package wal; import _ "github.com/spf13/cobra"`, "only cmd/logtool may"},
		{"an unknown module", importRule, "wal/a.go", `package wal; import _ "example.com/x"`, "not in the list"},
		{"a module for tests in a test", importRule, "wal/a_test.go", `package wal; import _ "pgregory.net/rapid"`, ""},
		{"a module for tests elsewhere", importRule, "wal/a.go", `package wal; import _ "pgregory.net/rapid"`, "only tests may"},
		{"the old random numbers, in a test too", importRule, "wal/a_test.go", `package wal; import _ "math/rand"`, "imports math/rand"},
		{"the new random numbers", importRule, "wal/a_test.go", `package wal; import _ "math/rand/v2"`, ""},
		{"cgo", importRule, "internal/vfs/a.go", `package vfs; import "C"`, "without cgo"},
		{"a flag of os", osRule, "index/a.go", `package index; import "os"; var x = os.O_RDWR`, ""},
		{"a function of os", osRule, "index/a.go", `package index; import "os"; var x = os.Remove`, "index/a.go:1: uses os.Remove"},
		{"os under another name", osRule, "index/a.go", `package index; import o "os"; var x = o.Remove`, "under another name"},
		{"os in a test", osRule, "index/a_test.go", `package index; import "os"; var x = os.Remove`, ""},
		{"os in a command", osRule, "cmd/logtool/a.go", `package main; import "os"; var x = os.Remove`, ""},
		{"the clock", clockRule, "wal/a.go", `package wal; import "time"; var x = time.Now()`, "calls time.Now"},
		{"the clock as a value", clockRule, "wal/a.go", `package wal; import "time"; var x = time.Now`, ""},
		{"time under another name", clockRule, "wal/a.go", `package wal; import tm "time"; var x = tm.Now()`, "under another name"},
		{"a duration", clockRule, "wal/a.go", `package wal; import "time"; var x = time.Second`, ""},
		{"a long file", lengthRule, "wal/a.go", "package wal\n" + strings.Repeat("\n", 600), "601 lines, at most 600"},
		{"a long test", lengthRule, "wal/a_test.go", "package wal\n" + strings.Repeat("\n", 600), ""},
		{"a function without a comment", docRule, "wal/a.go", "package wal\nfunc F() {}", "F has no comment"},
		{"a comment about something else", docRule, "wal/a.go", "package wal\n// Fx does.\nfunc F() {}", "does not begin with its name"},
		{"a comment", docRule, "wal/a.go", "package wal\n// F does.\nfunc F() {}", ""},
		{"a method without a comment", docRule, "wal/a.go", "package wal\n// T is.\ntype T[K any] int\nfunc (t *T[K]) M() {}", "M has no comment"},
		{"a method nobody sees", docRule, "wal/a.go", "package wal\ntype t int\nfunc (t) M() {}", ""},
		{"a type without a comment", docRule, "wal/a.go", "package wal\ntype T int", "T has no comment"},
		{"a group with one comment", docRule, "wal/a.go", "package wal\n// Both.\nconst (\n A = 1\n B = 2\n)", ""},
		{"a group without", docRule, "wal/a.go", "package wal\nvar (\n A = 1 // one\n B = 2\n)", "B has no comment"},
		{"inside the module only", docRule, "internal/vfs/a.go", "package vfs\nfunc F() {}", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parse(c.path, []byte(c.src))
			if err != nil {
				t.Fatal(err)
			}
			got := c.rule(f)
			switch {
			case c.wants == "" && len(got) > 0:
				t.Errorf("complaints: %q", got)
			case c.wants != "" && (len(got) != 1 || !strings.Contains(got[0], c.wants)):
				t.Errorf("complaints %q, want one with %q", got, c.wants)
			}
		})
	}
}
