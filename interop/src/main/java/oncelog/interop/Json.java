package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.Base64;

/** Small helpers around JSON: a missing field of a request is an error unless a default is given. */
final class Json {
    static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() {
    }

    static JsonNode field(JsonNode request, String name) {
        JsonNode v = request.get(name);
        if (v == null || v.isNull()) {
            throw new BadRequest("request without " + name + ": " + request);
        }
        return v;
    }

    static String text(JsonNode request, String name) {
        return field(request, name).asText();
    }

    static long number(JsonNode request, String name) {
        return field(request, name).asLong();
    }

    static byte[] bytes(JsonNode request, String name) {
        return Base64.getDecoder().decode(text(request, name));
    }

    /** Puts bytes as base64; null stays null, as a record's key or value may be. */
    static void put(ObjectNode out, String name, ByteBuffer bytes) {
        if (bytes == null) {
            out.putNull(name);
            return;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        out.put(name, Base64.getEncoder().encodeToString(copy));
    }
}
