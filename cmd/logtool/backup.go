package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/segment"
	"github.com/oncelog/oncelog/wal"
)

// backupSchema is the version of the document that backup writes.
const backupSchema = "oncelog.backup/1"

func (a *app) backupCommand() *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:   "backup DIR DEST",
		Short: "Copy a partition into another directory, and later what is new",
		Long: `Copy a partition, as it is at one moment, into the directory DEST, which becomes a partition that was closed in order. Every
checksum is verified on the way; damage ends the copy with exit status 1.

Run again with the same DEST it copies what is new. If the log was truncated in between, what is there is compared first,
and replaced where it differs. A copy that was interrupted is no log, for us and for a broker, until the command has run
again.

A writer of this library may have DIR open: then the copy says so, and is as of now. A Kafka broker must be stopped first.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.backup(cmd.Context(), args[0], args[1], json) },
	}
	cmd.Flags().BoolVar(&json, "json", false, "write JSON")
	return cmd
}

// backupResult is the answer to backup.
type backupResult struct {
	Schema        string `json:"schema"`
	Dir           string `json:"dir"`
	Dest          string `json:"dest"`
	WriterActive  bool   `json:"writer_active"` // somebody had the log open for writing
	Resumed       bool   `json:"resumed"`
	LogStart      int64  `json:"log_start"`
	LogEnd        int64  `json:"log_end"`
	Segments      int    `json:"segments"`
	Copied        int    `json:"segments_copied"`
	Extended      int    `json:"segments_extended"`
	BytesCopied   int64  `json:"bytes_copied"`
	BytesCompared int64  `json:"bytes_compared"`
	Producers     int    `json:"producers"`
}

func (a *app) backup(ctx context.Context, arg, dest string, json bool) error {
	t, err := a.findPartition(arg)
	if err != nil {
		return err
	}
	if err := a.openable(t.path); err != nil {
		return err
	}
	locks, active, err := a.keepWritersOut(t.path)
	for _, c := range locks {
		defer c.Close() // it only kept others out
	}
	if err != nil {
		return err
	}
	if active {
		fmt.Fprintf(a.err, "logtool: a writer has %s open; the backup is of the log as it is now\n", quote(t.path))
	}
	var l *wal.Log
	err = a.settle(ctx, t.path, func() (again bool, err error) {
		l, err = wal.OpenFS(ctx, a.fsys, t.path, wal.Options{ReadOnly: true, Now: a.now})
		return err != nil, err
	}, nil)
	if err != nil {
		return err
	}
	defer l.Close() // nothing was written
	r, err := l.Backup(ctx, dest)
	if isDamage(err) {
		return problem{err}
	}
	if err != nil {
		return err
	}
	if json {
		return writeJSONLine(a.out, backupResult{Schema: backupSchema, Dir: t.path, Dest: r.Dir, WriterActive: active, Resumed: r.Resumed,
			LogStart: r.LogStart, LogEnd: r.LogEnd, Segments: r.Segments, Copied: r.Copied, Extended: r.Extended,
			BytesCopied: r.BytesCopied, BytesCompared: r.Compared, Producers: r.Producers})
	}
	if r.Resumed {
		fmt.Fprintln(a.out, "an earlier copy had been interrupted")
	}
	_, err = fmt.Fprintf(a.out, "%s, offsets %d to %d: %d copied, %d added to, %d there; %d bytes copied, %d compared\n", count(r.Segments, "segment"),
		r.LogStart, r.LogEnd-1, r.Copied, r.Extended, r.Segments-r.Copied-r.Extended, r.BytesCopied, r.Compared)
	return err
}

// keepWritersOut locks a partition as long as it is copied. A writer that has it open already is no obstacle: it says what it
// does to the log. A broker does not.
func (a *app) keepWritersOut(dir string) (locks []io.Closer, active bool, err error) {
	lock := func(path string) error {
		if _, err := a.fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil // locking would make it
		}
		c, err := a.fsys.Lock(path, 0, 1, false)
		switch {
		case err == nil:
			locks = append(locks, c)
		case errors.Is(err, fs.ErrPermission) || errors.Is(err, vfs.ErrReadOnly):
			err = nil // whoever may not write here is not asked to keep others from it
		}
		return err
	}
	err = lock(segment.Name{Kind: segment.KindLock}.Path(dir))
	if active = errors.Is(err, vfs.ErrLocked); active {
		err = nil
	}
	if err == nil {
		err = lock(filepath.Join(filepath.Dir(dir), kafkadir.LockFile))
		if errors.Is(err, vfs.ErrLocked) {
			err = fmt.Errorf("a Kafka broker uses the log directory around %s; stop it first", quote(dir))
		}
	}
	return locks, active, err
}
