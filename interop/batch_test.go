package interop_test

import (
	"encoding/binary"
	"hash/crc32"
)

// testTime lies just before the clock of a driver that was told no other time.
const testTime = int64(1_700_000_000_000)

// testBatch is a batch of format 2 with small records, built by hand: what is
// compared with Kafka here must not come from the code that is to be compared.
type testBatch struct {
	pid           int64 // -1 for none
	epoch         int16
	seq           int32
	transactional bool
	keys          []string // one record for each; its value is the key again
	value         string   // instead of the key
}

func (b testBatch) bytes() []byte {
	var records []byte
	for i, key := range b.keys {
		value := key
		if b.value != "" {
			value = b.value
		}
		r := []byte{0, 0}                           // attributes, timestamp delta
		r = binary.AppendVarint(r, int64(i))        // offset delta
		r = binary.AppendVarint(r, int64(len(key))) // zigzag, as everywhere in a record
		r = append(r, key...)
		r = binary.AppendVarint(r, int64(len(value)))
		r = append(r, value...)
		r = append(r, 0) // headers
		records = binary.AppendVarint(records, int64(len(r)))
		records = append(records, r...)
	}
	last := int32(len(b.keys) - 1)
	var attributes uint16
	if b.transactional {
		attributes = 1 << 4
	}
	be := binary.BigEndian
	body := be.AppendUint16(nil, attributes)
	body = be.AppendUint32(body, uint32(last))
	body = be.AppendUint64(body, uint64(testTime))
	body = be.AppendUint64(body, uint64(testTime))
	body = be.AppendUint64(body, uint64(b.pid))
	body = be.AppendUint16(body, uint16(b.epoch))
	body = be.AppendUint32(body, uint32(b.seq))
	body = be.AppendUint32(body, uint32(len(b.keys)))
	body = append(body, records...)

	out := be.AppendUint64(nil, 0)                  // base offset, set by the log
	out = be.AppendUint32(out, uint32(9+len(body))) // length: from the leader epoch on
	out = be.AppendUint32(out, 0)                   // leader epoch
	out = append(out, 2)                            // magic
	out = be.AppendUint32(out, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(out, body...)
}
