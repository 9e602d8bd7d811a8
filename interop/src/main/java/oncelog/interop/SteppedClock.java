package oncelog.interop;

import org.apache.kafka.common.utils.Time;

/** The only clock Kafka sees. It stands still until a request moves it, so equal requests give equal logs. */
final class SteppedClock implements Time {
    /** Where a clock stands when nobody says otherwise: 2023-11-14T22:13:20Z. */
    static final long DEFAULT_MS = 1_700_000_000_000L;

    private long ms;

    SteppedClock(long ms) {
        this.ms = ms;
    }

    void moveTo(long ms) {
        this.ms = ms;
    }

    @Override
    public long milliseconds() {
        return ms;
    }

    @Override
    public long hiResClockMs() {
        return ms;
    }

    @Override
    public long nanoseconds() {
        return ms * 1_000_000;
    }

    @Override
    public void sleep(long howLong) {
        ms += howLong;
    }
}
