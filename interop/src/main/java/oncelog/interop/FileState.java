package oncelog.interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.storage.internals.log.AbstractIndex;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** What lies in a partition directory: names, sizes, digests, used bytes of indexes, entries of snapshots. */
final class FileState {
    /** Kafka renames a segment or snapshot to this before it unlinks it. */
    static final String DELETED = ".deleted";

    private static final int OFFSET_ENTRY = 8;
    private static final int TIME_ENTRY = 12;

    private FileState() {
    }

    /** Names and sizes, and with digests also the contents in short. The log may be null: then nothing is open. */
    static void describe(Path dir, UnifiedLog log, boolean digests, ArrayNode out) throws IOException, ReflectiveOperationException {
        Map<String, Integer> entries = log == null ? Map.of() : openIndexes(log);
        for (Path f : Directories.files(dir)) {
            ObjectNode o = out.addObject();
            String name = f.getFileName().toString();
            o.put("name", name);
            o.put("size", Files.size(f));
            if (digests) {
                contents(f, name.replace(DELETED, ""), entries.get(name), o);
            }
        }
    }

    private static void contents(Path f, String name, Integer entries, ObjectNode out) throws IOException {
        if (name.endsWith(".snapshot")) {
            snapshot(f, out);
            return;
        }
        byte[] bytes = Files.readAllBytes(f);
        int used = bytes.length;
        if (name.endsWith(UnifiedLog.TIME_INDEX_FILE_SUFFIX)) {
            used = used(bytes, TIME_ENTRY, entries);
        } else if (name.endsWith(UnifiedLog.INDEX_FILE_SUFFIX)) {
            used = used(bytes, OFFSET_ENTRY, entries);
        }
        out.put("used", used);
        out.put("sha256", sha256(Arrays.copyOf(bytes, used)));
    }

    /**
     * An open index says how many entries it has; behind them may be stale ones from before a truncation.
     * Of a closed one everything up to the trailing zeros counts.
     */
    private static int used(byte[] bytes, int entrySize, Integer entries) {
        if (entries != null) {
            return Math.min(bytes.length, entries * entrySize);
        }
        int end = bytes.length;
        while (end > 0 && bytes[end - 1] == 0) {
            end--;
        }
        return Math.min(bytes.length, (end + entrySize - 1) / entrySize * entrySize);
    }

    /** Numbers of entries by file name. Private fields: the public getters would load an index, and create a missing one. */
    private static Map<String, Integer> openIndexes(UnifiedLog log) throws ReflectiveOperationException {
        Map<String, Integer> found = new HashMap<>();
        for (LogSegment s : log.logSegments()) {
            for (String which : List.of("lazyOffsetIndex", "lazyTimeIndex")) {
                Object wrapper = Reflected.get(Reflected.get(s, which), "indexWrapper");
                if (wrapper.getClass().getSimpleName().equals("IndexValue")) {
                    AbstractIndex index = Reflected.get(wrapper, "index");
                    found.put(index.file().getName(), index.entries());
                }
            }
        }
        return found;
    }

    /** Entries by producer id instead of a digest: their order in the file is that of a hash map. */
    private static void snapshot(Path f, ObjectNode out) throws IOException {
        try {
            List<ProducerStateEntry> entries = ProducerStateManager.readSnapshot(f.toFile());
            ArrayNode list = out.putArray("producers");
            entries.stream().sorted(Comparator.comparingLong(ProducerStateEntry::producerId))
                .forEach(e -> LogState.producer(e, list.addObject()));
        } catch (RuntimeException e) {
            out.put("corrupt", String.valueOf(e.getMessage()));
        }
    }

    static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
