package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.Locale;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** The requests of a session that append. Batches come as bytes; only transaction markers are built here. */
final class SessionWrites {
    /** The version of transactions that an append names when it knows none. */
    private static final int UNKNOWN_VERSION = -1;

    private final UnifiedLog log;
    private final SteppedClock clock;

    SessionWrites(Partition partition) {
        this.log = partition.log;
        this.clock = partition.clock;
    }

    void append(JsonNode request, VerificationGuard guard, ObjectNode out) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Json.bytes(request, "batch")));
        asLeader(records, request, guard, "client", out);
    }

    void appendAsFollower(JsonNode request, ObjectNode out) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Json.bytes(request, "batch")));
        long before = log.logEndOffset();
        answer(log.appendAsFollower(records, request.path("leaderEpoch").asInt()), before, out);
    }

    /** Builds the batch that ends a transaction, as a transaction coordinator does, and returns its bytes too. */
    void marker(JsonNode request, ObjectNode out) {
        ControlRecordType type = request.path("commit").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, request.path("coordinatorEpoch").asInt());
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(0, request.path("timestamp").asLong(clock.milliseconds()),
            request.path("leaderEpoch").asInt(), Json.number(request, "pid"), (short) Json.number(request, "epoch"), marker);
        Json.put(out, "batch", records.buffer());
        asLeader(records, request, VerificationGuard.SENTINEL, "coordinator", out);
    }

    private void asLeader(MemoryRecords records, JsonNode request, VerificationGuard guard, String usualOrigin, ObjectNode out) {
        AppendOrigin origin = AppendOrigin.valueOf(request.path("origin").asText(usualOrigin).toUpperCase(Locale.ROOT));
        short version = (short) request.path("transactionVersion").asInt(UNKNOWN_VERSION);
        long before = log.logEndOffset();
        LogAppendInfo info = log.appendAsLeader(records, request.path("leaderEpoch").asInt(), origin,
            RequestLocal.noCaching(), guard, version);
        answer(info, before, out);
    }

    /** A duplicate leaves the end where it was and answers the offsets of the batch that came first. */
    private void answer(LogAppendInfo info, long endBefore, ObjectNode out) {
        out.put("firstOffset", info.firstOffset());
        out.put("lastOffset", info.lastOffset());
        out.put("duplicate", info.validBytes() > 0 && log.logEndOffset() == endBefore && info.lastOffset() < endBefore);
        out.put("logAppendTime", info.logAppendTime());
        out.put("maxTimestamp", info.maxTimestamp());
        out.put("validBytes", info.validBytes());
        out.put("lastLeaderEpoch", info.lastLeaderEpoch().orElse(-1));
        out.put("activeBase", log.activeSegment().baseOffset());
    }
}
