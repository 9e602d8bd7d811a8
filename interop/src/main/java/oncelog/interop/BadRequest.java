package oncelog.interop;

/** The request itself is wrong: nothing that Kafka said, and never to be taken for an answer of Kafka's. */
final class BadRequest extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BadRequest(String message) {
        super(message);
    }
}
