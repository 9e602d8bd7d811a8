package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Locale;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** The request "read": what a fetch of Kafka finds. */
final class SessionReads {
    private SessionReads() {
    }

    static void read(UnifiedLog log, JsonNode request, ObjectNode out) throws IOException {
        FetchIsolation isolation = FetchIsolation.valueOf(request.path("isolation").asText("log_end").toUpperCase(Locale.ROOT));
        FetchDataInfo got = log.read(Json.number(request, "offset"), (int) Json.number(request, "maxBytes"), isolation,
            request.path("minOneMessage").asBoolean());
        LogOffsetMetadata at = got.fetchOffsetMetadata;
        out.put("startOffset", at.messageOffset);
        out.put("segment", at.messageOffsetOnly() ? -1 : at.segmentBaseOffset);
        out.put("position", at.messageOffsetOnly() ? -1 : at.relativePositionInSegment);
        out.put("firstEntryIncomplete", got.firstEntryIncomplete);
        ByteBuffer bytes = bytesOf(got);
        out.put("size", bytes.remaining());
        out.put("sha256", FileState.sha256(bytes.array()));
        if (request.path("bytes").asBoolean()) {
            Json.put(out, "bytes", bytes);
        }
        ArrayNode batches = out.putArray("batches");
        try {
            for (RecordBatch b : got.records.batches()) {
                long first = b.baseOffset();
                long last = b.lastOffset();
                batches.addObject().put("baseOffset", first).put("lastOffset", last).put("size", b.sizeInBytes());
            }
        } catch (CorruptRecordException | IllegalArgumentException e) {
            // A fetch hands out bytes without a look at them: the batches are those before the first that is none.
        }
        out.put("abortedKnown", got.abortedTransactions.isPresent());
        ArrayNode aborted = out.putArray("aborted");
        got.abortedTransactions.ifPresent(list ->
            list.forEach(a -> aborted.addObject().put("pid", a.producerId()).put("firstOffset", a.firstOffset())));
    }

    /** All bytes of the answer, those of an incomplete last batch included. */
    private static ByteBuffer bytesOf(FetchDataInfo got) throws IOException {
        ByteBuffer all = ByteBuffer.allocate(got.records.sizeInBytes());
        if (!all.hasRemaining()) {
            return all;
        }
        if (got.records instanceof FileRecords file) {
            file.readInto(all, 0);
        } else {
            all.put(((MemoryRecords) got.records).buffer().duplicate()).flip();
        }
        return all;
    }
}
