package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/** The request "clean": one round of Kafka's log cleaner over an open log, without the ratio that says whether it is worth it. */
final class Compaction {
    private static final int DEFAULT_MAP_BYTES = 1 << 20;
    private static final int BUFFER_BYTES = 64 << 10;
    private static final double LOAD_FACTOR = 0.9;

    private Compaction() {
    }

    static void clean(Partition partition, JsonNode request, ObjectNode out) throws Exception {
        UnifiedLog log = partition.log;
        Optional<Long> checkpoint = request.hasNonNull("firstDirty") ? Optional.of(request.get("firstDirty").asLong()) : Optional.empty();
        // Package-private: the public way to it needs a whole log manager and its checkpoint files.
        Object range = Reflected.call(LogCleanerManager.class, null, "cleanableOffsets",
            new Class<?>[] {UnifiedLog.class, Optional.class, long.class}, log, checkpoint, partition.clock.milliseconds());
        long firstDirty = Reflected.get(range, "firstDirtyOffset");
        long firstUncleanable = Reflected.get(range, "firstUncleanableDirtyOffset");
        out.put("firstDirty", firstDirty);
        out.put("firstUncleanable", firstUncleanable);
        LogToClean task = new LogToClean(log, firstDirty, firstUncleanable, false);
        out.put("cleanBytes", task.cleanBytes());
        out.put("cleanableBytes", task.cleanableBytes());
        Throttler none = new Throttler(Double.MAX_VALUE, TimeUnit.DAYS.toMillis(1), "cleaner-io", "bytes", partition.clock);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(request.path("mapBytes").asInt(DEFAULT_MAP_BYTES)),
            BUFFER_BYTES, log.config().maxMessageSize(), LOAD_FACTOR, none, partition.clock, p -> { });
        Map.Entry<Long, CleanerStats> done = cleaner.clean(task);
        out.put("nextDirty", done.getKey());
        out.put("messagesRead", done.getValue().messagesRead());
        out.put("messagesWritten", done.getValue().messagesWritten());
    }
}
