package ottla;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import scala.jdk.javaapi.CollectionConverters;

/** The settings of a broker process: those of the test, and the addresses. */
final class Settings {
    /** Settings that say where the node stands, which the adapter decides. */
    private static final Set<String> PLACE = Set.of(
        "process.roles", "node.id", "broker.id", "listeners", "advertised.listeners", "listener.security.protocol.map",
        "inter.broker.listener.name", "security.inter.broker.protocol", "controller.listener.names",
        "controller.quorum.voters", "controller.quorum.bootstrap.servers", "controller.quorum.auto.join.enable",
        "early.start.listeners", "log.dir", "log.dirs", "metadata.log.dir", "sasl.mechanism.inter.broker.protocol",
        "sasl.mechanism.controller.protocol");

    /** Settings that name Java classes, and the classes that the broker has. */
    private static final Map<String, List<String>> CLASSES = Map.ofEntries(
        Map.entry("authorizer.class.name", List.of("org.apache.kafka.metadata.authorizer.StandardAuthorizer")),
        Map.entry("principal.builder.class", List.of("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")),
        Map.entry("replica.selector.class", List.of("org.apache.kafka.common.replica.RackAwareReplicaSelector")),
        Map.entry("create.topic.policy.class.name", List.of()),
        Map.entry("alter.config.policy.class.name", List.of()),
        Map.entry("client.quota.callback.class", List.of()),
        Map.entry("metric.reporters", List.of("org.apache.kafka.common.metrics.JmxReporter")),
        Map.entry("config.providers", List.of()),
        Map.entry("ssl.engine.factory.class", List.of()));

    private static final Map<String, String> ASSIGNORS = Map.of(
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor", "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor", "range",
        "org.apache.kafka.coordinator.group.assignor.SimpleAssignor", "simple");

    private final KafkaConfig config;
    private final Map<String, String> values = new LinkedHashMap<>();

    Settings(KafkaConfig config) {
        this.config = config;
        for (Map.Entry<String, Object> entry : config.originals().entrySet()) {
            String name = entry.getKey();
            boolean known = AbstractKafkaConfig.CONFIG_DEF.names().contains(name) || name.startsWith("listener.name.");
            if (known && !PLACE.contains(name) && entry.getValue() != null) {
                set(name, text(name, entry.getValue()));
            }
        }
        set("node.id", String.valueOf(config.nodeId()));
        set("log.dirs", String.join(",", config.logDirs()));
        if (!config.metadataLogDir().equals(config.logDirs().get(0))) {
            set("metadata.log.dir", config.metadataLogDir());
        }
    }

    void set(String name, String value) {
        values.put(name, value);
    }

    /** The listeners for clients and other brokers. */
    List<Endpoint> brokerListeners() {
        return CollectionConverters.asJava(config.dataPlaneListeners());
    }

    /** Set the addresses of listeners; `ports` has the port of each by its name. */
    void listen(Map<String, Integer> ports, List<String> controllerListeners, Integer controllerPort) {
        String listeners = brokerListeners().stream()
            .map(endpoint -> address(endpoint, ports.get(endpoint.listener())))
            .collect(Collectors.joining(","));
        StringBuilder protocols = new StringBuilder(brokerListeners().stream()
            .map(endpoint -> endpoint.listener() + ":" + endpoint.securityProtocol())
            .collect(Collectors.joining(",")));
        ListenerName between = config.interBrokerListenerName();
        if (config.effectiveListenerSecurityProtocolMap().get(between) == SecurityProtocol.PLAINTEXT) {
            set("inter.broker.listener.name", between.value());
        } else {
            listeners += ",BETWEEN_BROKERS://localhost:" + ports.get("BETWEEN_BROKERS");
            protocols.append(",BETWEEN_BROKERS:PLAINTEXT");
            set("inter.broker.listener.name", "BETWEEN_BROKERS");
        }
        for (String name : controllerListeners) {
            protocols.append(",").append(name).append(":PLAINTEXT");
        }
        set("controller.listener.names", String.join(",", controllerListeners));
        if (controllerPort != null) {
            listeners += "," + controllerListeners.get(0) + "://localhost:" + controllerPort;
        }
        set("listeners", listeners);
        set("listener.security.protocol.map", protocols.toString());
    }

    private static String address(Endpoint endpoint, int port) {
        String host = endpoint.host() == null ? "" : endpoint.host();
        return endpoint.listener() + "://" + host + ":" + port;
    }

    Path write(Path file) throws IOException {
        Properties properties = new Properties();
        properties.putAll(values);
        try (OutputStream stream = Files.newOutputStream(file)) {
            properties.store(stream, null);
        }
        return file;
    }

    private static String text(String name, Object value) {
        String text = value instanceof List<?> list
            ? list.stream().map(Settings::text).collect(Collectors.joining(","))
            : text(value);
        String unprefixed = name.replaceFirst("^listener\\.name\\.[^.]+\\.(?:[^.]+\\.(?=sasl))?", "");
        if (name.equals("group.consumer.assignors") || name.equals("group.share.assignors")) {
            text = List.of(text.split(",")).stream()
                .map(assignor -> ASSIGNORS.getOrDefault(assignor.trim(), assignor.trim()))
                .collect(Collectors.joining(","));
            if (text.contains(".")) {
                throw Unreachable.plugin(name, value);
            }
        } else if (!text.isEmpty()) {
            List<String> served = CLASSES.get(unprefixed);
            if (served != null && !List.of(text.split(",")).stream().allMatch(served::contains)
                    || unprefixed.endsWith("callback.handler.class") || unprefixed.endsWith("login.class")) {
                throw Unreachable.plugin(name, value);
            }
        }
        return text;
    }

    private static String text(Object value) {
        if (value instanceof Class<?> kind) {
            return kind.getName();
        }
        return value instanceof org.apache.kafka.common.config.types.Password password ? password.value() : value.toString();
    }
}
