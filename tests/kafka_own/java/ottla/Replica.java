package ottla;

import kafka.cluster.Partition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.image.TopicsImage;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;

/** A replica at a broker, with the methods of Kafka's Partition whose answers stand in the metadata. */
final class Replica {
    private final Broker broker;
    private final TopicPartition partition;
    private final UnifiedLog log;

    private Replica(Broker broker, TopicPartition partition, UnifiedLog log) {
        this.broker = broker;
        this.partition = partition;
        this.log = log;
    }

    /** The replica of a partition at a broker, if it has one on disk. */
    static Option<Partition> find(Broker broker, TopicPartition partition) {
        return LogOnDisk.find(broker.config(), partition, false)
            .map(log -> StandIn.of(Partition.class, new Replica(broker, partition, log), Unreachable::inTheBroker));
    }

    public Option<Object> leaderIdIfLocal() {
        return isLeader() ? leaderReplicaIdOpt() : Option.empty();
    }

    public Option<Object> leaderReplicaIdOpt() {
        return Option.apply(registration().leader);
    }

    public boolean isLeader() {
        return registration().leader == broker.nodeId();
    }

    public Option<UnifiedLog> leaderLogIfLocal() {
        return isLeader() ? Option.apply(log) : Option.empty();
    }

    public int getLeaderEpoch() {
        return registration().leaderEpoch;
    }

    private PartitionRegistration registration() {
        TopicsImage topics = broker.image().topics();
        return topics.getPartition(topics.topicNameToIdView().get(partition.topic()), partition.partition());
    }

    @Override
    public String toString() {
        return partition + " at " + broker;
    }
}
