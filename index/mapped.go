package index

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"sync"
	"sync/atomic"

	"github.com/oncelog/oncelog/internal/vfs"
)

// DefaultMaxBytes is Kafka's default of segment.index.bytes.
const DefaultMaxBytes = 10 << 20

// Config says how an index is opened.
type Config struct {
	// MaxBytes is the size up to which an offset or time index may grow, rounded down to whole entries; Kafka's
	// segment.index.bytes. 0 means DefaultMaxBytes. A file that is longer keeps its size as the limit. It reserves
	// nothing, and the transaction index ignores it.
	MaxBytes int32

	// ReadOnly opens an existing file for reading and changes nothing. A missing file is an empty index.
	ReadOnly bool

	// KafkaOpen takes a file as Kafka does: every slot of an offset or time index is an entry, zeros or not, and a
	// transaction index is appended to after a partial entry at its end, which makes all that follows unreadable.
	KafkaOpen bool
}

// mapped is what the offset and the time index have in common: a file of entries of one size, mapped while in use.
//
// Locks are taken in the order wmu, mu, syncMu. A reader holds mu for reading while it looks at buf. An append does
// not take mu: it writes behind the entries that readers may see, and then publishes n.
type mapped struct {
	layout
	path    string
	base    int64
	kafka   bool
	ro      bool
	created bool

	wmu     sync.Mutex // held by whatever changes the index
	length  int64      // guarded by wmu: bytes of the file
	granted int64      // guarded by wmu: bytes of the file that Allocate promised to this handle; 0 before that
	tail    int        // guarded by wmu: slots of zeros found behind the entries at open
	through bool       // guarded by wmu: buf is a copy, so that stores have to go to the file too
	scratch [12]byte   // guarded by wmu

	mu     sync.RWMutex // written to under wmu as well
	closed bool         // guarded by mu
	m      vfs.Mapping  // guarded by mu; nil while unmapped and when through
	buf    []byte       // guarded by mu; nil while unmapped, else whole entries, at least n

	syncMu sync.Mutex  // held over a sync, so that Close waits for it
	file   vfs.File    // changed under wmu and syncMu; nil if missing or closed
	shrunk atomic.Bool // the file was cut since the last sync

	n     atomic.Int64 // entries; raised under wmu, lowered under wmu and mu
	limit atomic.Int64 // bytes the file may have, whole entries; changed under wmu

	lastMu sync.Mutex
	last   pair // guarded by lastMu: the last entry, zero if there is none
}

// pair is an entry as stored: relative offset and position, or timestamp and relative offset.
type pair struct{ key, value int64 }

func openMapped(x *mapped, fsys vfs.FS, path string, base int64, c Config, l layout) error {
	x.layout, x.path, x.base, x.kafka, x.ro = l, path, base, c.KafkaOpen, c.ReadOnly
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if !x.ro && int(c.MaxBytes) < x.size {
		return fmt.Errorf("%w: %s: %d bytes, an entry has %d", ErrInvalidSize, path, c.MaxBytes, x.size)
	}
	x.limit.Store(x.whole(int64(max(c.MaxBytes, 0))))
	f, err := openExisting(fsys, path, x.ro)
	if err == nil && f == nil && !x.ro {
		f, err = create(fsys, path)
		x.created = true
	}
	if err != nil || f == nil {
		return err
	}
	x.file = f
	if err = x.count(); err != nil {
		return errors.Join(err, x.file.Close())
	}
	return nil
}

// openExisting opens path. A missing file is nil.
func openExisting(fsys vfs.FS, path string, readOnly bool) (vfs.File, error) {
	flag := vfs.O_RDWR
	if readOnly {
		flag = vfs.O_RDONLY
	}
	f, err := fsys.OpenFile(path, flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	return f, nil
}

func create(fsys vfs.FS, path string) (vfs.File, error) {
	f, err := fsys.OpenFile(path, vfs.O_RDWR|vfs.O_CREATE|vfs.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	return f, nil
}

// count finds out how many entries the file has and reads the last one. It uses no map: most sealed segments have no
// zero tail, are opened by the thousand and may never be searched.
func (x *mapped) count() error {
	info, err := x.file.Stat()
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if info.Size > math.MaxInt32 {
		return &CorruptError{Path: x.path, Entry: -1,
			Reason: fmt.Sprintf("%d bytes, an index has at most %d", info.Size, math.MaxInt32)}
	}
	x.length = info.Size
	slots := int(x.length) / x.size
	n := slots
	if !x.kafka {
		if n, err = x.beforeZeros(slots); err != nil {
			return err
		}
	}
	x.tail = slots - n
	x.limit.Store(max(x.limit.Load(), x.whole(x.length)))
	x.n.Store(int64(n))
	if n == 0 {
		return nil
	}
	if err = readFull(x.file, x.scratch[:x.size], int64(n-1)*int64(x.size)); err != nil {
		return fmt.Errorf("index: %s: read: %w", x.path, err)
	}
	x.last = x.pairAt(x.scratch[:], 0)
	return nil
}

// beforeZeros returns the number of slots up to the last one that holds anything but zeros.
func (x *mapped) beforeZeros(slots int) (int, error) {
	if slots == 1 {
		return 1, nil
	}
	// Backwards, and in growing pieces: the usual file ends in an entry, a copied one in ten million zeros.
	const first, most = 8 << 10, 512 << 10
	var buf []byte
	for step, end := first, slots*x.size; end > 0; step = min(2*step, most) {
		if len(buf) < min(step, end) {
			buf = make([]byte, min(step, end))
		}
		p := buf[:min(step, end)]
		if err := readFull(x.file, p, int64(end-len(p))); err != nil {
			return 0, fmt.Errorf("index: %s: read: %w", x.path, err)
		}
		end -= len(p)
		if p[0] == 0 && bytes.Equal(p[1:], p[:len(p)-1]) { // all zeros, said by the fastest loop there is
			continue
		}
		i := len(p) - 1
		for p[i] == 0 {
			i--
		}
		return (end+i)/x.size + 1, nil
	}
	return 0, nil
}

func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (x *mapped) whole(n int64) int64 { return n - n%int64(x.size) }

func (x *mapped) used() int64 { return x.n.Load() * int64(x.size) }

func (x *mapped) pairAt(p []byte, i int) pair {
	return pair{x.key.load(p, i*x.size), x.value.load(p, i*x.size)}
}

func (x *mapped) lastPair() (pair, bool) {
	x.lastMu.Lock()
	defer x.lastMu.Unlock()
	return x.last, x.n.Load() > 0
}

// publish makes entry i visible, or what is left of the index after a cut to i+1 entries.
func (x *mapped) publish(i int, last pair) {
	x.lastMu.Lock()
	x.last = last
	x.n.Store(int64(i) + 1)
	x.lastMu.Unlock()
}

// floorOf returns the number of the greatest entry whose column c is not above target, and the entry; -1 if none.
func (x *mapped) floorOf(c column, target int64) (i int, e pair, err error) {
	if err = x.enter(); err != nil {
		return -1, pair{}, err
	}
	defer x.leave(debugFault(), &err)
	i = floor(x.buf, x.size, c, int(x.n.Load()), target)
	if i >= 0 {
		e = x.pairAt(x.buf, i)
	}
	return i, e, nil
}

// copyPairs copies entries from number i on into dst and returns how many it copied, 0 at the end.
func (x *mapped) copyPairs(i int, dst []pair) (n int, err error) {
	if err = x.enter(); err != nil {
		return 0, err
	}
	defer x.leave(debugFault(), &err)
	for end := int(x.n.Load()); n < len(dst) && i+n < end; n++ {
		dst[n] = x.pairAt(x.buf, i+n)
	}
	return n, nil
}

// load maps the file for a reader that found it unmapped. Of many that come at once the first does the work.
func (x *mapped) load() error {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	if x.closed {
		return fmt.Errorf("%w: %s", ErrClosed, x.path)
	}
	return x.loaded()
}

// loaded makes sure that the entries are in memory. The caller holds wmu.
func (x *mapped) loaded() error {
	if x.buf != nil || x.n.Load() == 0 {
		return nil
	}
	return x.remap()
}

// remap maps the file as long as it is now, or reads it into memory where the system refuses a map. The caller holds
// wmu.
func (x *mapped) remap() error {
	info, err := x.file.Stat()
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	want := x.whole(x.length)
	if x.ro {
		want = x.used()
	}
	// Another program may have cut the file since it was opened, and a map that reaches behind the end of a file is
	// a fault waiting for its reader.
	want = min(want, x.whole(info.Size))
	if want < x.used() {
		return &FaultError{Path: x.path, Entry: int(want) / x.size}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.unmap(); err != nil || want == 0 {
		return err
	}
	if x.m, err = x.file.Map(int(want), !x.ro); err == nil {
		x.buf = x.m.Bytes()
		return nil
	}
	x.m = nil
	p := make([]byte, want)
	if err2 := readFull(x.file, p, 0); err2 != nil {
		return fmt.Errorf("index: %w", errors.Join(err, err2))
	}
	x.buf, x.through = p, true
	return nil
}

// unmap gives the memory back. The caller holds wmu and mu.
func (x *mapped) unmap() error {
	m := x.m
	x.m, x.buf, x.through = nil, nil, false
	if m == nil {
		return nil
	}
	if err := m.Close(); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return nil
}
