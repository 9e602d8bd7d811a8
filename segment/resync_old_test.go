package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/oncelog/oncelog/record"
)

// oldMessage is a message of format 0 or 1, as Kafka up to 0.10 wrote it.
func oldMessage(magic byte, offset int64, key, value []byte) []byte {
	field := func(p, v []byte) []byte {
		if v == nil {
			return binary.BigEndian.AppendUint32(p, 1<<32-1)
		}
		return append(binary.BigEndian.AppendUint32(p, uint32(len(v))), v...)
	}
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, startTime)
	}
	body = field(field(body, key), value)
	p := binary.BigEndian.AppendUint64(nil, uint64(offset))
	p = binary.BigEndian.AppendUint32(p, uint32(4+len(body)))
	return append(binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE(body)), body...)
}

// Behind damage in an old segment the next message is found, as behind damage in a new one: where the bad one claims to end,
// and by looking at each byte.
func TestFindBatch_OldFormats(t *testing.T) {
	for _, magic := range []byte{0, 1} {
		for name, value := range map[string][]byte{
			"short": []byte("v"), "null": nil, "empty": {}, "zeros": make([]byte, 3000), "beyond a window": bytes.Repeat([]byte{1, 0}, maxStep),
		} {
			var log []byte
			var at []int64
			for o := range int64(4) {
				at = append(at, int64(len(log)))
				key := []byte(nil)
				if o%2 == 1 {
					key = bytes.Repeat([]byte("k"), 40)
				}
				log = append(log, oldMessage(magic, o, key, value)...)
			}
			at = append(at, int64(len(log)))
			log = append(log, some(t, 4, 2)...)
			for i := range 4 {
				for what, change := range map[string]func(p []byte){
					"crc": func(p []byte) { p[12]++ }, "length": func(p []byte) { p[9] = 0x7f }, "magic": func(p []byte) { p[16] = 9 },
					"zeros": func(p []byte) { clear(p[:at[i+1]-at[i]]) },
				} {
					t.Run(fmt.Sprint(magic, "/", name, "/", i, "/", what), func(t *testing.T) {
						bad := bytes.Clone(log)
						change(bad[at[i]:])
						s := memory(t).log(t, 0, Config{}, bad)
						pos, found, err := s.FindBatch(at[i], ToEnd, MaxBytes, func(h Header) bool { return h.BaseOffset >= int64(i) })
						if err != nil || !found || pos != at[i+1] {
							t.Errorf("found %v at %d, want %d, %v", found, pos, at[i+1], err)
						}
					})
				}
			}
			// The last one is torn, and nothing follows.
			s := memory(t).log(t, 0, Config{}, log[:at[4]-1])
			if pos, found, err := s.FindBatch(at[3], ToEnd, MaxBytes, nil); found || err != nil {
				t.Errorf("%d/%s: found at %d behind a torn end, %v", magic, name, pos, err)
			}
		}
	}
	// In a segment of new batches a message inside a value is none.
	b := record.NewBuilder(record.BuilderOptions{})
	ok(t, b.Append(startTime, record.Record{Value: oldMessage(1, 1, nil, []byte("inner"))}))
	batch, err := b.Batch()
	ok(t, err)
	log := join(some(t, 0, 1), record.Batch(bytes.Clone(batch)))
	log[len(some(t, 0, 1))+12]++
	log[len(some(t, 0, 1))+17]++
	s := memory(t).log(t, 0, Config{}, log)
	if pos, found, err := s.FindBatch(int64(len(some(t, 0, 1))), ToEnd, MaxBytes, nil); found || err != nil {
		t.Errorf("found at %d inside a value, %v", pos, err)
	}
}
