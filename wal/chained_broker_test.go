package wal

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// hidden is a file system without the files of ours, as a broker sees it.
type hidden struct{ *vfstest.Mem }

func isOurs(name string) bool {
	base := filepath.Base(name)
	return strings.HasPrefix(base, "oncelog.") && base != lockFile
}

func (h hidden) ReadDir(dir string) ([]vfs.DirEntry, error) {
	list, err := h.Mem.ReadDir(dir)
	return slices.DeleteFunc(list, func(e vfs.DirEntry) bool { return isOurs(e.Name) }), err
}

func (h hidden) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if isOurs(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return h.Mem.OpenFile(name, flag, perm)
}

// broker lets a broker open what a crash left, go on with it in a new leader epoch, and stop, in order or not. Compat is
// the broker, held against Kafka elsewhere.
func (c *chain) broker(m *vfstest.Mem, led ledger, kill bool) error {
	o := c.opts
	o.Compat, o.DamagePolicy, o.Sync = true, TolerateTornTail, SyncNone
	l, err := OpenFS(context.Background(), hidden{m}, simDir, o)
	if err != nil {
		return err
	}
	c.log = l
	defer func() { _ = abandonLog(l) }()
	stored, err := readLevel(l, LogEnd)
	if err != nil {
		return err
	}
	must := led.durable
	if kill {
		must = led.acked
	}
	if len(stored) < must || len(stored) > len(led.sent) {
		return fmt.Errorf("I1: %d batches of %d, %d had been acknowledged for good", len(stored), len(led.sent), must)
	}
	for i, b := range stored {
		if !bytes.Equal(b, led.sent[i].stored) {
			return fmt.Errorf("I4: batch %d is not the one sent there", i)
		}
	}
	c.seen = l.Offsets().LogEnd
	c.adopt(m, led, len(stored), false)
	c.epoch++
	c.weak = true
	l.mu.Lock()
	if _, err = l.epochs.Assign(c.epoch, c.seen); err == nil { // it was elected
		err = l.flushEpochs()
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for range c.rand.IntN(12) {
		switch c.rand.IntN(8) {
		case 0:
			err = c.note("broker's roll", l.Roll())
		case 1:
			err = c.marker()
		default:
			err = c.append()
		}
		if err != nil {
			return err
		}
	}
	c.led.durable = c.led.acked
	c.seen = l.Offsets().LogEnd
	c.end = c.seen
	if c.rand.IntN(2) == 0 {
		c.steps = append(c.steps, "broker killed")
		m.SyncAll()
		return nil
	}
	if err := c.note("broker closed", l.Close()); err != nil {
		return err
	}
	f, err := m.OpenFile(filepath.Join("/data", kafkadir.MarkerFile), vfs.O_RDWR|vfs.O_CREATE, 0o644)
	if err == nil {
		err = f.Close()
	}
	m.SyncAll()
	return err
}
