package ottla;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.DelegationTokenData;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** A broker process, with the methods of Kafka's BrokerServer that tests and their base classes call. */
final class Broker {
    private static final long START_LIMIT_S = 60;
    private static final Pattern LAST_APPLIED = Pattern.compile(
        "^kafka_server_broker_metadata_metrics_last_applied_record_offset\\S* (\\S+)", Pattern.MULTILINE);
    private static final Set<Process> processes = ConcurrentHashMap.newKeySet();
    private static int made;

    private final Cluster cluster;
    private final SharedServer shared;
    private final KafkaConfig config;
    private final MetadataLog ownMetadata;
    private final Map<String, Integer> ports = new HashMap<>();
    /** The ports of listeners that clients reach by a proxy. */
    private final Map<String, Integer> hidden = new HashMap<>();
    private final List<LoginProxy> proxies = new ArrayList<>();
    private final Path directory;
    private Process process;
    private boolean stopped = true;

    Broker(Cluster cluster, SharedServer shared) {
        this.cluster = cluster;
        this.shared = shared;
        config = withoutUnstableApis(shared.brokerConfig());
        ownMetadata = new MetadataLog(config.metadataLogDir());
        directory = Path.of(System.getProperty("ottla.directory"), "broker-" + made++ + "-of-node-" + config.nodeId());
        if (shared.loader() == null) {
            shared.loader_$eq(StandIn.of(MetadataLoader.class, new Loader(), Unreachable::inTheBroker));
        }
    }

    /** The settings as tests see them: where they allow versions of APIs that Kafka has not released, tests ask for them. */
    private static KafkaConfig withoutUnstableApis(KafkaConfig config) {
        Map<String, Object> values = new HashMap<>(config.originals());
        values.put("unstable.api.versions.enable", "false");
        return new KafkaConfig(values, false);
    }

    int nodeId() {
        return config.nodeId();
    }

    MetadataLog ownMetadata() {
        return ownMetadata;
    }

    /** The metadata of the cluster as far as this node has come with it, which is all of it unless it stands still. */
    MetadataImage image() {
        MetadataImage image = cluster.metadata().image();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (isRunning() && lastAppliedOffset() < image.offset() && System.nanoTime() < deadline) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(10));
        }
        return image;
    }

    private long lastAppliedOffset() {
        if (cluster.isHost(this)) {
            return ownMetadata.lastOffset();
        }
        try (InputStream page = URI.create("http://localhost:" + ports.get("metrics") + "/metrics").toURL().openStream()) {
            Matcher found = LAST_APPLIED.matcher(new String(page.readAllBytes(), StandardCharsets.UTF_8));
            return found.find() ? (long) Double.parseDouble(found.group(1)) : -1;
        } catch (IOException starting) {
            return -1;
        }
    }

    /** Whether a broker has run since `forgetEnded`. */
    static boolean anyRan() {
        return !processes.isEmpty();
    }

    static void forgetEnded() {
        processes.removeIf(process -> !process.isAlive());
    }

    boolean isRunning() {
        return process != null && process.isAlive();
    }

    // What Kafka's BrokerServer has.

    public KafkaConfig config() {
        return config;
    }

    public SharedServer sharedServer() {
        return shared;
    }

    public String clusterId() {
        return shared.clusterId();
    }

    public void startup() throws Exception {
        if (isRunning()) {
            return;
        }
        Files.createDirectories(directory);
        Settings settings = new Settings(config, directory);
        for (Endpoint endpoint : settings.brokerListeners()) {
            ports.computeIfAbsent(endpoint.listener(), name -> portOf(endpoint));
        }
        for (String name : List.of(Settings.BETWEEN_BROKERS, "metrics")) {
            ports.computeIfAbsent(name, any -> Cluster.freePort());
        }
        settings.users.keySet().forEach(name -> hidden.computeIfAbsent(name, any -> Cluster.freePort()));
        settings.set("ottla.prometheus.listener", "localhost:" + ports.get("metrics"));
        if (cluster.isHost(this)) {
            settings.set("process.roles", "broker,controller");
            settings.listen(ports, hidden, cluster.controller.listeners(), cluster.controller.port());
            cluster.controller.settings().forEach(settings::set);
            bootstrap();
        } else {
            settings.set("process.roles", "broker");
            settings.listen(ports, hidden, controllerListeners(), null);
            settings.set("controller.quorum.bootstrap.servers", controllerAddresses());
        }
        Path file = settings.write();
        List<String> command = new ArrayList<>(List.of(System.getProperty("ottla.command").split("\n")));
        command.addAll(List.of("--config", file.toString()));
        Path output = directory.resolve("stdout");
        process = new ProcessBuilder(command)
            .directory(new File(System.getProperty("ottla.packages")))
            .redirectOutput(output.toFile())
            .redirectError(ProcessBuilder.Redirect.appendTo(directory.resolve("stderr").toFile()))
            .start();
        processes.add(process);
        stopped = false;
        waitUntilReady(output);
        for (Map.Entry<String, String> user : settings.users.entrySet()) {
            String name = user.getKey();
            proxies.add(new LoginProxy(ports.get(name), hidden.get(name), user.getValue()));
        }
    }

    public void shutdown() throws Exception {
        stop(60);
    }

    public void shutdown(Duration timeout) throws Exception {
        stop(Math.max(1, timeout.toSeconds()));
    }

    public void awaitShutdown() {
        // `shutdown` has waited.
    }

    public boolean isShutdown() {
        return !isRunning();
    }

    public BrokerState brokerState() {
        if (isRunning()) {
            return BrokerState.RUNNING;
        }
        return process == null ? BrokerState.NOT_RUNNING : BrokerState.SHUTTING_DOWN; // where Kafka's stays
    }

    public int boundPort(ListenerName name) {
        return ports.get(name.value());
    }

    public SocketServer socketServer() {
        return StandIn.of(SocketServer.class, new Object() {
            public int boundPort(ListenerName name) {
                return ports.get(name.value());
            }
        }, Unreachable::inTheBroker);
    }

    public KRaftMetadataCache metadataCache() {
        KRaftMetadataCache cache = new KRaftMetadataCache(config.nodeId(), () -> KRaftVersion.LATEST_PRODUCTION);
        cache.setImage(image());
        return cache;
    }

    public KafkaApis dataPlaneRequestProcessor() {
        return StandIn.of(KafkaApis.class, new Object() {
            public boolean isConsumerGroupProtocolEnabled() {
                return true;
            }

            public String clusterId() {
                return shared.clusterId();
            }

            public KRaftMetadataCache metadataCache() {
                return Broker.this.metadataCache();
            }

            public Option<Plugin<Authorizer>> authorizerPlugin() {
                return Broker.this.authorizerPlugin();
            }
        }, Unreachable::inTheBroker);
    }

    public GroupCoordinator groupCoordinator() {
        return StandIn.of(GroupCoordinator.class, new Object() {
            public Properties groupMetadataTopicConfigs() {
                Properties configs = new Properties();
                configs.put("cleanup.policy", "compact");
                configs.put("compression.type", "producer");
                configs.put("segment.bytes", String.valueOf(config.getInt("offsets.topic.segment.bytes")));
                return configs;
            }
        }, Unreachable::inTheBroker);
    }

    public Option<Plugin<Authorizer>> authorizerPlugin() {
        String name = config.getString("authorizer.class.name");
        return name == null || name.isEmpty() ? Option.empty() : Acls.plugin(this, null);
    }

    public DelegationTokenCache tokenCache() {
        return StandIn.of(DelegationTokenCache.class, new Object() {
            public Collection<TokenInformation> tokens() {
                return image().delegationTokens().tokens().values().stream().map(DelegationTokenData::tokenInformation).toList();
            }
        }, Unreachable::inTheBroker);
    }

    public CredentialProvider credentialProvider() {
        CredentialProvider provider = new CredentialProvider(ScramMechanism.mechanismNames(), null);
        image().scram().mechanisms().forEach((mechanism, users) ->
            users.forEach((user, credential) -> provider.updateCredential(mechanism, user, credential.toCredential())));
        return provider;
    }

    public LogManager logManager() {
        return StandIn.of(LogManager.class, new Object() {
            public Option<UnifiedLog> getLog(TopicPartition partition, boolean isFuture) {
                return LogOnDisk.find(config, partition, isFuture);
            }

            public boolean getLog$default$2() {
                return false;
            }

            public Seq<File> liveLogDirs() {
                return CollectionConverters.asScala(config.logDirs().stream().map(File::new).toList()).toSeq();
            }
        }, Unreachable::inTheBroker);
    }

    public ReplicaManager replicaManager() {
        return StandIn.of(ReplicaManager.class, new Object() {
            public Option<UnifiedLog> localLog(TopicPartition partition) {
                return LogOnDisk.find(config, partition, false);
            }

            public UnifiedLog localLogOrException(TopicPartition partition) {
                return localLog(partition).get();
            }

            public LogManager logManager() {
                return Broker.this.logManager();
            }

            public Option<Partition> onlinePartition(TopicPartition partition) {
                // A broker of Kafka's that was stopped leads for ever what it led, and is nobody's follower.
                return isRunning() ? Replica.find(Broker.this, partition) : Option.empty();
            }
        }, Unreachable::inTheBroker);
    }

    /** How far this node has followed the metadata, for tests that wait for all nodes. */
    private final class Loader {
        public long lastAppliedOffset() {
            return Broker.this.lastAppliedOffset();
        }
    }

    // How the process starts and stops.

    private int portOf(Endpoint endpoint) {
        return endpoint.port() != 0 && shared.socketFactory() == org.apache.kafka.server.ServerSocketFactory.INSTANCE
            ? endpoint.port()
            : Cluster.freePort();
    }

    /** Give a new node the records that the test's controller would begin with: features, SCRAM credentials. */
    private void bootstrap() throws IOException {
        Path logDir = Path.of(config.metadataLogDir());
        if (!Files.exists(logDir.resolve("__cluster_metadata-0"))) {
            Files.createDirectories(logDir);
            new BootstrapDirectory(logDir.toString()).writeBinaryFile(cluster.controller.bootstrapMetadata());
        }
    }

    private List<String> controllerListeners() {
        if (cluster.controller != null) {
            return cluster.controller.listeners();
        }
        ListenerName name = new ListenerName(config.controllerListenerNames().get(0));
        SecurityProtocol protocol = config.effectiveListenerSecurityProtocolMap().get(name);
        if (protocol != SecurityProtocol.PLAINTEXT) {
            throw Unreachable.cluster("controllers that want " + protocol + " of brokers");
        }
        return List.of(name.value());
    }

    private String controllerAddresses() throws Exception {
        if (cluster.controller != null) {
            return "localhost:" + cluster.controller.port();
        }
        Collection<java.net.InetSocketAddress> addresses = shared.bootstrapServers().isEmpty()
            ? shared.controllerQuorumVotersFuture().get(60, TimeUnit.SECONDS).values()
            : shared.bootstrapServers();
        return String.join(",", addresses.stream().map(address -> address.getHostString() + ":" + address.getPort()).toList());
    }

    private void waitUntilReady(Path output) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_LIMIT_S);
        while (!Files.readString(output).contains("\n")) {
            if (!process.isAlive()) {
                throw new AssertionError("the broker ended with exit code " + process.exitValue() + " before it was ready: " + lastLines());
            }
            if (System.nanoTime() > deadline) {
                process.destroyForcibly().waitFor();
                throw new AssertionError("the broker was not ready within " + START_LIMIT_S + " s: " + lastLines());
            }
            Thread.sleep(10);
        }
    }

    private void stop(long limitS) throws Exception {
        if (process == null || stopped) {
            return;
        }
        boolean tearingDown = isTearDown();
        if (!process.isAlive()) {
            stopped = true;
            throw new AssertionError("the broker has ended by itself with exit code " + process.exitValue() + ": " + lastLines());
        }
        if (!tearingDown && cluster.isHost(this) && cluster.othersRun(this)) {
            throw Unreachable.controllers("stops the broker that has the controller");
        }
        for (LoginProxy proxy : proxies) {
            proxy.close();
        }
        proxies.clear();
        if (tearingDown) {
            process.destroyForcibly();
        } else {
            process.destroy();
            if (!process.waitFor(limitS, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        }
        process.waitFor();
        stopped = true;
    }

    /** Whether the test is over: its brokers are stopped by threads of the test kit, or by `tearDown`. */
    private static boolean isTearDown() {
        return Thread.currentThread() != RunTests.testThread
            || StackWalker.getInstance().walk(frames -> frames.anyMatch(frame -> frame.getMethodName().matches("tearDown|close")));
    }

    private String lastLines() throws IOException {
        List<String> lines = Files.readAllLines(directory.resolve("stderr"));
        return String.join(" | ", lines.subList(Math.max(0, lines.size() - 5), lines.size()));
    }

    @Override
    public String toString() {
        return "node " + config.nodeId();
    }
}
