package oncelog.interop;

import java.io.File;
import java.io.IOException;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LoadedLogOffsets;
import org.apache.kafka.storage.internals.log.LocalLog;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogLoader;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegments;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * One loaded log of Kafka with the clock and scheduler that belong to it. It is put together from the same
 * parts as UnifiedLog.create does, but keeps hold of the segments, to close them when loading fails halfway.
 */
final class Partition {
    private static final int EXPIRY_CHECK_MS = 600_000;
    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    final File dir;
    final SteppedClock clock;
    final HeldScheduler scheduler;
    final UnifiedLog log;
    final ProducerStateManagerConfig producerSettings;

    private Partition(File dir, SteppedClock clock, HeldScheduler scheduler, UnifiedLog log, ProducerStateManagerConfig producers) {
        this.dir = dir;
        this.clock = clock;
        this.scheduler = scheduler;
        this.log = log;
        this.producerSettings = producers;
    }

    /** What a log manager knows about a partition before it loads it. */
    record Checkpoints(boolean clean, long recoveryPoint, long logStart) { }

    /** Loads a directory in place. The tasks that loading leaves behind wait in the scheduler. */
    static Partition load(File dir, Settings settings, Checkpoints known, SteppedClock clock, HeldScheduler scheduler) throws IOException {
        TopicPartition name = UnifiedLog.parseTopicPartitionName(dir);
        LogConfig config = settings.log();
        LogDirFailureChannel failures = new LogDirFailureChannel(4);
        LogSegments segments = new LogSegments(name);
        boolean loaded = false;
        try {
            LeaderEpochFileCache epochs = UnifiedLog.createLeaderEpochCache(dir, name, failures, Optional.empty(), scheduler);
            ProducerStateManagerConfig producerSettings = settings.producers();
            ProducerStateManager producers =
                new ProducerStateManager(name, dir, settings.transactionTimeoutMs(), producerSettings, clock);
            LoadedLogOffsets offsets = new LogLoader(dir, name, config, scheduler, clock, failures, known.clean, segments,
                known.logStart, known.recoveryPoint, epochs, producers, new ConcurrentHashMap<>(), false).load();
            LocalLog local = new LocalLog(dir, config, segments, offsets.recoveryPoint(), offsets.nextOffsetMetadata(),
                scheduler, clock, name, failures);
            UnifiedLog log = new UnifiedLog(offsets.logStartOffset(), local, STATS, EXPIRY_CHECK_MS, epochs, producers,
                Optional.empty(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            loaded = true;
            return new Partition(dir, clock, scheduler, log, producerSettings);
        } finally {
            if (!loaded) {
                segments.closeQuietly();
            }
        }
    }

    /** The steps of a broker's clean stop for one log, in its order. Returns the recovery point to be checkpointed. */
    long stop() {
        boolean stopped = false;
        try {
            log.prepareActiveSegmentForClose();
            log.flush(true);
            log.close();
            stopped = true;
            return log.recoveryPoint();
        } finally {
            if (!stopped) {
                log.closeQuietly();
            }
            forget();
        }
    }

    /** Lets go of files and maps; nothing is written, flushed or trimmed, as if the process had been killed. */
    void drop() {
        log.closeQuietly();
        forget();
    }

    /** The registries of metrics would otherwise keep every log alive that was ever loaded. */
    private void forget() {
        log.removeLogMetrics();
        STATS.removeMetrics(log.topicPartition().topic());
    }

    /**
     * The log start that the log manager would write to its checkpoint: only one above the first segment's base
     * is worth a line; without a line a load starts from 0.
     */
    long logStartToCheckpoint() {
        long start = log.logStartOffset();
        return start > log.logSegments().get(0).baseOffset() ? start : 0;
    }
}
