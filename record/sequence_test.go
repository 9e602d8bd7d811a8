package record

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestSequence(t *testing.T) {
	const last = math.MaxInt32
	for _, tt := range []struct{ seq, n, want int32 }{
		{0, 0, 0}, {0, 1, 1}, {5, 4, 9}, {last, 0, last}, {last, 1, 0}, {last - 1, 1, last}, {last - 1, 2, 0},
		{last - 1, 3, 1}, {last, last, last - 1}, {0, last, last}, {1, last, 0},
	} {
		if got := IncrementSequence(tt.seq, tt.n); got != tt.want {
			t.Errorf("%d after %d: got %d, want %d", tt.n, tt.seq, got, tt.want)
		}
		if got := DecrementSequence(tt.want, tt.n); got != tt.seq {
			t.Errorf("%d before %d: got %d, want %d", tt.n, tt.want, got, tt.seq)
		}
	}
}

// What Kafka's two methods compute, written with their comparisons.
func TestSequence_AsKafka(t *testing.T) {
	const last = math.MaxInt32
	number := rapid.OneOf(rapid.Int32Range(0, last), rapid.Int32Range(0, 3), rapid.Int32Range(last-3, last))
	rapid.Check(t, func(t *rapid.T) {
		seq, n := number.Draw(t, "seq"), number.Draw(t, "n")
		inc := seq + n
		if seq > last-n {
			inc = n - (last - seq) - 1
		}
		dec := seq - n
		if seq < n {
			dec = last - (n - seq) + 1
		}
		if got := IncrementSequence(seq, n); got != inc || got < 0 {
			t.Fatalf("increment: got %d, want %d", got, inc)
		}
		if got := DecrementSequence(seq, n); got != dec || got < 0 {
			t.Fatalf("decrement: got %d, want %d", got, dec)
		}
		if DecrementSequence(inc, n) != seq || IncrementSequence(dec, n) != seq {
			t.Fatal("the two do not undo each other")
		}
	})
}

func TestSequence_StaysInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seq, n := rapid.Int32().Draw(t, "seq"), rapid.Int32().Draw(t, "n")
		if IncrementSequence(seq, n) < 0 || DecrementSequence(seq, n) < 0 {
			t.Fatal("negative")
		}
	})
}
