package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/wal"
)

// Exit statuses.
const (
	exitHealthy     = 0
	exitProblems    = 1
	exitCannotRun   = 2
	exitInterrupted = 130
)

// errProblems ends a command that has said what is wrong.
var errProblems = errors.New("problems were found")

// problem is an error that is about the log and not about running the command.
type problem struct{ err error }

func (p problem) Error() string { return p.err.Error() }
func (p problem) Unwrap() error { return p.err }

// app is what the commands have in common.
type app struct {
	in       io.Reader
	out, err io.Writer
	fsys     vfs.FS
	now      func() time.Time
}

// run runs one command line and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{in: stdin, out: stdout, err: stderr, fsys: vfs.OS, now: time.Now}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	return a.status(ctx, err)
}

// status says on stderr how a command ended, and returns its exit status.
func (a *app) status(ctx context.Context, err error) int {
	say := func(text string) {
		// There is nobody left to tell that stderr is gone.
		_, _ = fmt.Fprintf(a.err, "logtool: %s\n", text)
	}
	switch {
	case err == nil:
		return exitHealthy
	case ctx.Err() != nil:
		say("interrupted")
		return exitInterrupted
	case errors.Is(err, errProblems):
		return exitProblems
	}
	say(escapeLines(err.Error()))
	if errors.As(err, new(problem)) || errors.Is(err, wal.ErrRefused) {
		return exitProblems
	}
	return exitCannotRun
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "logtool",
		Short: "Look into, check, repair, fill and read Kafka partition logs",
		Long: strings.TrimSpace(`
Look into, check, repair, fill and read Kafka partition logs, of oncelog and of Apache Kafka.

Nothing is changed unless the command is one that writes (append, demo) or is told to (--apply). Reading takes no lock and
may run beside a writer.

Exit status: 0 healthy or done, 1 problems found, 2 could not run, 130 interrupted.`),
		Version:       version(debug.ReadBuildInfo()),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New(`a command is missing; "logtool help" lists them`)
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(a.inspectCommand(), a.recoverCommand(), a.dumpCommand(), a.catCommand(), a.appendCommand(), a.backupCommand(),
		a.demoCommand(), a.demoWriterCommand())
	return root
}

// version is what --version tells: the version of the module, or of a build of a checkout its revision, and the Go that built it.
func version(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				v += " " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				v += " modified"
			}
		}
	}
	return v + " " + info.GoVersion
}
