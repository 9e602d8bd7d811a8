package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * The request "open": does Kafka load this directory, and what does it make of it? Works on a copy unless told
 * otherwise, reports the log, stops it or throws it away, and reports the files that are left.
 */
final class OpenCheck {
    private final Path scratch;
    private long copies;

    OpenCheck(Path scratch) {
        this.scratch = scratch;
    }

    void run(JsonNode request, ObjectNode out) throws Exception {
        Path dir = Path.of(Json.text(request, "dir"));
        if (request.path("inPlace").asBoolean()) {
            open(dir, request, out);
            return;
        }
        Path parent = scratch.resolve("copy-" + copies++);
        try {
            Path copy = parent.resolve(nameFor(dir));
            Directories.copy(dir, copy);
            open(copy, request, out);
        } finally {
            Directories.remove(parent);
        }
    }

    /** Kafka takes topic and partition from the directory's name; a copy may repair a name that is not one. */
    private static String nameFor(Path dir) {
        String name = dir.getFileName().toString();
        return name.matches("[A-Za-z0-9._-]+-\\d+") ? name : "t-0";
    }

    private static void open(Path dir, JsonNode request, ObjectNode out) throws Exception {
        Files.createDirectories(dir);
        SteppedClock clock = new SteppedClock(request.path("clock").asLong(SteppedClock.DEFAULT_MS));
        HeldScheduler scheduler = new HeldScheduler(clock);
        Settings settings = new Settings();
        settings.merge(request.path("settings"));
        Partition.Checkpoints known = new Partition.Checkpoints(request.path("clean").asBoolean(),
            request.path("recoveryPoint").asLong(), request.path("logStart").asLong());
        Partition partition = null;
        try {
            partition = Partition.load(dir.toFile(), settings, known, clock, scheduler);
            scheduler.runDue();
            out.put("loaded", true);
            look(partition.log, out);
            if (request.path("stop").asBoolean()) {
                Partition p = partition;
                partition = null;
                ObjectNode stopped = out.putObject("stopped");
                stopped.put("recoveryPoint", p.stop());
                stopped.put("logStart", p.logStartToCheckpoint());
            }
        } catch (BadRequest e) {
            throw e;
        } catch (Exception | StackOverflowError | AssertionError e) {
            out.put("loaded", false);
            Failure.describe(e, out.putObject("failure"));
            Handles.abandoned(1);
        } finally {
            if (partition != null) {
                partition.drop();
            }
            leftovers(dir, request, scheduler, out);
        }
    }

    /**
     * A freshly loaded log has its high watermark at the log start, which hides the last stable offset. After
     * the offset as found, the high watermark is moved to the end; that touches no file.
     */
    private static void look(UnifiedLog log, ObjectNode out) throws IOException, ReflectiveOperationException {
        long found = log.highWatermark();
        log.updateHighWatermark(log.logEndOffset());
        LogState.describe(log, out);
        out.put("highWatermark", found);
    }

    /** Unlinking happens a minute later in a broker; here right away, unless the renamed files are wanted. */
    private static void leftovers(Path dir, JsonNode request, HeldScheduler scheduler, ObjectNode out)
            throws IOException, ReflectiveOperationException {
        ArrayNode deleted = out.putArray("deleted");
        File[] list = dir.toFile().listFiles((d, name) -> name.endsWith(FileState.DELETED));
        if (list != null) {
            List.of(list).stream().map(File::getName).sorted().forEach(deleted::add);
        }
        if (request.path("keepDeleted").asBoolean()) {
            Handles.abandoned(scheduler.drop());
        } else {
            scheduler.runAll();
        }
        FileState.describe(dir, null, request.path("digests").asBoolean(), out.putArray("files"));
    }
}
