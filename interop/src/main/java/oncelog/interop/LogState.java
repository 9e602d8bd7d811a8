package oncelog.interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TxnMetadata;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationStateEntry;

/** What a loaded log knows: offsets, segments, leader epochs, producers, transactions. Asking changes nothing. */
final class LogState {
    private LogState() {
    }

    static void offsets(UnifiedLog log, ObjectNode out) {
        out.put("logStart", log.logStartOffset());
        out.put("logEnd", log.logEndOffset());
        out.put("highWatermark", log.highWatermark());
        out.put("lso", log.lastStableOffset());
        out.put("firstUnstable", log.firstUnstableOffset().orElse(-1L));
        out.put("recoveryPoint", log.recoveryPoint());
    }

    static void describe(UnifiedLog log, ObjectNode out) throws ReflectiveOperationException {
        offsets(log, out);
        ArrayNode segments = out.putArray("segments");
        for (LogSegment s : log.logSegments()) {
            segments.addObject().put("base", s.baseOffset()).put("size", s.size());
        }
        ArrayNode epochs = out.putArray("leaderEpochs");
        log.leaderEpochCache().epochEntries().forEach(e -> epochs.addObject().put("epoch", e.epoch()).put("start", e.startOffset()));
        ProducerStateManager producers = log.producerStateManager();
        out.put("producersEnd", producers.mapEndOffset());
        out.put("newestSnapshot", producers.latestSnapshotOffset().orElse(-1));
        // Private: the offset below which no snapshot is taken again, also when its file is gone.
        out.put("lastSnapshot", (Long) Reflected.get(producers, "lastSnapOffset"));
        ArrayNode entries = out.putArray("producers");
        for (ProducerStateEntry e : new TreeMap<>(producers.activeProducers()).values()) {
            producer(e, entries.addObject());
        }
        transactions(producers, out);
        verifications(producers, out);
    }

    /** One producer, from memory or from a snapshot. Without a batch the last ones are -1. */
    static void producer(ProducerStateEntry e, ObjectNode out) {
        List<BatchMetadata> batches = new ArrayList<>(e.batchMetadata());
        BatchMetadata last = batches.isEmpty() ? new BatchMetadata(-1, -1, 0, -1) : batches.get(batches.size() - 1);
        out.put("pid", e.producerId());
        out.put("epoch", e.producerEpoch());
        out.put("lastSeq", last.lastSeq());
        out.put("lastOffset", last.lastOffset());
        out.put("offsetDelta", last.offsetDelta());
        out.put("lastTimestamp", e.lastTimestamp());
        out.put("coordinatorEpoch", e.coordinatorEpoch());
        out.put("currentTxnFirstOffset", e.currentTxnFirstOffset().orElse(-1));
        ArrayNode kept = out.putArray("batches");
        for (BatchMetadata b : batches) {
            kept.addObject().put("firstSeq", b.firstSeq()).put("lastSeq", b.lastSeq())
                .put("firstOffset", b.firstOffset()).put("lastOffset", b.lastOffset()).put("timestamp", b.timestamp());
        }
    }

    /** Two private maps: the public methods tell only the smallest offset of both. */
    private static void transactions(ProducerStateManager producers, ObjectNode out) throws ReflectiveOperationException {
        for (String which : List.of("ongoingTxns", "unreplicatedTxns")) {
            Map<Long, TxnMetadata> txns = Reflected.get(producers, which);
            ArrayNode list = out.putArray(which);
            for (TxnMetadata t : txns.values()) {
                list.addObject().put("pid", t.producerId).put("firstOffset", t.firstOffset.messageOffset)
                    .put("lastOffset", t.lastOffset.orElse(-1));
            }
        }
    }

    /** A private map: the public method answers for one known producer only. */
    private static void verifications(ProducerStateManager producers, ObjectNode out) throws ReflectiveOperationException {
        Map<Long, VerificationStateEntry> states = Reflected.get(producers, "verificationStates");
        ArrayNode list = out.putArray("verifications");
        new TreeMap<>(states).forEach((pid, v) -> list.addObject().put("pid", pid).put("epoch", v.epoch())
            .put("lowestSequence", v.lowestSequence()).put("supportsEpochBump", v.supportsEpochBump()));
    }
}
