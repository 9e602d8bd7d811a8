package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * The settings of one log, by Kafka's own names. What is not named keeps Kafka's default. Names of the
 * broker (producer id expiry, verification of transactions, their longest time) stand beside those of the topic.
 */
final class Settings {
    private static final String EXPIRY = "producer.id.expiration.ms";
    private static final String VERIFICATION = "transaction.partition.verification.enable";
    private static final String TRANSACTION_TIMEOUT = "transaction.max.timeout.ms";

    private final Map<String, String> topic = new HashMap<>();
    private int expiryMs = 86_400_000;
    private boolean verification = true;
    private int transactionTimeoutMs = 900_000;

    /** Takes over what a request names; may be called again to change settings of a running log. */
    void merge(JsonNode named) {
        for (Iterator<Map.Entry<String, JsonNode>> it = named.fields(); it.hasNext(); ) {
            Map.Entry<String, JsonNode> e = it.next();
            switch (e.getKey()) {
                case EXPIRY -> expiryMs = e.getValue().asInt();
                case VERIFICATION -> verification = e.getValue().asBoolean();
                case TRANSACTION_TIMEOUT -> transactionTimeoutMs = e.getValue().asInt();
                // The public name refuses less than 1 MiB; the internal one is the same setting without that floor.
                case "segment.bytes" -> topic.put(LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG, e.getValue().asText());
                default -> topic.put(e.getKey(), e.getValue().asText());
            }
        }
    }

    /** Checks names first: Kafka itself ignores a misspelled one. */
    LogConfig log() {
        for (String name : topic.keySet()) {
            if (!LogConfig.configNames().contains(name)) {
                throw new BadRequest("unknown setting: " + name);
            }
        }
        return new LogConfig(topic);
    }

    ProducerStateManagerConfig producers() {
        return new ProducerStateManagerConfig(expiryMs, verification);
    }

    int transactionTimeoutMs() {
        return transactionTimeoutMs;
    }

    /** Settings of producers are shared objects that the log looks at each time: change them in place. */
    void applyTo(ProducerStateManagerConfig live) {
        live.setProducerIdExpirationMs(expiryMs);
        live.setTransactionVerificationEnabled(verification);
    }
}
