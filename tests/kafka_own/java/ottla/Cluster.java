package ottla;

import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.SharedServer;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.mockito.MockedConstruction;
import org.mockito.Mockito;

/** The brokers of a test, and who decides in their cluster: the controller of one of them, in its process, or Kafka's
 *  controllers, in the process of the tests. */
final class Cluster {
    private static final Map<Object, Object> answers = Collections.synchronizedMap(new WeakHashMap<>());
    private static Cluster current;
    private static final java.util.ArrayDeque<Integer> controllerPorts = new java.util.ArrayDeque<>();
    private static int nextPort = Integer.getInteger("ottla.first.port");

    private final String clusterId;
    /** The controller in a broker's process; null under Kafka's controllers. */
    final Controller controller;
    private final MetadataLog controllersMetadata;
    private final List<Broker> brokers = new ArrayList<>();

    private Cluster(String clusterId, Controller controller, MetadataLog controllersMetadata) {
        this.clusterId = clusterId;
        this.controller = controller;
        this.controllersMetadata = controllersMetadata;
        if (controller != null) {
            controller.cluster = this;
        }
    }

    /** Let what constructs Kafka's brokers and controllers get a stand-in. */
    static List<MockedConstruction<?>> standIns(boolean ownController) {
        return List.of(
            Mockito.mockConstruction(
                BrokerServer.class,
                StandIn.settings(BrokerServer.class, answers::get, Unreachable::inTheBroker),
                (mock, context) -> {
                    SharedServer shared = (SharedServer) context.arguments().get(0);
                    answers.put(mock, current.add(new Broker(current, shared)));
                }),
            Mockito.mockConstruction(
                ControllerServer.class,
                StandIn.settings(ControllerServer.class, answers::get, Unreachable::controllers),
                (mock, context) -> {
                    SharedServer shared = (SharedServer) context.arguments().get(0);
                    if (current == null || !current.clusterId.equals(shared.clusterId())) {
                        current = new Cluster(shared.clusterId(), ownController
                            ? new Controller(shared, (BootstrapMetadata) context.arguments().get(2))
                            : null, new MetadataLog(shared.controllerConfig().metadataLogDir()));
                    } else if (ownController) {
                        throw Unreachable.controllers("several controllers");
                    }
                    answers.put(mock, ownController ? current.controller : kafkasOwn(context.arguments()));
                }));
    }

    /** Kafka's controller itself. It is made by another thread, since in this one its class is replaced. */
    private static ControllerServer kafkasOwn(List<?> arguments) throws Exception {
        return CompletableFuture.supplyAsync(() -> new ControllerServer(
            (SharedServer) arguments.get(0), (KafkaConfigSchema) arguments.get(1), (BootstrapMetadata) arguments.get(2))).get();
    }

    private synchronized Broker add(Broker broker) {
        brokers.add(broker);
        return broker;
    }

    /** The metadata log of the controller. */
    MetadataLog metadata() {
        return controller == null ? controllersMetadata : host().ownMetadata();
    }

    /** The broker that has the controller of this cluster in its process: the one that was made last with the id of the
     *  first. */
    synchronized Broker host() {
        int id = brokers.get(0).nodeId();
        return brokers.stream().filter(broker -> broker.nodeId() == id).reduce((first, second) -> second).orElseThrow();
    }

    boolean isHost(Broker broker) {
        return controller != null && host() == broker;
    }

    synchronized boolean othersRun(Broker broker) {
        return brokers.stream().anyMatch(other -> other != broker && other.isRunning());
    }

    synchronized boolean allRun() {
        return brokers.stream().allMatch(Broker::isRunning);
    }

    synchronized int running() {
        return (int) brokers.stream().filter(Broker::isRunning).count();
    }

    /** A free port for a controller, whose broker opens it later: it is given to nobody else while the test lasts. */
    static synchronized int controllerPort() {
        int port = freePort();
        controllerPorts.add(port);
        if (controllerPorts.size() > 8) {
            controllerPorts.remove();
        }
        return port;
    }

    /** A free port that the system gives to no client. */
    static synchronized int freePort() {
        int first = Integer.getInteger("ottla.first.port");
        for (int tried = 0; tried < 96; tried++) {
            int port = nextPort;
            nextPort = first + (nextPort + 1 - first) % 96;
            if (controllerPorts.contains(port)) {
                continue;
            }
            try (ServerSocket probe = new ServerSocket()) {
                probe.setReuseAddress(true);
                probe.bind(new InetSocketAddress(port));
                return port;
            } catch (java.io.IOException taken) {
                // The next one.
            }
        }
        throw new IllegalStateException("every port from " + first + " to " + (first + 95) + " is taken");
    }
}
