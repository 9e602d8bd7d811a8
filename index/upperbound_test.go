package index

import (
	"testing"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

// Kafka's bisection never looks at the first entry, and so misses it where it is the answer; ours finds it.
func TestOffset_UpperBoundAsKafka(t *testing.T) {
	tests := []struct {
		entries, position int32 // entries at 100, 200, …
		offset, kafka     int64 // 0: none
	}{
		{0, 100, 0, 0},
		{1, 50, 1, 1},
		{1, 100, 1, 0},
		{3, 99, 1, 1},
		{3, 100, 1, 2},
		{3, 150, 2, 2},
		{3, 200, 2, 2},
		{3, 300, 3, 3},
		{3, 301, 0, 0},
		{4, 200, 2, 2},
		{4, 300, 3, 3},
		{4, 400, 4, 4},
		{1100, 100, 1, 2},
		{1100, 7600, 76, 76}, // Kafka searches the last 1024 entries first
		{1100, 7700, 77, 77},
		{1100, 110001, 0, 0},
	}
	m := vfstest.NewMem()
	for _, tt := range tests {
		for _, kafka := range []bool{false, true} {
			x := openOffset(t, m, "/x", 0, Config{KafkaOpen: kafka})
			for i := range tt.entries {
				ok(t, x.Append(int64(i+1), 100*(i+1)))
			}
			want := tt.offset
			if kafka {
				want = tt.kafka
			}
			e, found, err := x.UpperBound(OffsetPosition{}, tt.position)
			ok(t, err)
			if found != (want > 0) || found && e.Offset != want {
				t.Errorf("%d entries, byte %d, as Kafka %v: %+v %v, want %d", tt.entries, tt.position, kafka, e, found, want)
			}
			ok(t, x.Reset())
			ok(t, x.Close())
			ok(t, m.Remove("/x"))
		}
	}
}
