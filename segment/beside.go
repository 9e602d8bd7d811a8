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

// shadow is what a reader has found out itself about the aborted transactions of a segment. It stands for the file of the
// transaction index, which is not synced with the log, and which a writer that goes on enters a transaction into a moment
// after its marker.
type shadow struct {
	always bool // the file is not believed later either

	mu   sync.Mutex
	txns []index.AbortedTxn // ascending by marker; guarded by mu
}

// ShadowAborted makes a read-only segment have the aborted transactions of the list, ascending by marker, instead of those
// in the file, and keep in memory what AppendAborted adds, 32 bytes each. The list belongs to the segment from then on. always
// says that the file is wrong, so that ForgetShadow leaves things as they are.
func (s *Segment) ShadowAborted(list []index.AbortedTxn, always bool) {
	s.shadow.Store(&shadow{txns: list, always: always})
}

// ForgetShadow ends what ShadowAborted began, when the file is known to be complete.
func (s *Segment) ForgetShadow() error {
	if k := s.shadow.Load(); k == nil || k.always {
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

func (k *shadow) collect(from, upper int64) (txns []index.AbortedTxn, complete bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return index.Collect(k.txns, from, upper)
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
