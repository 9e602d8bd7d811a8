package segment

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/oncelog/oncelog/internal/vfs/vfstest"
)

func bases(t Set) []int64 {
	list := []int64{}
	for s := range t.All() {
		list = append(list, s.BaseOffset())
	}
	return list
}

// The model is a map from base offset to segment. Every set that was ever made must stay as it was.
func TestSet_Model(t *testing.T) {
	fsys := vfstest.NewMem()
	rapid.Check(t, func(t *rapid.T) {
		type old struct {
			set  Set
			want []int64
		}
		var history []old
		var set Set
		model := map[int64]*Segment{}
		base := rapid.Int64Range(0, 20)
		t.Repeat(map[string]func(*rapid.T){
			"with": func(t *rapid.T) {
				var add []*Segment
				for _, b := range rapid.SliceOfN(base, 0, 4).Draw(t, "bases") {
					s := Open(fsys, "", b, Config{})
					add = append(add, s)
					model[b] = s
				}
				set = set.With(add...)
			},
			"without": func(t *rapid.T) {
				drop := rapid.SliceOfN(base, 0, 4).Draw(t, "bases")
				for _, b := range drop {
					delete(model, b)
				}
				set = set.Without(drop...)
			},
			"": func(t *rapid.T) {
				want := slices.Sorted(maps.Keys(model))
				checkSet(t, set, model, want)
				history = append(history, old{set, append([]int64{}, want...)})
				for _, h := range history {
					if diff := cmp.Diff(h.want, bases(h.set)); diff != "" {
						t.Fatalf("an old set changed: %s", diff)
					}
				}
			},
		})
	})
}

func checkSet(t *rapid.T, set Set, model map[int64]*Segment, want []int64) {
	if diff := cmp.Diff(append([]int64{}, want...), bases(set)); diff != "" {
		t.Fatal(diff)
	}
	if set.Len() != len(want) {
		t.Fatalf("length %d, want %d", set.Len(), len(want))
	}
	for i, b := range want {
		if set.At(i) != model[b] {
			t.Fatalf("segment %d is not the one that was added last", i)
		}
	}
	if len(want) == 0 {
		if set.First() != nil || set.Active() != nil {
			t.Fatal("an empty set has a segment")
		}
	} else if set.First() != model[want[0]] || set.Active() != model[want[len(want)-1]] {
		t.Fatal("wrong first or last segment")
	}
	for o := int64(-1); o <= 22; o++ {
		below := slices.DeleteFunc(slices.Clone(want), func(b int64) bool { return b > o })
		above := slices.DeleteFunc(slices.Clone(want), func(b int64) bool { return b <= o })
		floor, ok := set.Floor(o)
		if ok != (len(below) > 0) || ok && floor != model[below[len(below)-1]] {
			t.Fatalf("floor of %d: %v", o, ok)
		}
		higher, ok := set.Higher(o)
		if ok != (len(above) > 0) || ok && higher != model[above[0]] {
			t.Fatalf("higher than %d: %v", o, ok)
		}
		got, ok := set.Get(o)
		if ok != (model[o] != nil) || ok && got != model[o] {
			t.Fatalf("get %d: %v", o, ok)
		}
		from := append([]int64{}, above...)
		if len(below) > 0 {
			from = append([]int64{below[len(below)-1]}, above...)
		}
		list := []int64{}
		for s := range set.From(o) {
			list = append(list, s.BaseOffset())
		}
		if diff := cmp.Diff(from, list); diff != "" {
			t.Fatalf("from %d: %s", o, diff)
		}
		if diff := cmp.Diff(append([]int64{}, above...), bases(set.Between(o+1, 100))); diff != "" {
			t.Fatalf("between %d and 100: %s", o+1, diff)
		}
	}
	if set.Between(10, 5).Len() != 0 {
		t.Fatal("a range that is turned round holds segments")
	}
}
