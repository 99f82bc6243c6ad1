"""Consumers read from followers: Ottla's answers as Kafka's does, and each leader sends consumers to the other broker.

Ottla is broker 1 in rack a, with the controller; Kafka is broker 2 in rack b.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dev.kafka_jars import KAFKA_VERSION
from dev.waiting import until
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from tests.interop import programs
from tests.interop.clusters import CLUSTER, Cluster
from tests.interop.conftest import installed
from tests.support.clusters import Admin
from tests.support.metrics import Page, http_get
from tests.support.raw_client import RawClient

OTTLA: Final = 1
KAFKA: Final = 2
LED_BY: Final = {KAFKA: "led-by-kafka", OTTLA: "led-by-ottla"}
OTHER: Final = {KAFKA: OTTLA, OTTLA: KAFKA}
RACKS: Final = {OTTLA: "a", KAFKA: "b"}
SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TOPIC_IDS_SINCE: Final = 13
END: Final = 15
"""The log end: ten records, a transaction that was aborted, one that is open, and another record behind it."""
STABLE: Final = 12
LOG_START: Final = 5

Answer = FetchResponse.Response.Partition

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Both brokers, and of each a topic that it leads and the other follows, with the same records."""
    libraries = str(installed(lambda: programs.kafka_libraries(KAFKA_VERSION)))
    selector = {"replica.selector.class": SELECTOR}
    with Cluster(tmp_path_factory.mktemp("followers"), libraries) as cluster:
        cluster.add_primary(OTTLA, {**selector, "broker.rack": RACKS[OTTLA], "ottla.cluster.id": CLUSTER})
        cluster.add_kafka(KAFKA, {**selector, "broker.rack": RACKS[KAFKA]})
        admin = Admin(cluster.bootstrap)
        producers = []
        for leader, topic in LED_BY.items():
            admin.create(topic, [[leader, OTHER[leader]]])
            admin.until(lambda topic=topic: admin.isrs(topic) == [{OTTLA, KAFKA}], f"{topic} is in sync")  # type: ignore[misc]
            producers.append(fill(cluster, topic))
            delete_records(cluster, leader, topic)
        for leader, topic in LED_BY.items():
            until(lambda leader=leader, topic=topic: is_replicated(cluster, leader, topic), f"{topic} is replicated")  # type: ignore[misc]
        yield cluster


def fill(cluster: Cluster, topic: str) -> Producer:
    """Send the records; the producer's transaction stays open as long as the producer is there."""
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    plain = Producer({**settings, "acks": "all"})

    def send(producer: Producer, value: bytes) -> None:
        producer.produce(topic, value, partition=0, timestamp=1_700_000_000_000)
        assert producer.flush(60) == 0

    for number in range(10):
        send(plain, b"%d" % number)
    transactional = Producer({**settings, "transactional.id": topic, "transaction.timeout.ms": 600_000})
    transactional.init_transactions()
    transactional.begin_transaction()
    send(transactional, b"gone")
    transactional.abort_transaction()
    transactional.begin_transaction()
    for _ in range(2):
        send(transactional, b"open")
    send(plain, b"behind")
    return transactional


def delete_records(cluster: Cluster, leader: int, topic: str) -> None:
    of_topic = DeleteRecordsRequest.Topic
    partition = of_topic.Partition(partition_index=0, offset=LOG_START)
    with RawClient(cluster.nodes[leader].bootstrap) as client:
        answer = client.ask(
            DeleteRecordsRequest(topics=[of_topic(name=topic, partitions=[partition])], timeout_ms=30_000), 2
        )
    assert answer.topics[0].partitions[0].error_code == 0, answer


def is_replicated(cluster: Cluster, leader: int, topic: str) -> bool:
    with RawClient(cluster.nodes[OTHER[leader]].bootstrap) as client:
        found = ask(client, topic, Asked(offset=LOG_START))
    return (found.high_watermark, found.log_start_offset) == (END, LOG_START)


class Asked(NamedTuple):
    """What a consumer asks."""

    version: int = 12
    offset: int = LOG_START
    isolation_level: int = 0
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    rack: str = ""


def ask(client: RawClient, topic: str, asked: Asked, topic_id: bytes = bytes(16)) -> Answer:
    partition = FetchRequest.Topic.Partition(
        partition=0,
        fetch_offset=asked.offset,
        current_leader_epoch=asked.leader_epoch,
        last_fetched_epoch=asked.last_fetched_epoch,
        partition_max_bytes=1 << 20,
    )
    is_named = asked.version < TOPIC_IDS_SINCE
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=asked.isolation_level,
        topics=[
            FetchRequest.Topic(
                topic=topic if is_named else "", topic_id=bytes(16) if is_named else topic_id, partitions=[partition]
            )
        ],
        rack_id=asked.rack,
    )
    found: Answer = client.ask(request, asked.version).responses[0].partitions[0]
    return found


def topic_ids(client: RawClient) -> dict[str, bytes]:
    topics = [MetadataRequest.Topic(name=topic) for topic in LED_BY.values()]
    return {topic.name: topic.topic_id for topic in client.ask(MetadataRequest(topics=topics), 12).topics}


def shown(answer: Answer, leader: int) -> dict[str, object]:
    """The answer, with what differs between the two topics in the same words."""
    fields = {name: getattr(answer, name) for name in answer.__slots__}
    fields["current_leader"] = (answer.current_leader.leader_id == leader, answer.current_leader.leader_epoch)
    if answer.preferred_read_replica >= 0:
        fields["preferred_read_replica"] = "the follower" if answer.preferred_read_replica != leader else "the leader"
    if answer.aborted_transactions is not None:
        fields["aborted_transactions"] = [one.first_offset for one in answer.aborted_transactions]
    fields["records"] = len(answer.records or b"")
    return fields


ASKED: Final = [
    *(Asked(version=version) for version in range(4, 19)),
    *(Asked(offset=offset) for offset in (-1, 0, LOG_START - 1, LOG_START + 1, STABLE, END - 1, END, END + 1, 500)),
    *(Asked(version=17, isolation_level=1, offset=offset) for offset in (LOG_START, 10, 11, STABLE, END, END + 1)),
    *(Asked(version=version, leader_epoch=epoch) for version in (10, 12, 17) for epoch in (0, 1, 9)),
    *(Asked(last_fetched_epoch=epoch, offset=offset) for epoch in (0, 5) for offset in (0, LOG_START, END, END + 1)),
]


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_both_answer_consumers_in_either_role_alike(cluster: Cluster, role: str) -> None:
    """Racks: none, that of the leader, that of the follower, another."""
    different = []
    with RawClient(cluster.nodes[OTTLA].bootstrap) as ottla, RawClient(cluster.nodes[KAFKA].bootstrap) as kafka:
        ids = topic_ids(ottla)
        for asked, where in itertools.product(ASKED, ("", "leader", "follower", "elsewhere")):
            answers = []
            for client, node in ((ottla, OTTLA), (kafka, KAFKA)):
                leader = node if role == "leader" else OTHER[node]
                racks = {"leader": RACKS[leader], "follower": RACKS[OTHER[leader]]}
                found = ask(client, LED_BY[leader], asked._replace(rack=racks.get(where, where)), ids[LED_BY[leader]])
                answers.append(shown(found, leader))
            if answers[0] != answers[1]:
                different.append((asked, where, *answers))
    assert different == []


def test_offsets_are_looked_up_at_the_leader_by_both(cluster: Cluster) -> None:
    codes = []
    for leader, topic in LED_BY.items():
        of_topic = ListOffsetsRequest.Topic
        wanted = [of_topic(name=topic, partitions=[of_topic.Partition(partition_index=0, timestamp=-1)])]
        with RawClient(cluster.nodes[OTHER[leader]].bootstrap) as client:
            answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=wanted), 7)
        codes.append(answer.topics[0].partitions[0].error_code)
    assert codes == [6, 6]


def bytes_out(cluster: Cluster, topic: str) -> float:
    """Bytes of records of a topic that Ottla has answered."""
    page = Page(http_get(cluster.nodes[OTTLA].metrics_port, "/metrics").text)
    return page.get(f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}') or 0


@pytest.mark.parametrize("leader", [KAFKA, OTTLA])
def test_a_consumer_reads_from_the_follower_in_its_rack(cluster: Cluster, leader: int) -> None:
    topic = LED_BY[leader]
    before = bytes_out(cluster, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "client.rack": RACKS[OTHER[leader]],
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, LOG_START)])
    values: list[bytes | None] = []

    def has_read_all() -> bool:
        values.extend(message.value() for message in consumer.consume(100, timeout=0.2))
        return len(values) >= END - 1 - LOG_START

    until(has_read_all, "all records")
    consumer.close()
    assert values == [b"5", b"6", b"7", b"8", b"9", b"gone", b"open", b"open", b"behind"]
    has_read_from_ottla = bytes_out(cluster, topic) > before
    assert has_read_from_ottla == (leader == KAFKA)
