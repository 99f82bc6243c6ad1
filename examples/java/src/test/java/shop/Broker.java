package shop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A broker for tests: {@code ottla --test}, a child of this process. */
record Broker(String bootstrap, String control, Process process) implements AutoCloseable {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Starts a broker with settings such as "ottla.clock=manual"; it accepts requests once this returns. */
    static Broker start(String... settings) throws IOException {
        List<String> command = new ArrayList<>(List.of("ottla", "--test", "--log-level", "WARNING"));
        for (String setting : settings) {
            command.addAll(List.of("-o", setting));
        }
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        JsonNode said = JSON.readTree(process.inputReader().readLine());
        return new Broker(said.get("bootstrap").asText(), said.get("control").asText(), process);
    }

    /** Asks the broker for something: docs/testing.md and GET /openapi.json list what there is. */
    JsonNode call(String path, Map<String, ?> arguments) {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(control + path))
                    .header("Content-Type", "application/json")
                    .POST(HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(arguments))).build();
            var response = HTTP.send(request, BodyHandlers.ofString());
            if (response.statusCode() != 200) {
                throw new AssertionError(path + " " + arguments + ": " + response.body());
            }
            return JSON.readTree(response.body());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Ends the broker; its data is gone then. */
    @Override
    public void close() {
        process.destroy();
        process.onExit().join();
    }
}
