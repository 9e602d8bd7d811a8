package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.record.internal.FileRecords.TimestampAndOffset;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** One log held open over many requests, so that a test can take it through the same steps as a log of its own. */
final class Session {
    private final Partition partition;
    private final UnifiedLog log;
    private final Settings settings;
    private final boolean runJobs;
    private final SessionWrites writes;
    /** Guards handed out, numbered from 1; a request names one by its number, 0 is the guard of a log that verifies nothing. */
    private final List<VerificationGuard> guards = new ArrayList<>();

    private Session(Partition partition, Settings settings, boolean runJobs) {
        this.partition = partition;
        this.log = partition.log;
        this.settings = settings;
        this.runJobs = runJobs;
        this.writes = new SessionWrites(partition);
    }

    static Session open(JsonNode request, ObjectNode out) throws IOException {
        Path dir = Path.of(Json.text(request, "dir"));
        Files.createDirectories(dir);
        SteppedClock clock = new SteppedClock(request.path("clock").asLong(SteppedClock.DEFAULT_MS));
        Settings settings = new Settings();
        settings.merge(request.path("settings"));
        Partition.Checkpoints known = new Partition.Checkpoints(request.path("clean").asBoolean(),
            request.path("recoveryPoint").asLong(), request.path("logStart").asLong());
        Partition p = Partition.load(dir.toFile(), settings, known, clock, new HeldScheduler(clock));
        Session s = new Session(p, settings, !request.path("holdJobs").asBoolean());
        LogState.offsets(p.log, out);
        s.settle();
        return s;
    }

    /** Applies one request. Returns false when the session has ended. */
    boolean apply(String op, JsonNode request, ObjectNode out) throws Exception {
        switch (op) {
            case "close" -> {
                out.put("recoveryPoint", partition.stop());
                out.put("logStart", partition.logStartToCheckpoint());
                Handles.abandoned(partition.scheduler.drop());
                return false;
            }
            case "crash" -> {
                partition.drop();
                Handles.abandoned(partition.scheduler.drop());
                return false;
            }
            default -> {
                try {
                    run(op, request, out);
                } finally {
                    settle();
                }
                return true;
            }
        }
    }

    /** Runs the background tasks that are due, as a broker does within the next moments. */
    private void settle() {
        if (runJobs) {
            partition.scheduler.runDue();
        }
    }

    private void run(String op, JsonNode request, ObjectNode out) throws Exception {
        switch (op) {
            case "append" -> writes.append(request, guard(request), out);
            case "append-follower" -> writes.appendAsFollower(request, out);
            case "marker" -> writes.marker(request, out);
            case "verify" -> verify(request, out);
            case "roll" -> out.put("base", log.roll().baseOffset());
            case "flush" -> log.flush(request.path("force").asBoolean());
            case "hw" -> log.updateHighWatermark(endIfNegative(request));
            case "truncate" -> out.put("changed", log.truncateTo(Json.number(request, "offset")));
            case "truncateFully" -> log.truncateFullyAndStartAt(Json.number(request, "offset"),
                request.hasNonNull("logStart") ? Optional.of(request.get("logStart").asLong()) : Optional.empty());
            case "deleteRecords" -> out.put("changed", log.maybeIncrementLogStartOffset(endIfNegative(request),
                LogStartOffsetIncrementReason.ClientRecordDeletion));
            case "retention" -> out.put("deletedSegments", log.deleteOldSegments());
            case "expire" -> log.removeExpiredProducers(partition.clock.milliseconds());
            case "snapshot" -> log.takeProducerSnapshot();
            case "late" -> out.put("changed", log.hasLateTransaction(partition.clock.milliseconds()));
            case "configure" -> configure(request);
            case "clock" -> partition.clock.moveTo(Json.number(request, "ms"));
            case "jobs" -> jobs(request, out);
            case "read" -> SessionReads.read(log, request, out);
            case "offset-for-time" -> offsetForTime(request, out);
            case "end-of-epoch" -> endOfEpoch(request, out);
            case "clean" -> Compaction.clean(partition, request, out);
            case "state" -> state(request, out);
            default -> throw new BadRequest("unknown request: " + op);
        }
        if (!out.has("logStart")) {
            LogState.offsets(log, out);
        }
    }

    private long endIfNegative(JsonNode request) {
        long offset = Json.number(request, "offset");
        return offset < 0 ? log.logEndOffset() : offset;
    }

    private void configure(JsonNode request) {
        settings.merge(Json.field(request, "settings"));
        log.updateConfig(settings.log());
        settings.applyTo(partition.producerSettings);
    }

    private void jobs(JsonNode request, ObjectNode out) {
        HeldScheduler scheduler = partition.scheduler;
        List<String> names = request.path("all").asBoolean() ? scheduler.runAll() : scheduler.runDue();
        names.forEach(out.putArray("ran")::add);
    }

    private void state(JsonNode request, ObjectNode out) throws Exception {
        LogState.describe(log, out);
        FileState.describe(partition.dir.toPath(), log, request.path("digests").asBoolean(), out.putArray("files"));
    }

    private void verify(JsonNode request, ObjectNode out) {
        VerificationGuard g = log.maybeStartTransactionVerification(Json.number(request, "pid"), request.path("sequence").asInt(),
            (short) request.path("epoch").asInt(), request.path("supportsEpochBump").asBoolean());
        if (g.equals(VerificationGuard.SENTINEL)) {
            out.put("guard", 0);
            return;
        }
        if (!guards.contains(g)) {
            guards.add(g);
        }
        out.put("guard", guards.indexOf(g) + 1);
    }

    private VerificationGuard guard(JsonNode request) {
        int n = request.path("guard").asInt();
        if (n < 0 || n > guards.size()) {
            throw new BadRequest("no guard " + n);
        }
        return n == 0 ? VerificationGuard.SENTINEL : guards.get(n - 1);
    }

    private void offsetForTime(JsonNode request, ObjectNode out) {
        Optional<TimestampAndOffset> found =
            log.fetchOffsetByTimestamp(Json.number(request, "timestamp"), Optional.empty()).timestampAndOffsetOpt();
        out.put("found", found.isPresent());
        found.ifPresent(f -> out.put("timestamp", f.timestamp).put("offset", f.offset).put("leaderEpoch", f.leaderEpoch.orElse(-1)));
    }

    private void endOfEpoch(JsonNode request, ObjectNode out) {
        Optional<OffsetAndEpoch> found = log.endOffsetForEpoch((int) Json.number(request, "epoch"));
        out.put("found", found.isPresent());
        found.ifPresent(f -> out.put("epoch", f.epoch()).put("offset", f.offset()));
    }
}
