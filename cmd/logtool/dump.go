package main

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/internal/dump"
)

type dumpOptions struct {
	json, noRecords bool
}

func (a *app) dumpCommand() *cobra.Command {
	var o dumpOptions
	cmd := &cobra.Command{
		Use:   "dump DIR|CUTFILE",
		Short: "Show everything that the files of a partition hold",
		Long: `Show every batch, record and index entry, the producer snapshots and the small files of a partition directory,
as they are, and the first thing in each file that cannot be read on. Of a log directory, every partition. A file
oncelog.cut-… with bytes that a recovery cut off is shown like a partition that has nothing but them.

With --json: the document that Kafka's own classes would give (see the package internal/dump), for a log directory an
object with one document for each of its partitions.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.dump(cmd.Context(), args[0], o) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "write JSON")
	cmd.Flags().BoolVar(&o.noRecords, "no-records", false, "leave out the records, those of control batches apart")
	return cmd
}

func (a *app) dump(ctx context.Context, arg string, o dumpOptions) error {
	t, err := a.find(arg)
	if err != nil {
		return err
	}
	if t.cutFile() {
		a, t = a.asPartition(t), &target{path: t.path, kind: partitionDir, holdsLog: true}
	}
	if t.kind == singleFile {
		return fmt.Errorf("%s is a file; a directory is wanted", quote(arg))
	}
	if t.kind == partitionDir && !t.holdsLog {
		return errNoLog(t.path)
	}
	w := bufio.NewWriterSize(a.out, 64<<10)
	damaged, err := a.dumpTarget(ctx, w, t, o)
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	if err == nil && damaged {
		err = errProblems
	}
	return err
}

func (a *app) dumpTarget(ctx context.Context, w *bufio.Writer, t *target, o dumpOptions) (damaged bool, err error) {
	one := func(dir string) error {
		found, err := a.dumpPartition(ctx, w, dir, o)
		damaged = damaged || found
		return err
	}
	if t.kind == partitionDir {
		err := one(t.path)
		if o.json && err == nil {
			_, err = w.WriteString("\n")
		}
		return damaged, err
	}
	separator := "{"
	for _, name := range t.partitions {
		if o.json {
			w.WriteString(separator)
			w.Write(append(dump.AppendString(nil, name), ':'))
			separator = ",\n"
		}
		if err := one(filepath.Join(t.path, name)); err != nil {
			return damaged, err
		}
	}
	if o.json {
		if len(t.partitions) == 0 {
			w.WriteString("{")
		}
		_, err = w.WriteString("}\n")
	}
	return damaged, err
}

func (a *app) dumpPartition(ctx context.Context, w *bufio.Writer, dir string, o dumpOptions) (damaged bool, err error) {
	options := dump.Options{NoRecords: o.noRecords}
	if o.json {
		return dump.WriteJSON(ctx, w, readOnlyFS{a.fsys}, dir, options)
	}
	d := textDump{ctx: ctx, fsys: readOnlyFS{a.fsys}, w: w, o: o}
	err = d.partition(dir)
	return d.damaged, err
}
