"""Metadata through the codec."""

from typing import Any

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR, MetadataRequest, MetadataResponse
from protocol.records.cluster_metadata import PartitionChangeRecord
from tests.support.broker import ConnectionClosed, InProcessBroker, running_broker
from tests.support.metadata import pretend


def request(*names: str | None, topic_id: bytes | None = None, **fields: Any) -> MetadataRequest:
    """Ask for topics by name; with ``topic_id`` for one by its id."""
    topics = [MetadataRequest.Topic(name=name) for name in names]
    if topic_id is not None:
        topics.append(MetadataRequest.Topic(name=None, topic_id=topic_id))
    return MetadataRequest(topics=topics, **fields)


def codes(answer: MetadataResponse) -> dict[str | None, int]:
    """The error code of each topic."""
    return {topic.name: topic.error_code for topic in answer.topics}


@serves(MetadataRequest)
@every_version(MetadataRequest)
def test_topics_are_described_with_their_partitions(broker: InProcessBroker, version: int) -> None:
    topic_id = broker.create_topic("orders", partitions=2)
    answer = broker.ask(request("orders"), version)

    (node,) = answer.brokers
    assert (node.node_id, node.host, node.rack) == (1, "127.0.0.1", None)
    assert answer.cluster_id == (broker.server.components.node.cluster_id if version >= 2 else None)
    assert answer.controller_id == (1 if version >= 1 else -1)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (E.NONE, "orders", False)
    assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes, p.error_code) for p in topic.partitions] == [
        (0, 1, [1], [1], 0),
        (1, 1, [1], [1], 0),
    ]
    assert topic.partitions[0].leader_epoch == (0 if version >= 7 else -1)
    assert topic.topic_authorized_operations == OPERATIONS_NOT_ASKED_FOR


@every_version(MetadataRequest)
def test_all_topics_are_asked_for_by_null_and_in_version_0_by_an_empty_list(
    broker: InProcessBroker, version: int
) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert set(codes(broker.ask(everything, version))) == {"a", "b"}
    if version > 0:
        assert broker.ask(MetadataRequest(topics=[]), version).topics == []


def test_null_in_version_0_closes_the_connection(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.send_bytes(bytes.fromhex("0000000e 0003 0000 00000001 ffff ffffffff"))
    with pytest.raises(ConnectionClosed):
        client.receive_payload()


@serves(MetadataRequest, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE)
@every_version(MetadataRequest)
def test_a_missing_topic_is_unknown_first_and_there_next_time(broker: InProcessBroker, version: int) -> None:
    assert codes(broker.ask(request("new"), version)) == {"new": E.UNKNOWN_TOPIC_OR_PARTITION}
    broker.wait_until(lambda: "new" in broker.topics())
    assert codes(broker.ask(request("new"), version)) == {"new": E.NONE}


@pytest.mark.parametrize("by", ["client", "broker"])
def test_topics_are_not_created_where_client_or_broker_does_not_want_it(
    tmp_path_factory: pytest.TempPathFactory, by: str
) -> None:
    settings = {"auto_create_topics_enable": "false"} if by == "broker" else {}
    with running_broker(tmp_path_factory.mktemp("data"), **settings) as broker:
        question = request("new", allow_auto_topic_creation=by == "broker")
        assert codes(broker.ask(question, 12)) == {"new": E.UNKNOWN_TOPIC_OR_PARTITION}
        broker.create_topic("another")  # whatever had begun would be done by now
        assert broker.topics() == {"another"}


@serves(MetadataRequest, E.INVALID_TOPIC_EXCEPTION, versions=[12])
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250])
def test_a_name_that_no_topic_may_have_is_refused(broker: InProcessBroker, name: str) -> None:
    assert codes(broker.ask(request(name), 12)) == {name: E.INVALID_TOPIC_EXCEPTION}
    assert codes(broker.ask(request("x" * 249), 12)) == {"x" * 249: E.UNKNOWN_TOPIC_OR_PARTITION}


@serves(MetadataRequest, E.LEADER_NOT_AVAILABLE, versions=[12])
def test_a_partition_without_a_leader_says_so(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders")
    pretend(broker.server.metadata, PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1, isr=[]))
    (answer,) = broker.ask(request("orders"), 12).topics
    assert (answer.error_code, answer.partitions[0].error_code) == (E.NONE, E.LEADER_NOT_AVAILABLE)


def test_topics_that_exist_come_first_and_each_once(broker: InProcessBroker) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    answer = broker.ask(request("b", "nowhere", "a", "b"), 12)
    assert [topic.name for topic in answer.topics] == ["b", "a", "nowhere"]


@serves(MetadataRequest, E.NONE, E.UNKNOWN_TOPIC_ID)
@every_version(MetadataRequest, since=12)
def test_topics_are_found_by_id(broker: InProcessBroker, version: int) -> None:
    topic_id = broker.create_topic("orders")
    (found,) = broker.ask(request(topic_id=topic_id), version).topics
    assert (found.error_code, found.name) == (E.NONE, "orders")
    (missing,) = broker.ask(request(topic_id=b"0123456789abcdef"), version).topics
    assert (missing.error_code, missing.name, missing.topic_id) == (E.UNKNOWN_TOPIC_ID, None, b"0123456789abcdef")
    (only,) = broker.ask(request("other", topic_id=topic_id), version).topics
    assert only.name == "orders", "beside an id, names do not count"


@serves(MetadataRequest, E.INVALID_REQUEST)
@every_version(MetadataRequest, since=10, until=11)
def test_ids_came_with_version_12(broker: InProcessBroker, version: int) -> None:
    topic_id = broker.create_topic("orders")
    answer = broker.ask(request(topic_id=topic_id), version)
    assert [topic.error_code for topic in answer.topics] == [E.INVALID_REQUEST]
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], None, -1)


@serves(MetadataRequest, E.UNKNOWN_SERVER_ERROR, versions=[12])
def test_neither_name_nor_id_is_answered_as_kafka_does(broker: InProcessBroker) -> None:
    answer = broker.ask(request(topic_id=bytes(16)), 12)
    assert ([topic.error_code for topic in answer.topics], answer.brokers) == ([E.UNKNOWN_SERVER_ERROR], [])
    assert broker.ask(request(topic_id=bytes(16)), 13).error_code == E.UNKNOWN_SERVER_ERROR


def test_internal_topics_are_marked_and_created_as_their_owners_need_them(broker: InProcessBroker) -> None:
    (missing,) = broker.ask(request("__consumer_offsets"), 12).topics
    assert (missing.error_code, missing.is_internal) == (E.UNKNOWN_TOPIC_OR_PARTITION, True)
    broker.wait_until(lambda: "__consumer_offsets" in broker.topics())
    (created,) = broker.ask(request("__consumer_offsets"), 12).topics
    assert (created.is_internal, len(created.partitions)) == (True, 50)


def test_the_metadata_log_is_no_topic(broker: InProcessBroker) -> None:
    for name in ("first", "second"):
        (answer,) = broker.ask(request("__cluster_metadata"), 12).topics
        assert (answer.error_code, answer.is_internal) == (E.UNKNOWN_TOPIC_OR_PARTITION, False)
        broker.create_topic(name)
    assert broker.topics() == {"first", "second"}


@pytest.mark.parametrize(("version", "cluster"), [(8, 8096), (10, 8096), (11, OPERATIONS_NOT_ASKED_FOR)])
def test_authorized_operations_are_told_where_asked(broker: InProcessBroker, version: int, cluster: int) -> None:
    broker.create_topic("orders")
    asked = ("orders", "not there", "nope")
    question = request(*asked, include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    answer = broker.ask(question, version)
    assert [topic.topic_authorized_operations for topic in answer.topics] == [3576] * 3
    assert answer.cluster_authorized_operations == cluster


def test_a_topic_keeps_its_id_and_epochs_after_a_clean_restart(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders")
    broker.restart()
    (topic,) = broker.ask(request("orders"), 12).topics
    assert (topic.topic_id, topic.partitions[0].leader_epoch) == (topic_id, 0)
