package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/oncelog/oncelog/index"
	"github.com/oncelog/oncelog/internal/vfs"
	"github.com/oncelog/oncelog/record"
)

// shadow is what a reader has found out itself about the aborted transactions of a segment, from an offset on. There the
// file of the transaction index does not count: it is not synced with the log, and a writer that goes on enters a
// transaction a moment after its marker.
type shadow struct {
	from int64

	mu   sync.Mutex
	txns []index.AbortedTxn // ascending by marker; guarded by mu
}

// ShadowAborted makes a read-only segment keep the aborted transactions whose marker is at or behind from in memory, 32
// bytes each: what the file says of them is left out, and AppendAborted adds to what is kept. It is for whoever reads all
// batches from there on.
func (s *Segment) ShadowAborted(from int64) { s.shadow.Store(&shadow{from: from}) }

// ForgetShadow ends what ShadowAborted began, when the file is known to be complete.
func (s *Segment) ForgetShadow() error {
	if s.shadow.Load() == nil {
		return nil
	}
	if err := s.Park(); err != nil { // so that the file is opened as it is now
		return err
	}
	s.shadow.Store(nil)
	return nil
}

func (k *shadow) add(t index.AbortedTxn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.txns = append(k.txns, t)
}

// merge puts what is kept behind the entries of the file. Whether the file's entries were all could have been said by one
// that does not count.
func (k *shadow) merge(file []index.AbortedTxn, from, upper int64) (txns []index.AbortedTxn, complete bool) {
	for _, t := range file {
		if t.LastOffset < k.from {
			txns = append(txns, t)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.txns {
		if t.LastOffset >= from && t.FirstOffset < upper {
			txns = append(txns, t)
		}
		if t.LastStableOffset >= upper {
			return txns, true
		}
	}
	return txns, false
}

// ClaimedAt returns how many bytes the entry at byte pos of the log file claims to have, also beyond the logical size; 0 if
// there are only zeros, no room for an entry, or a number that none can have. It is for a reader that looks for what
// another process has appended.
func (s *Segment) ClaimedAt(pos int64) (n int64, err error) {
	var head [record.LogOverhead]byte
	err = s.withLog(func(f vfs.File) error {
		if _, err := f.ReadAt(head[:], pos); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("segment: %w", err)
		}
		return nil
	})
	if length := int64(int32(binary.BigEndian.Uint32(head[8:]))); err == nil && length > 0 {
		n = length + record.LogOverhead
	}
	return n, err
}

// ReadBytes fills p with the bytes of the log file from byte pos on, whatever they are.
func (s *Segment) ReadBytes(p []byte, pos int64) error { return s.readAt(p, pos) }
