package ottla;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.controller.ControllerRequestContext;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import scala.Option;

/** The controller in the process of a broker, with the methods of Kafka's ControllerServer that base classes of tests
 *  call. */
final class Controller {
    private final SharedServer shared;
    private final BootstrapMetadata bootstrapMetadata;
    private final int port = Cluster.controllerPort();
    Cluster cluster;

    Controller(SharedServer shared, BootstrapMetadata bootstrapMetadata) {
        this.shared = shared;
        this.bootstrapMetadata = bootstrapMetadata;
    }

    int port() {
        return port;
    }

    List<String> listeners() {
        return shared.controllerConfig().controllerListenerNames();
    }

    /** The settings of the test's controller that decide how a cluster is led. */
    Map<String, String> settings() {
        Map<String, String> settings = new HashMap<>();
        config().originals().forEach((name, value) -> {
            if (AbstractKafkaConfig.CONFIG_DEF.names().contains(name) && name.matches("num\\.partitions|default\\.replication\\.factor|min\\.insync\\.replicas|.*\\.enable"
                    + "|broker\\.session\\.timeout\\.ms|controller\\.quota\\..*|quota\\..*|delegation\\..*|leader\\..*")
                    && !name.startsWith("unstable.") && !name.startsWith("controller.quorum")) {
                settings.put(name, value.toString());
            }
        });
        return settings;
    }

    // What Kafka's ControllerServer has.

    public KafkaConfig config() {
        return shared.controllerConfig();
    }

    public SharedServer sharedServer() {
        return shared;
    }

    public String clusterId() {
        return shared.clusterId();
    }

    public BootstrapMetadata bootstrapMetadata() {
        return bootstrapMetadata;
    }

    public void startup() {
        // The first broker starts it.
    }

    public void shutdown() {
        if (cluster.running() > 0 && !java.util.Arrays.stream(Thread.currentThread().getStackTrace())
                .anyMatch(frame -> frame.getMethodName().matches("tearDown|close")) && Thread.currentThread() == RunTests.testThread) {
            throw Unreachable.controllers("stops the controller");
        }
    }

    public void awaitShutdown() {
        // Its broker's `shutdown` has waited.
    }

    public CompletableFuture<Integer> socketServerFirstBoundPortFuture() {
        return CompletableFuture.completedFuture(port);
    }

    public SocketServer socketServer() {
        return StandIn.of(SocketServer.class, new Object() {
            public int boundPort(ListenerName name) {
                return port;
            }
        }, Unreachable::controllers);
    }

    @SuppressWarnings("unchecked")
    public KafkaRaftManager<Object> raftManager() {
        return StandIn.of(KafkaRaftManager.class, new Object() {
            public RaftLog raftLog() {
                return StandIn.of(RaftLog.class, new Object() {
                    public LogOffsetMetadata endOffset() {
                        return new LogOffsetMetadata(cluster.metadata().lastOffset() + 1);
                    }
                }, Unreachable::controllers);
            }
        }, Unreachable::controllers);
    }

    public Option<Plugin<Authorizer>> authorizerPlugin() {
        String name = config().getString("authorizer.class.name");
        return name == null || name.isEmpty() ? Option.empty() : Acls.plugin(cluster.host(), "localhost:" + port);
    }

    public org.apache.kafka.controller.Controller controller() {
        return StandIn.of(org.apache.kafka.controller.Controller.class, new Object() {
            public int curClaimEpoch() {
                return cluster.allRun() ? 1 : -1;
            }

            public boolean isActive() {
                return true;
            }

            public CompletableFuture<Void> waitForReadyBrokers(int count) {
                return CompletableFuture.completedFuture(null);
            }

            public CompletableFuture<Map<String, Uuid>> findAllTopicIds(ControllerRequestContext context) {
                return CompletableFuture.completedFuture(ids());
            }

            public CompletableFuture<Map<String, ResultOrError<Uuid>>> findTopicIds(
                    ControllerRequestContext context, java.util.Collection<String> names) {
                Map<String, Uuid> ids = ids();
                return CompletableFuture.completedFuture(names.stream().collect(Collectors.toMap(name -> name, name -> ids.containsKey(name)
                    ? new ResultOrError<>(ids.get(name))
                    : new ResultOrError<>(new ApiError(Errors.UNKNOWN_TOPIC_OR_PARTITION)))));
            }
        }, Unreachable::controllers);
    }

    private Map<String, Uuid> ids() {
        return new HashMap<>(cluster.host().metadataCache().topicNamesToIds());
    }

    @Override
    public String toString() {
        return "the controller of a broker";
    }
}
