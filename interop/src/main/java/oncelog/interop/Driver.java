package oncelog.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * The program: one JSON request a line on standard input, one JSON answer a line on standard output, until the
 * input ends. Answers carry "ok"; a failed one carries "failure" too. See README.md for the requests.
 */
public final class Driver {
    private final Path scratch;
    private final OpenCheck opens;
    private final Map<Integer, Session> sessions = new HashMap<>();
    private int lastSession;

    private Driver(Path scratch) {
        this.scratch = scratch;
        this.opens = new OpenCheck(scratch);
    }

    public static void main(String[] arguments) throws IOException {
        // Whatever a library prints must not get between the answers.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Path scratch = Files.createTempDirectory("oncelog-interop");
        try (BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            Driver driver = new Driver(scratch);
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answers.println(Json.MAPPER.writeValueAsString(driver.answer(line)));
                answers.flush();
            }
        } finally {
            Directories.remove(scratch);
        }
    }

    private ObjectNode answer(String line) {
        ObjectNode out = Json.MAPPER.createObjectNode();
        try {
            JsonNode request = Json.MAPPER.readTree(line);
            run(Json.text(request, "op"), request, out);
            out.put("ok", true);
        } catch (Exception | StackOverflowError | AssertionError | OutOfMemoryError e) {
            out.removeAll();
            out.put("ok", false);
            Failure.describe(e, out.putObject("failure"));
            Handles.abandoned(1);
        }
        return out;
    }

    private void run(String op, JsonNode request, ObjectNode out) throws Exception {
        switch (op) {
            case "ping" -> out.put("java", System.getProperty("java.version")).put("scratch", scratch.toString());
            case "open" -> opens.run(request, out);
            case "dump" -> Batches.dump(request, out);
            case "handles" -> Handles.describe(out);
            case "session-open" -> {
                sessions.put(++lastSession, Session.open(request, out));
                out.put("session", lastSession);
            }
            default -> inSession(op, request, out);
        }
    }

    private void inSession(String op, JsonNode request, ObjectNode out) throws Exception {
        int id = (int) Json.number(request, "session");
        Session s = sessions.get(id);
        if (s == null) {
            throw new BadRequest("no open session " + id);
        }
        boolean lives = false;
        boolean last = op.equals("close") || op.equals("crash");
        try {
            lives = s.apply(op, request, out);
        } finally {
            if (last && !lives) {
                sessions.remove(id);
            }
        }
    }
}
