package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/kafkatest"
)

// TestScripts runs the scripts in testdata. A line "$ command" is a command line of logtool, with "< file" for its
// standard input; what follows up to the next command is its output, lines on stderr with "! " in front, and "exit N"
// unless N is 0. A line "> …" prepares files; see prepare. $DIR is a directory of the test, which no output betrays.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "*.script"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%v, %d scripts", err, len(scripts))
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".script"), func(t *testing.T) {
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			after := runScript(t, string(before))
			if *update {
				if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if after != string(before) {
				t.Errorf("the output has changed (go test -run TestScripts -update writes it down):\n%s", firstDifference(string(before), after))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, strings.Join(w[min(i, len(w)):min(i+4, len(w))], "\n     "), strings.Join(g[min(i, len(g)):min(i+4, len(g))], "\n     "))
		}
	}
	return ""
}

// runScript returns the script with the output that its commands have now.
func runScript(t *testing.T, script string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "$ "):
			fmt.Fprintln(&out, line)
			out.WriteString(command(t, dir, strings.TrimPrefix(line, "$ ")))
		case strings.HasPrefix(line, "> "):
			fmt.Fprintln(&out, line)
			prepare(t, dir, strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, "> "), "$DIR", dir)))
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		case line == "" && !strings.HasSuffix(out.String(), "\n\n"):
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

// now matches what is of the day of the test.
var now = regexp.MustCompile(`"timestamp":1[789]\d{11}`)

func command(t *testing.T, dir, line string) string {
	t.Helper()
	line, inputName, _ := strings.Cut(line, " < ")
	stdin := ""
	if inputName != "" {
		p, err := os.ReadFile(filepath.Join("testdata", inputName))
		if err != nil {
			t.Fatal(err)
		}
		stdin = string(p)
	}
	r := logtool(t, stdin, strings.Fields(strings.ReplaceAll(line, "$DIR", dir))...)
	var out strings.Builder
	hide := func(s string) string {
		return now.ReplaceAllString(strings.ReplaceAll(s, dir, "$DIR"), `"timestamp":NOW`)
	}
	out.WriteString(hide(r.stdout))
	for l := range strings.Lines(r.err) {
		out.WriteString("! " + hide(l))
	}
	if r.status != 0 {
		fmt.Fprintf(&out, "exit %d\n", r.status)
	}
	return out.String()
}

// prepare does one of
//
//	fixture NAME        unpack a log directory that a broker wrote, as $DIR/NAME
//	xor FILE BYTE MASK  change a byte
//	cut FILE SIZE
//	add FILE HEX        append bytes
//	remove FILE
func prepare(t *testing.T, dir string, words []string) {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
	}
	number := func(i int) int {
		n, err := strconv.ParseInt(words[i], 0, 64)
		fail(err)
		return int(n)
	}
	switch words[0] {
	case "fixture":
		from := kafkatest.LoadFixture(t, words[1]).Unpack(t)
		fail(os.CopyFS(filepath.Join(dir, words[1]), os.DirFS(from.LogDir)))
	case "xor":
		p, err := os.ReadFile(words[1])
		fail(err)
		p[number(2)] ^= byte(number(3))
		fail(os.WriteFile(words[1], p, 0o644))
	case "cut":
		fail(os.Truncate(words[1], int64(number(2))))
	case "add":
		more, err := hex.DecodeString(words[2])
		fail(err)
		p, err := os.ReadFile(words[1])
		if !os.IsNotExist(err) {
			fail(err)
		}
		fail(os.WriteFile(words[1], append(p, more...), 0o644))
	case "remove":
		fail(os.Remove(words[1]))
	default:
		t.Fatalf("%q: no such step", words)
	}
}
