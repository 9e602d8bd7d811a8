package oncelog.interop;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.UnixOperatingSystemMXBean;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;

/**
 * Keeps an eye on open files and maps. What is closed by name is gone at once; a segment that Kafka dropped in the
 * middle of a failed load is closed by the garbage collector, which is called when enough of those may have piled up.
 */
final class Handles {
    private static final int ENOUGH = 200;
    private static int abandoned;

    private Handles() {
    }

    /** Counts objects that nobody closed. */
    static void abandoned(int n) {
        abandoned += n;
        if (abandoned >= ENOUGH) {
            abandoned = 0;
            System.gc();
        }
    }

    static void describe(ObjectNode out) {
        long files = -1;
        if (ManagementFactory.getOperatingSystemMXBean() instanceof UnixOperatingSystemMXBean os) {
            files = os.getOpenFileDescriptorCount();
        }
        out.put("openFiles", files);
        long maps = 0;
        for (BufferPoolMXBean pool : ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class)) {
            if (pool.getName().equals("mapped")) {
                maps = pool.getCount();
            }
        }
        out.put("maps", maps);
        out.put("metrics", KafkaYammerMetrics.defaultRegistry().allMetrics().size());
    }
}
