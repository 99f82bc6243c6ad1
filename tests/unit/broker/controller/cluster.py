"""A controller of several brokers whose metadata log is in memory, and brokers that are their requests only."""

from broker.controller.cluster_requests import ClusterRequests, ClusterSettings
from broker.controller.local_controller import LocalController
from broker.controller.topic_creation import NewTopic
from broker.metadata.cache import MetadataCache
from broker.metadata.loader import MetadataLoader
from broker.metadata.record_versions import version_of
from broker.metadata.registration import SUPPORTED_FEATURES, Registration
from broker.raft.quorum import Quorum
from broker.runtime.manual_clock import ManualClock
from config.broker_settings import BrokerSettings
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_lifecycle import BrokerHeartbeatRequest, BrokerRegistrationRequest
from protocol.messages.elections import ElectLeadersRequest
from protocol.records.cluster_metadata import ConfigRecord, FeatureLevelRecord, decode_record, encode_record
from tests.support.metadata import Batch
from tests.support.own_broker import OwnBroker
from tests.unit.broker.metadata.metadata_node import CLIENTS, CONTROLLERS, CountedIds

CLUSTER_ID = "cluster"
OWN = 1
METADATA_VERSION = 25


def directory(broker_id, number=0):
    """The id of a broker's log directory."""
    return (1_000_000 + 1_000 * broker_id + number).to_bytes(16, "big")


class MemoryLog:
    """A metadata log without a disk: `sync` makes durable what has been appended, if `is_held`."""

    def __init__(self, loader):
        self._loader = loader
        self._waiting = []
        self.records = []
        self.batches = []
        self.is_held = False
        self.high_watermark = 0
        self.quorum = Quorum(kraft_version=1)

    @property
    def end_offset(self):
        return len(self.records)

    def append(self, records, then):
        first = len(self.records)
        for record, version in records:
            assert decode_record(encode_record(record, version)) == (record, version)
        batch = [record for record, _ in records]
        self.records += batch
        self.batches.append(batch)
        self._waiting.append((Batch(first, batch), then))
        if not self.is_held:
            self.sync()
        return first

    def when_durable(self, then):
        if self._waiting:
            self._waiting.append((None, then))
        else:
            then()

    def sync(self):
        waiting, self._waiting = self._waiting, []
        for batch, then in waiting:
            if batch is not None:
                self._loader.handle_commit([batch])
                self.high_watermark = batch.next_offset
            then()


class Cluster:
    """A controller with its own broker 1; `broker` adds others."""

    def __init__(self, *, elr=False, metadata_version=METADATA_VERSION, before=None, was_clean=True, **settings):
        """``before`` is the run of the controller that this run continues, on the same metadata log."""
        self.clock = ManualClock() if before is None else before.clock
        self.ids = CountedIds() if before is None else before.ids
        self.brokers = {}
        """The brokers that `broker` has made, by id."""
        self.cache = MetadataCache()
        self.loader = MetadataLoader(self.cache)
        self.log = MemoryLog(self.loader)
        for batch in [] if before is None else before.log.batches:
            self.log.append([(record, version_of(record, metadata_version)) for record in batch], lambda: None)
        self.settings = BrokerSettings(node_id=OWN, listeners=(CLIENTS,), **settings)
        self.controller = LocalController(self.log, self.loader, ids=self.ids, settings=self.settings)
        self.requests = ClusterRequests(
            self.controller, cluster_id=CLUSTER_ID, clock=self.clock, settings=ClusterSettings()
        )
        self.own = OwnBroker(self.controller, self.requests)
        features = [FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)]
        if elr:
            features.append(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        self.register_own(bootstrap=features, was_clean=was_clean)

    def restarted(self, *, was_clean):
        """The next run of the controller's process."""
        return Cluster(before=self, was_clean=was_clean)

    def register_own(self, *, bootstrap=(), was_clean):
        """The own broker registers for a new run."""
        self.own.start(
            Registration(
                node_id=OWN,
                incarnation_id=self.ids.uuid(),
                endpoints=[CLIENTS],
                controller_endpoint=CONTROLLERS,
                rack=None,
                metadata_directory_id=directory(OWN),
                directories=[directory(OWN)],
            ),
            lambda: bootstrap,
            was_clean=was_clean,
        )

    @property
    def image(self):
        return self.controller.image

    def broker(self, broker_id, *, previous_epoch=-1, **options):
        """A broker that has registered and is unfenced."""
        broker = self.brokers[broker_id] = Broker(self, broker_id, **options)
        assert broker.register(previous_epoch=previous_epoch) is ErrorCode.NONE
        broker.heartbeat()
        return broker

    def own_epoch(self):
        return self.controller.broker_epoch

    def own_heartbeat(self, *, wants_shutdown):
        answers = []
        self.own.send(answers.append, wants_shutdown=wants_shutdown)
        (answer,) = answers
        return answer

    def topic(self, name, *replicas, **configs):
        """Create a topic with these replicas for each partition."""
        answers = []
        self.controller.create_topics(
            [
                NewTopic(
                    name=name,
                    assignments=list(enumerate(replicas)),
                    configs=[(key.replace("_", "."), value) for key, value in configs.items()],
                )
            ],
            timeout_ms=1000,
            validate_only=False,
            then=answers.extend,
        )
        assert answers[0].error is ErrorCode.NONE, answers[0].message
        return self.image.topics.by_name[name]

    def partition(self, name="orders", index=0):
        return self.image.topics.by_name[name].partition(index)

    def leader_and_isr(self, name="orders", index=0):
        partition = self.partition(name, index)
        return partition.leader, partition.leader_epoch, list(partition.isr)

    def config(self, resource_type, name, key, value):
        record = ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        self.controller.append([record])

    def reassign(self, *wishes, **options):
        """Ask for other replicas of partitions; the errors."""
        answers = []
        self.controller.reassign_partitions(wishes, then=answers.extend, **options)
        return [ErrorCode.NONE if fault is None else fault.code for fault in answers]

    def alter_isr(self, isr, name="orders", index=0, *, by=None, recovery_state=0, epochs=None, **changed):
        """The leader asks for another ISR; the answer for the partition."""
        partition = self.partition(name, index)
        by = partition.leader if by is None else by
        brokers = self.image.cluster.brokers
        asked = AlterPartitionRequest.Topic.Partition(
            partition_index=index,
            leader_epoch=changed.get("leader_epoch", partition.leader_epoch),
            partition_epoch=changed.get("partition_epoch", partition.partition_epoch),
            leader_recovery_state=recovery_state,
            new_isr_with_epochs=[
                AlterPartitionRequest.Topic.Partition.BrokerState(
                    broker_id=broker,
                    broker_epoch=(epochs or {}).get(broker, brokers[broker].broker_epoch if broker in brokers else -1),
                )
                for broker in isr
            ],
        )
        topic_id = self.image.topics.by_name[name].topic_id
        request = AlterPartitionRequest(
            broker_id=by,
            broker_epoch=brokers[by].broker_epoch,
            topics=[AlterPartitionRequest.Topic(topic_id=topic_id, partitions=[asked])],
        )
        return self.ask(self.requests.alter_partition, request).topics[0].partitions[0]

    def elect(self, election_type, *asked):
        """ElectLeaders of (topic, index), or of all; (topic, index, error) of each answer."""
        partitions = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index]) for name, index in asked]
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=partitions or None)
        response = self.ask(self.requests.elect_leaders, request)
        return [
            (topic.topic, result.partition_id, ErrorCode(result.error_code))
            for topic in response.replica_election_results
            for result in topic.partition_result
        ]

    def ask(self, method, request):
        answers = []
        method(request, answers.append)
        (answer,) = answers
        return answer

    def check_sessions(self):
        """Fence all whose session is over."""
        while self.requests.session_check(self.clock.monotonic_ms()) <= self.clock.monotonic_ms():
            pass


class Broker:
    """One broker of the cluster: its runs, one after the other."""

    def __init__(self, cluster, broker_id, *, rack=None, directories=1, port=9092):
        self.cluster = cluster
        self.broker_id = broker_id
        self.rack = rack
        self.directories = [directory(broker_id, number) for number in range(directories)]
        self.port = port
        self.epoch = -1
        self.incarnation_id = None

    def registration(self, *, previous_epoch=-1, **changed):
        """The request of a new run, or with ``incarnation_id`` of the same run again."""
        fields = {
            "broker_id": self.broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": self.cluster.ids.uuid(),
            "listeners": [
                BrokerRegistrationRequest.Listener(
                    name="PLAINTEXT", host="127.0.0.1", port=self.port, security_protocol=0
                )
            ],
            "features": [
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            "rack": self.rack,
            "log_dirs": self.directories,
            "previous_broker_epoch": previous_epoch,
        }
        return BrokerRegistrationRequest(**(fields | changed))

    def register(self, **changed):
        """Register; the error."""
        request = self.registration(**changed)
        answer = self.cluster.ask(self.cluster.requests.broker_registration, request)
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self.epoch, self.incarnation_id = answer.broker_epoch, request.incarnation_id
        return error

    def heartbeat(self, *, offset=None, fence=False, shutdown=False, offline=(), cordoned=None):
        """A heartbeat that has applied all metadata, or up to ``offset``; the answer."""
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self.cluster.log.end_offset - 1 if offset is None else offset,
            want_fence=fence,
            want_shut_down=shutdown,
            offline_log_dirs=list(offline),
            cordoned_log_dirs=cordoned,
        )
        return self.cluster.ask(self.cluster.requests.broker_heartbeat, request)

    def assign(self, directory_id, *partitions):
        """Say in which directory replicas of (topic id, index) are; the errors."""
        Directory = AssignReplicasToDirsRequest.Directory
        topics = [
            Directory.Topic(topic_id=topic_id, partitions=[Directory.Topic.Partition(partition_index=index)])
            for topic_id, index in partitions
        ]
        request = AssignReplicasToDirsRequest(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            directories=[Directory(id=directory_id, topics=topics)],
        )
        answer = self.cluster.ask(self.cluster.requests.assign_replicas_to_dirs, request)
        return [
            ErrorCode(partition.error_code)
            for one in answer.directories
            for topic in one.topics
            for partition in topic.partitions
        ]

    @property
    def registered(self):
        return self.cluster.image.cluster.brokers[self.broker_id]
