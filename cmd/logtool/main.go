// Command logtool looks into, checks, repairs, fills and reads Kafka partition logs: a partition directory, a log
// directory with many of them, or a single file. "logtool help" lists the commands.
//
// It changes nothing unless the command is one that writes (append, demo) or is told to (--apply), and it takes no lock for
// reading, so that it may run beside a writer. What comes out of files, names included, is escaped so far that a terminal
// has nothing to act upon.
//
// The exit status is 0 if all is well, or done; 1 if problems were found; 2 if the command could not run, because of its
// arguments or the file system; 130 if it was interrupted.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
