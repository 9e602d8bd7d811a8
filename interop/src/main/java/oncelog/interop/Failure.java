package oncelog.interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** An exception as an answer: its class, its message, the error code a client would have seen, refused records. */
final class Failure {
    private Failure() {
    }

    static void describe(Throwable thrown, ObjectNode out) {
        Throwable shown = thrown;
        if (thrown instanceof RecordValidationException refused) {
            shown = refused.invalidException();
            ArrayNode records = out.putArray("records");
            refused.recordErrors().forEach(e -> records.add(e.batchIndex));
        }
        out.put("badRequest", thrown instanceof BadRequest);
        out.put("class", shown.getClass().getName());
        out.put("message", String.valueOf(shown.getMessage()));
        out.put("code", Errors.forException(shown).code());
        ArrayNode causes = out.putArray("causes");
        int depth = 0;
        for (Throwable c = shown.getCause(); c != null && depth < 8; c = c.getCause(), depth++) {
            causes.add(c.getClass().getName() + ": " + c.getMessage());
        }
        if (Boolean.getBoolean("oncelog.traces")) {
            thrown.printStackTrace();
        }
    }
}
