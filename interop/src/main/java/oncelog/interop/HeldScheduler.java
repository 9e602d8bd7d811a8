package oncelog.interop;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Delayed;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.server.util.Scheduler;

/**
 * A scheduler without threads. One-shot tasks (flush after a roll, unlinking of deleted segments, writing
 * the epoch checkpoint) wait until the driver runs them between two requests; periodic ones never run.
 */
final class HeldScheduler implements Scheduler {
    private final SteppedClock clock;
    private final List<Held> held = new ArrayList<>();

    HeldScheduler(SteppedClock clock) {
        this.clock = clock;
    }

    /** Runs what is due by the clock, in the order it was handed in. Returns the tasks' names. */
    List<String> runDue() {
        return runUntil(clock.milliseconds());
    }

    /** Runs everything, however far in the future it is due: the broker went on living for a while. */
    List<String> runAll() {
        return runUntil(Long.MAX_VALUE);
    }

    /** Forgets what waits: the broker died. */
    int drop() {
        int n = held.size();
        held.clear();
        return n;
    }

    private List<String> runUntil(long limit) {
        List<String> names = new ArrayList<>();
        for (Held next = take(limit); next != null; next = take(limit)) {
            names.add(next.name);
            next.runNow();
        }
        return names;
    }

    /** Takes the earliest task due by the limit; among equals the one handed in first. */
    private Held take(long limit) {
        Held best = null;
        for (Iterator<Held> it = held.iterator(); it.hasNext(); ) {
            Held h = it.next();
            if (h.isCancelled()) {
                it.remove();
            } else if (h.dueMs <= limit && (best == null || h.dueMs < best.dueMs)) {
                best = h;
            }
        }
        held.remove(best);
        return best;
    }

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        Held h = new Held(name, task, clock.milliseconds() + Math.max(0, delayMs));
        if (periodMs < 0) {
            held.add(h);
        }
        return h;
    }

    @Override
    public void startup() {
    }

    @Override
    public void shutdown() {
    }

    @Override
    public void resizeThreadPool(int size) {
    }

    /** One waiting task. */
    private final class Held extends FutureTask<Void> implements ScheduledFuture<Void> {
        private final String name;
        private final Runnable task;
        private final long dueMs;

        Held(String name, Runnable task, long dueMs) {
            super(task, null);
            this.name = name;
            this.task = task;
            this.dueMs = dueMs;
        }

        /** Runs the task on this thread, so that its exception reaches the caller. */
        void runNow() {
            task.run();
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return unit.convert(dueMs - clock.milliseconds(), TimeUnit.MILLISECONDS);
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(getDelay(TimeUnit.MILLISECONDS), other.getDelay(TimeUnit.MILLISECONDS));
        }
    }
}
