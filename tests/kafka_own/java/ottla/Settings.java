package ottla;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import scala.jdk.javaapi.CollectionConverters;

/** The settings of a broker process: those of the test, and the addresses. */
final class Settings {
    /** The listener between brokers where that of the test is secured, which the broker has for clients only. */
    static final String BETWEEN_BROKERS = "BETWEEN_BROKERS";

    /** Settings that say where the node stands, which the adapter decides. */
    private static final Set<String> PLACE = Set.of(
        "process.roles", "node.id", "broker.id", "listeners", "advertised.listeners", "listener.security.protocol.map",
        "inter.broker.listener.name", "security.inter.broker.protocol", "controller.listener.names",
        "controller.quorum.voters", "controller.quorum.bootstrap.servers", "controller.quorum.auto.join.enable",
        "early.start.listeners", "log.dir", "log.dirs", "metadata.log.dir", "sasl.mechanism.inter.broker.protocol",
        "sasl.mechanism.controller.protocol", "principal.builder.class");

    /** Settings of classes that the broker has, which Kafka's definition does not know. */
    private static final Set<String> OF_CLASSES = Set.of("super.users", "allow.everyone.if.no.acl.found");

    /** Settings that name Java classes, and the classes that the broker has. */
    private static final Map<String, List<String>> CLASSES = Map.of(
        "authorizer.class.name", List.of("org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        "replica.selector.class", List.of("org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        "create.topic.policy.class.name", List.of(),
        "alter.config.policy.class.name", List.of(),
        "client.quota.callback.class", List.of(),
        "metric.reporters", List.of("org.apache.kafka.common.metrics.JmxReporter"),
        "config.providers", List.of(),
        "ssl.engine.factory.class", List.of());

    private static final Map<String, String> ASSIGNORS = Map.of(
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor", "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor", "range",
        "org.apache.kafka.coordinator.group.assignor.SimpleAssignor", "simple");

    private static final Set<String> MECHANISMS = Set.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512");

    private final KafkaConfig config;
    private final Path directory;
    private final Map<String, String> values = new LinkedHashMap<>();

    /** The users as whom all clients of a listener are known, by the listener's name. */
    final Map<String, String> users = new HashMap<>();

    /** `directory` is for files of the settings. */
    Settings(KafkaConfig config, Path directory) {
        this.config = config;
        this.directory = directory;
        for (Map.Entry<String, Object> entry : config.originals().entrySet()) {
            String name = entry.getKey();
            boolean known = AbstractKafkaConfig.CONFIG_DEF.names().contains(name) || OF_CLASSES.contains(name) || name.startsWith("listener.name.");
            if (known && !PLACE.contains(name) && entry.getValue() != null) {
                set(name, text(name, entry.getValue()));
            }
        }
        set("node.id", String.valueOf(config.nodeId()));
        set("log.dirs", String.join(",", config.logDirs().stream().map(path -> new File(path).getAbsolutePath()).toList()));
        if (!config.metadataLogDir().equals(config.logDirs().get(0))) {
            set("metadata.log.dir", config.metadataLogDir());
        }
        setUsersOfListeners();
    }

    void set(String name, String value) {
        values.put(name, value);
    }

    /** The listeners for clients and other brokers. */
    List<Endpoint> brokerListeners() {
        return CollectionConverters.asJava(config.dataPlaneListeners());
    }

    /** Set the addresses of listeners. `ports` has the port of each by its name; `hidden` those behind a login proxy. */
    void listen(Map<String, Integer> ports, Map<String, Integer> hidden, List<String> controllerListeners, Integer controllerPort) {
        List<String> listeners = new ArrayList<>();
        List<String> advertised = new ArrayList<>();
        Map<String, SecurityProtocol> protocols = new LinkedHashMap<>();
        for (Endpoint endpoint : brokerListeners()) {
            String name = endpoint.listener();
            String host = endpoint.host() == null ? "" : endpoint.host();
            listeners.add(name + "://" + host + ":" + hidden.getOrDefault(name, ports.get(name)));
            advertised.add(name + "://" + (host.isEmpty() ? "localhost" : host) + ":" + ports.get(name));
            protocols.put(name, hidden.containsKey(name) ? SecurityProtocol.SASL_PLAINTEXT : endpoint.securityProtocol());
        }
        String between = config.interBrokerListenerName().value();
        if (protocols.get(between) != SecurityProtocol.PLAINTEXT) {
            between = BETWEEN_BROKERS;
            listeners.add(between + "://localhost:" + ports.get(between));
            advertised.add(between + "://localhost:" + ports.get(between));
            protocols.put(between, SecurityProtocol.PLAINTEXT);
            values.computeIfPresent("super.users", (name, users) -> users + ";User:ANONYMOUS");
        }
        if (controllerPort != null) {
            listeners.add(controllerListeners.get(0) + "://localhost:" + controllerPort);
        }
        controllerListeners.forEach(name -> protocols.put(name, SecurityProtocol.PLAINTEXT));
        set("listeners", String.join(",", listeners));
        set("advertised.listeners", String.join(",", advertised));
        set("inter.broker.listener.name", between);
        set("controller.listener.names", String.join(",", controllerListeners));
        set("listener.security.protocol.map", protocols.entrySet().stream()
            .map(entry -> entry.getKey() + ":" + entry.getValue()).collect(Collectors.joining(",")));
        convertStores();
        setLogins();
    }

    Path write() throws IOException {
        Properties properties = new Properties();
        properties.putAll(values);
        Path file = directory.resolve("server.properties");
        try (OutputStream stream = Files.newOutputStream(file)) {
            properties.store(stream, null);
        }
        return file;
    }

    /** Where a class of the test says who clients are, ask it for each listener: it can be served where it says the same
     *  of all clients. */
    private void setUsersOfListeners() {
        for (Endpoint endpoint : brokerListeners()) {
            String own = "listener.name." + endpoint.listener().toLowerCase(Locale.ROOT) + ".principal.builder.class";
            values.remove(own);
            String builder = config.originals().containsKey(own)
                ? text(config.originals().get(own))
                : config.getClass("principal.builder.class").getName();
            if (!builder.startsWith("org.apache.kafka.common.")) {
                users.put(endpoint.listener(), userOf(endpoint, builder));
            }
        }
        users.forEach((listener, user) -> {
            String prefix = "listener.name." + listener.toLowerCase(Locale.ROOT) + ".";
            set(prefix + "sasl.enabled.mechanisms", "PLAIN");
            set(prefix + "plain.sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required user_" + user
                + "=\"" + LoginProxy.password(user) + "\";");
        });
    }

    private static String userOf(Endpoint endpoint, String builder) {
        try {
            KafkaPrincipal principal = ((KafkaPrincipalBuilder) Class.forName(builder).getDeclaredConstructor().newInstance())
                .build(new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress(), endpoint.listener()));
            if (endpoint.securityProtocol() == SecurityProtocol.PLAINTEXT && principal.getPrincipalType().equals(KafkaPrincipal.USER_TYPE)) {
                return principal.getName();
            }
        } catch (ReflectiveOperationException | RuntimeException needsMore) {
            // It says who clients are by more than their listener.
        }
        throw Unreachable.plugin("principal.builder.class", builder);
    }

    /** Replace stores in Java's own format. */
    private void convertStores() {
        for (String name : List.copyOf(values.keySet())) {
            if (!name.endsWith("store.location")) {
                continue;
            }
            String prefix = name.substring(0, name.length() - "location".length());
            String type = values.getOrDefault(prefix + "type", "JKS");
            String password = values.get(prefix + "password");
            if (!type.equals("JKS") || password == null || values.get(name).isEmpty()) {
                continue;
            }
            String keyPasswordName = prefix.replaceFirst("keystore\\.$", "key.password");
            Path target = directory.resolve(prefix + "p12");
            try {
                KeyStores.convert(values.get(name), type, password, values.get(keyPasswordName), target);
            } catch (Exception failure) {
                throw new IllegalStateException("cannot convert " + values.get(name), failure);
            }
            set(name, target.toString());
            set(prefix + "type", "PKCS12");
            if (prefix.endsWith("keystore.")) {
                set(keyPasswordName, password);
            }
        }
    }

    /** Set for each SASL listener what the test has put into a JAAS file of its virtual machine. */
    private void setLogins() {
        for (Endpoint endpoint : brokerListeners()) {
            if (!endpoint.securityProtocol().name.startsWith("SASL")) {
                continue;
            }
            String listener = endpoint.listener().toLowerCase(Locale.ROOT);
            String prefix = "listener.name." + listener + ".";
            String enabled = values.getOrDefault(prefix + "sasl.enabled.mechanisms", values.getOrDefault("sasl.enabled.mechanisms", "GSSAPI"));
            for (String mechanism : enabled.split(",")) {
                if (!MECHANISMS.contains(mechanism.trim())) {
                    throw Unreachable.cluster("SASL mechanism " + mechanism.trim() + " with Java classes in the broker");
                }
                String name = prefix + mechanism.trim().toLowerCase(Locale.ROOT) + ".sasl.jaas.config";
                if (!values.containsKey(name)) {
                    entry(listener, mechanism.trim()).ifPresent(entry -> set(name, text(entry)));
                }
            }
        }
    }

    private static java.util.Optional<AppConfigurationEntry> entry(String listener, String mechanism) {
        String module = mechanism.equals("PLAIN") ? "Plain" : "Scram";
        for (String context : List.of(listener + ".KafkaServer", "KafkaServer")) {
            AppConfigurationEntry[] entries = Configuration.getConfiguration().getAppConfigurationEntry(context);
            for (AppConfigurationEntry entry : entries == null ? new AppConfigurationEntry[0] : entries) {
                if (entry.getLoginModuleName().contains(module)) {
                    return java.util.Optional.of(entry);
                }
            }
        }
        return java.util.Optional.empty();
    }

    private static String text(AppConfigurationEntry entry) {
        return entry.getOptions().entrySet().stream()
            .map(option -> " " + option.getKey() + "=\"" + option.getValue() + "\"")
            .collect(Collectors.joining("", entry.getLoginModuleName() + " required", ";"));
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
        return value instanceof Password password ? password.value() : value.toString();
    }
}
