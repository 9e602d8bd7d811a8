package record

// bodySize returns what the length field of a record counts. It is 64 bits wide so that a record no batch can hold is
// measured rightly where int has 32.
func bodySize(timestampDelta int64, offsetDelta int32, r Record) int64 {
	n := int64(1 + sizeVarlong(timestampDelta) + sizeVarint(offsetDelta))
	n += bytesSize(r.Key) + bytesSize(r.Value)
	n += int64(sizeVarint(int32(len(r.Headers))))
	for _, h := range r.Headers {
		n += int64(sizeVarint(int32(len(h.Key)))) + int64(len(h.Key)) + bytesSize(h.Value)
	}
	return n
}

func bytesSize(p []byte) int64 {
	if p == nil {
		return 1
	}
	return int64(sizeVarint(int32(len(p)))) + int64(len(p))
}

// appendRecord appends a record whose body takes size bytes.
func appendRecord(dst []byte, size int32, timestampDelta int64, offsetDelta int32, r Record) []byte {
	dst = appendVarint(dst, size)
	dst = append(dst, 0) // attributes: no bit is defined
	dst = appendVarlong(dst, timestampDelta)
	dst = appendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = appendVarint(dst, int32(len(r.Headers)))
	for _, h := range r.Headers {
		dst = appendVarint(dst, int32(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

// appendBytes appends a length and the bytes; null is the length -1.
func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return appendVarint(dst, -1)
	}
	dst = appendVarint(dst, int32(len(p)))
	return append(dst, p...)
}
