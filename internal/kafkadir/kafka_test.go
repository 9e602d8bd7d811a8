package kafkadir_test

import (
	"bytes"
	"path"
	"strings"
	"testing"

	"github.com/oncelog/oncelog/internal/checkpoint"
	"github.com/oncelog/oncelog/internal/kafkadir"
	"github.com/oncelog/oncelog/internal/kafkatest"
	"github.com/oncelog/oncelog/internal/leaderepoch"
)

// TestFilesOfKafka reads every small file that brokers of several versions wrote, and writes it again byte for byte.
func TestFilesOfKafka(t *testing.T) {
	seen := map[string]int{}
	kafkatest.EachFixture(t, func(t *testing.T, x *kafkatest.Fixture) {
		for _, e := range x.Entries() {
			name := path.Base(e.Path)
			if parent := path.Dir(e.Path); e.IsDir && (parent == "." || parent == "logdir") && name != "logdir" {
				seen["directories"]++
				if n, err := kafkadir.ParseName(name); err != nil || n.String() != name {
					t.Errorf("%s: %+v, %v", e.Path, n, err)
				}
			}
			var again []byte
			switch {
			case name == leaderepoch.FileName:
				entries, err := leaderepoch.Decode(e.Path, e.Data)
				if err != nil {
					t.Error(err)
				}
				again = leaderepoch.Encode(entries)
			case strings.HasSuffix(name, "-offset-checkpoint"):
				entries, err := checkpoint.DecodeOffsets(e.Path, e.Data)
				if err != nil {
					t.Error(err)
				}
				again = checkpoint.EncodeOffsets(entries)
			case name == kafkadir.MetadataFile:
				m, err := kafkadir.DecodeMetadata(e.Path, e.Data)
				if err != nil {
					t.Error(err)
				}
				again = kafkadir.EncodeMetadata(m.TopicID)
			default:
				continue
			}
			seen[name]++
			if e.Size > 0 && !bytes.Equal(again, e.Data) {
				t.Errorf("%s holds %q, written again it is %q", e.Path, e.Data, again)
			}
		}
	})
	for _, name := range []string{
		"directories", leaderepoch.FileName, kafkadir.MetadataFile, checkpoint.RecoveryPointFile, checkpoint.LogStartFile,
		checkpoint.ReplicationFile, checkpoint.CleanerFile,
	} {
		if seen[name] == 0 {
			t.Errorf("no %s among the fixtures", name)
		}
	}
}
