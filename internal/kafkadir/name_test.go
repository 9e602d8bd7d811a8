package kafkadir_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
)

const id = "06e2b0a01bd64d6e9c4a20b6ff915bfe"

func name(topic string, partition int32, unique string, s kafkadir.State) kafkadir.Name {
	return kafkadir.Name{
		TopicPartition: checkpoint.TopicPartition{Topic: topic, Partition: partition}, UniqueID: unique, State: s,
	}
}

func TestName_BothWays(t *testing.T) {
	for text, want := range map[string]kafkadir.Name{
		"orders-0":                              name("orders", 0, "", kafkadir.Live),
		"orders-eu-west-12":                     name("orders-eu-west", 12, "", kafkadir.Live),
		"--1":                                   name("-", 1, "", kafkadir.Live),
		"a.b-2147483647":                        name("a.b", 2147483647, "", kafkadir.Live),
		"__cluster_metadata-0":                  name(kafkadir.ClusterMetadataTopic, 0, "", kafkadir.Live),
		"gone-0." + id + "-delete":              name("gone", 0, id, kafkadir.Delete),
		"a.b-c-3." + id + "-future":             name("a.b-c", 3, id, kafkadir.Future),
		"orders-delete-7." + id + "-stray":      name("orders-delete", 7, id, kafkadir.Stray),
		"orders-0.x-delete-0." + id + "-future": name("orders-0.x-delete", 0, id, kafkadir.Future),
		"t-1.x.y-delete":                        {},
	} {
		got, err := kafkadir.ParseName(text)
		if want == (kafkadir.Name{}) {
			if err == nil {
				t.Errorf("%q: %+v, want an error", text, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
		if want.String() != text {
			t.Errorf("%+v is called %q, want %q", want, want.String(), text)
		}
	}
	for text, want := range map[string]kafkadir.Name{
		"t-007": name("t", 7, "", kafkadir.Live),
		"t-+7":  name("t", 7, "", kafkadir.Live),
		"t x-7": name("t x", 7, "", kafkadir.Live),
	} {
		if got, err := kafkadir.ParseName(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseName_Refused(t *testing.T) {
	for _, text := range []string{
		"", "-", "orders", "lost+found", "-0", "orders-", "orders-x", "orders-0x", "orders-2147483648", "orders-0 ",
		"orders-٣", "-delete", "orders-0-delete", "orders-delete", "orders-0.-delete", "orders-0." + id + "-deleted",
		"orders." + id + "-delete", "t x-0." + id + "-stray", "-0." + id + "-future", "orders-." + id + "-future",
		"." + id + "-delete",
	} {
		got, err := kafkadir.ParseName(text)
		var ne *kafkadir.NameError
		if !errors.As(err, &ne) || ne.Name != text || got != (kafkadir.Name{}) {
			t.Errorf("%q: %+v, %v; want a *NameError", text, got, err)
		}
	}
}

func TestName_LongTopicIsCut(t *testing.T) {
	topic := strings.Repeat("t", 249)
	for _, c := range []struct {
		state kafkadir.State
		size  int
	}{{kafkadir.Live, 255}, {kafkadir.Delete, 255}, {kafkadir.Stray, 255}, {kafkadir.Future, 249 + len("-65535."+id+"-future")}} {
		unique := id
		if c.state == kafkadir.Live {
			unique = ""
		}
		text := name(topic, 65535, unique, c.state).String()
		if len(text) != c.size {
			t.Errorf("%v: %d bytes, want %d", c.state, len(text), c.size)
		}
		got, err := kafkadir.ParseName(text)
		if err != nil || got.Partition != 65535 || got.State != c.state || !strings.HasPrefix(topic, got.Topic) {
			t.Errorf("%v: %+v, %v", c.state, got, err)
		}
	}
	if text := name("short", 0, id, kafkadir.Delete).String(); text != "short-0."+id+"-delete" {
		t.Errorf("a short topic was cut: %q", text)
	}
}

func TestState_String(t *testing.T) {
	for s, want := range map[kafkadir.State]string{
		kafkadir.Live: "live", kafkadir.Delete: "delete", kafkadir.Future: "future", kafkadir.Stray: "stray",
	} {
		if s.String() != want {
			t.Errorf("%d is %q, want %q", s, s.String(), want)
		}
	}
}

func TestCheckTopic(t *testing.T) {
	for _, good := range []string{"a", "a.b_c-D9", "...", strings.Repeat("x", 249)} {
		if err := kafkadir.CheckTopic(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a b", "a/b", "a\x00", "ä", strings.Repeat("x", 250)} {
		if err := kafkadir.CheckTopic(bad); err == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"orders-0", "--1", "a-0." + id + "-delete", "a-0.x-future", "-stray", "a-+1", "a-0.b.c-delete"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := kafkadir.ParseName(s)
		if err != nil {
			return
		}
		if (n.State == kafkadir.Live) != (n.UniqueID == "") {
			t.Fatalf("%q: %+v", s, n)
		}
		text := n.String()
		again, err := kafkadir.ParseName(text)
		if len(s) <= 255 && len(text) <= len(s) && (err != nil || again != n) {
			t.Fatalf("%q is %+v, written %q, then %+v, %v", s, n, text, again, err)
		}
	})
}
