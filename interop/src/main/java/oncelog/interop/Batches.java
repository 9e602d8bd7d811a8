package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** The request "dump": the batches of a directory as Kafka's own readers see them. Nothing is loaded, nothing is written. */
final class Batches {
    private Batches() {
    }

    static void dump(JsonNode request, ObjectNode out) throws IOException {
        Path dir = Path.of(Json.text(request, "dir"));
        boolean records = request.path("records").asBoolean();
        ArrayNode segments = out.putArray("segments");
        for (Path f : Directories.files(dir)) {
            if (f.getFileName().toString().matches("\\d{20}\\.log")) {
                segment(f, records, segments.addObject());
            }
        }
    }

    /** Walks one segment up to its end, the first batch with a wrong size or CRC, or the first one that runs past the end. */
    private static void segment(Path f, boolean records, ObjectNode out) throws IOException {
        out.put("base", UnifiedLog.offsetFromFile(f.toFile()));
        ArrayNode batches = out.putArray("batches");
        long good = 0;
        try (FileRecords file = FileRecords.open(f.toFile(), false)) {
            out.put("size", file.sizeInBytes());
            for (FileChannelRecordBatch b : file.batches()) {
                ObjectNode o = batches.addObject();
                o.put("position", b.position());
                boolean valid = b.isValid();
                o.put("valid", valid);
                header(b, o);
                if (!valid) {
                    break;
                }
                if (records) {
                    records(b, o.putArray("records"));
                }
                good = b.position() + (long) b.sizeInBytes();
            }
        } catch (RuntimeException e) {
            Failure.describe(e, out.putObject("failure"));
        }
        out.put("validBytes", good);
    }

    /** The header as stored. Formats before 2 have no producer, no sequence, no count: Kafka answers -1 or null. */
    static void header(RecordBatch b, ObjectNode out) {
        out.put("size", b.sizeInBytes());
        out.put("magic", b.magic());
        out.put("lastOffset", b.lastOffset());
        out.put("crc", b.checksum());
        boolean current = b.magic() >= RecordBatch.MAGIC_VALUE_V2;
        // A wrapper of an old format knows its first offset only after decompression.
        out.put("baseOffset", current || !b.isCompressed() ? b.baseOffset() : -1);
        out.put("pid", b.producerId());
        out.put("epoch", b.producerEpoch());
        out.put("baseSeq", b.baseSequence());
        out.put("leaderEpoch", b.partitionLeaderEpoch());
        out.put("count", b.countOrNull());
        out.put("maxTimestamp", b.maxTimestamp());
        out.put("transactional", b.isTransactional());
        out.put("control", b.isControlBatch());
        out.put("deleteHorizon", b.deleteHorizonMs().orElse(-1));
        out.put("timestampType", b.timestampType().name);
        out.put("compression", b.compressionType().name);
    }

    static void records(RecordBatch b, ArrayNode out) {
        for (Record r : b) {
            ObjectNode o = out.addObject();
            o.put("offset", r.offset());
            o.put("timestamp", r.timestamp());
            o.put("sequence", r.sequence());
            Json.put(o, "key", r.key());
            Json.put(o, "value", r.value());
            ArrayNode headers = o.putArray("headers");
            for (Header h : r.headers()) {
                ObjectNode header = headers.addObject();
                header.put("key", h.key());
                Json.put(header, "value", h.value() == null ? null : ByteBuffer.wrap(h.value()));
            }
        }
    }
}
