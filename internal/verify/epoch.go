package verify

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/dump"
	"github.com/oncelog/oncelog/internal/leaderepoch"
	"github.com/oncelog/oncelog/internal/vfs"
)

// epochCheck holds the leader epochs of batches, which no checksum covers, against the history of epochs. Without a
// history, or with a damaged one, there is nothing to compare with; recovery tells of that.
type epochCheck struct {
	history []leaderepoch.Entry
}

func (c *epochCheck) open(v *verifier) error {
	entries, err := leaderepoch.Read(v.fsys, filepath.Join(v.dir.Path, leaderepoch.FileName))
	switch {
	case err == nil:
		c.history = entries
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrUnsupportedVersion),
		errors.Is(err, vfs.ErrTooLarge), errors.Is(err, vfs.ErrNotRegular):
	default:
		return err
	}
	return nil
}

func (c *epochCheck) batch(found *Findings, name string, e *dump.Entry) {
	b := e.Batch
	if e.Legacy() || b.PartitionLeaderEpoch() < 0 {
		return
	}
	i := sort.Search(len(c.history), func(i int) bool { return c.history[i].StartOffset > b.BaseOffset() })
	if i == 0 || c.history[i-1].Epoch == b.PartitionLeaderEpoch() {
		return
	}
	found.Add(Finding{File: name, Problem: true, Position: Known(e.Position), End: Known(e.End()), Offset: Known(b.BaseOffset()), LastOffset: Known(b.LastOffset()),
		Reason: fmt.Sprintf("the batch has the leader epoch %d, at its offset %s says %d; the records are as they were written",
			b.PartitionLeaderEpoch(), leaderepoch.FileName, c.history[i-1].Epoch)})
}
