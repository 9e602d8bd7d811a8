package main

import (
	"bytes"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/oncelog/oncelog/wal"
)

// Lengths of the values of the demo, in bytes.
const (
	demoShortest = 100
	demoLongest  = 200
)

// demoRecords makes the records with the counts [from, to) of a producer.
func demoRecords(producer int, from, to int64) []wal.Record {
	records := make([]wal.Record, 0, to-from)
	key := []byte(demoName(producer))
	values := make([]byte, 0, (to-from)*demoLongest)
	for n := from; n < to; n++ {
		start := len(values)
		values = appendDemoValue(values, producer, n)
		records = append(records, wal.Record{Key: key, Value: values[start:len(values):len(values)]})
	}
	return records
}

// appendDemoValue appends the value of a record, which follows from the producer and the count alone: the count, and
// letters up to a length between demoShortest and demoLongest.
func appendDemoValue(dst []byte, producer int, n int64) []byte {
	state := uint64(producer)<<56 ^ uint64(n)
	next := func() uint64 { // SplitMix64
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	end := len(dst) + demoShortest + int(next()%(demoLongest-demoShortest+1))
	dst = strconv.AppendInt(dst, n, 10)
	dst = append(dst, ' ')
	for len(dst) < end {
		for z := next(); z != 0 && len(dst) < end; z >>= 4 {
			dst = append(dst, 'a'+byte(z&15))
		}
	}
	return dst
}

// tally ticks off the records of the demo as they are read.
type tally struct {
	records       int64
	seen          [demoProducers][]uint64 // a bit for each count
	read, doubled int64
	value         []byte
	said          int
}

func newTally(records int64) *tally {
	c := &tally{records: records}
	for i := range c.seen {
		c.seen[i] = make([]uint64, (share(records, i)+63)/64)
	}
	return c
}

// mostSaid is how many wrong records are described.
const mostSaid = 10

// tick takes one record. A record that nobody sent does not count for the one that it stands for, which is then missing;
// the error describes it.
func (c *tally) tick(s *wal.Stored) error {
	c.read++
	producer, n, ok := parseDemo(s)
	if ok && n < share(c.records, producer) {
		c.value = appendDemoValue(c.value[:0], producer, n)
		ok = bytes.Equal(c.value, s.Value)
	} else {
		ok = false
	}
	if !ok {
		if c.said++; c.said > mostSaid {
			return nil
		}
		return fmt.Errorf("offset %d holds a record that nobody sent: key %s", s.Offset, shortBytes(s.Key))
	}
	word, bit := &c.seen[producer][n/64], uint64(1)<<(n%64)
	if *word&bit != 0 {
		c.doubled++
	}
	*word |= bit
	return nil
}

// parseDemo reads producer and count out of a record.
func parseDemo(s *wal.Stored) (producer int, n int64, ok bool) {
	number, found := strings.CutPrefix(string(s.Key), "demo-")
	producer, err := strconv.Atoi(number)
	if !found || err != nil || producer < 0 || producer >= demoProducers {
		return 0, 0, false
	}
	digits, _, found := bytes.Cut(s.Value, []byte(" "))
	n, err = strconv.ParseInt(string(digits), 10, 64)
	return producer, n, found && err == nil && n >= 0
}

// missing is how many records have not been seen.
func (c *tally) missing() int64 {
	seen := int64(0)
	for _, words := range c.seen {
		for _, w := range words {
			seen += int64(bits.OnesCount64(w))
		}
	}
	return c.records - seen
}
