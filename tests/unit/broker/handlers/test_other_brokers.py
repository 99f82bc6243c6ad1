"""What is answered where other brokers are in the cluster. What is expected was seen on Apache Kafka 4.4.0, with one
controller and two brokers, of which only the first had the listener OUTSIDE.

This node is broker 1. Broker 2 has no listener OUTSIDE, broker 3 has it and is fenced.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.coordinators.partitioning import partition_of
from broker.replication.partition import LeaderAndIsr
from config.resources import ConfigResource
from dev.serving import assert_served, every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from protocol.records.cluster_metadata import FenceBrokerRecord
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.cluster import broker_record, id_of, partition_record, topic_records
from tests.support.leadership import OTHER, hand_over
from tests.support.metadata import pretend
from tests.support.requests import fetch_request, produce_request

ELSEWHERE, LEADERLESS, NOT_THERE = 0, 1, 7
"""Partitions of `far`: led by broker 2, led by none, and none at all."""
Of = MetadataResponse.Topic.Partition
Described = DescribeTopicPartitionsResponse.Topic.Partition
DescribedBroker = DescribeClusterResponse.Broker
ProduceAnswer = ProduceResponse.Response.PartitionResponse

LOST_DIRECTORY = bytes([0xEE] * 16)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessBroker]:
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "advertised_listeners": "INSIDE://broker-1.example:9101,OUTSIDE://broker-1.example:9201",
        "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter_broker_listener_name": "INSIDE",
        "broker_rack": "r1",
    }
    with running_broker(tmp_path, **settings) as broker:
        broker.create_topic("near")
        metadata = broker.server.metadata
        (own_directory,) = metadata.image.cluster.brokers[1].log_dirs
        own = {1: bytes(own_directory)}
        pretend(
            metadata,
            broker_record(3, "INSIDE", "OUTSIDE", fenced=True),
            broker_record(2, "INSIDE"),
            *topic_records(
                "far", partition_record(2, epoch=4), partition_record(3, leader=-1, isr=[], epoch=1, eligible=[3])
            ),
            *topic_records(
                "spread",
                partition_record(1, 2, 3, isr=[1, 2], directories=own),
                partition_record(2, 1, directories={**own, 2: LOST_DIRECTORY}),
                partition_record(3, 2, leader=-1, isr=[], eligible=[2], last_known=[3]),
                partition_record(1, 9, isr=[1], directories=own),
            ),
        )
        yield broker
        assert_served(request.node, broker.answered)


def ask(broker: InProcessBroker, request: object, version: int, listener: str = "INSIDE") -> Any:
    return broker.connect(listener).ask(request, version)


def partitions(broker: InProcessBroker, version: int, listener: str, topic: str = "spread") -> list[Of]:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    found: list[Of] = ask(broker, request, version, listener).topics[0].partitions
    return found


@serves(MetadataRequest)
@every_version(MetadataRequest)
def test_metadata_has_the_brokers_that_are_alive_at_their_addresses_on_the_askers_listener(
    broker: InProcessBroker, version: int
) -> None:
    def told(listener: str) -> list[tuple[int, str, int, str | None]]:
        answer = ask(broker, MetadataRequest(topics=[MetadataRequest.Topic(name="near")]), version, listener)
        assert answer.controller_id in ((1, 2) if version >= 1 else (-1,))
        return [(one.node_id, one.host, one.port, one.rack) for one in answer.brokers]

    rack = "r1" if version >= 1 else None
    assert told("INSIDE") == [(1, "broker-1.example", 9_101, rack), (2, "broker-2.example", 9_102, None)]
    assert told("OUTSIDE") == [(1, "broker-1.example", 9_201, rack)]


def test_any_broker_that_is_alive_is_called_the_controller(broker: InProcessBroker) -> None:
    client = broker.connect("OUTSIDE")
    told = {client.ask(MetadataRequest(topics=[]), 12).controller_id for _ in range(60)}
    assert told == {1, 2}, "broker 2 has no listener OUTSIDE, and Kafka names it nevertheless"
    pretend(broker.server.metadata, FenceBrokerRecord(id=2, epoch=2))
    assert {client.ask(MetadataRequest(topics=[]), 12).controller_id for _ in range(20)} == {1}


@serves(MetadataRequest)
@every_version(MetadataRequest, since=1)
def test_metadata_has_all_replicas_and_says_which_are_offline(broker: InProcessBroker, version: int) -> None:
    def expected(index: int, leader: int, *replicas: int, isr: list[int], offline: list[int], code: int = E.NONE) -> Of:
        return Of(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=0 if version >= 7 else -1,
            replica_nodes=list(replicas),
            isr_nodes=isr,
            offline_replicas=offline if version >= 5 else [],
        )

    assert partitions(broker, version, "INSIDE") == [
        expected(0, 1, 1, 2, 3, isr=[1, 2], offline=[3]),
        expected(1, 2, 2, 1, isr=[2, 1], offline=[2]),
        expected(2, -1, 3, 2, isr=[], offline=[3], code=E.LEADER_NOT_AVAILABLE),
        expected(3, 1, 1, 9, isr=[1], offline=[9]),
    ]
    missing = E.LISTENER_NOT_FOUND if version >= 6 else E.LEADER_NOT_AVAILABLE
    assert partitions(broker, version, "OUTSIDE") == [
        expected(0, 1, 1, 2, 3, isr=[1, 2], offline=[2, 3]),
        expected(1, -1, 2, 1, isr=[2, 1], offline=[2], code=missing),
        expected(2, -1, 3, 2, isr=[], offline=[3, 2], code=E.LEADER_NOT_AVAILABLE),
        expected(3, 1, 1, 9, isr=[1], offline=[9]),
    ]


@serves(MetadataRequest, versions=[0])
def test_version_0_of_metadata_leaves_out_the_replicas_that_cannot_be_reached(broker: InProcessBroker) -> None:
    def told(listener: str) -> list[tuple[int, int, list[int], list[int]]]:
        found = partitions(broker, 0, listener)
        return [(one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes) for one in found]

    assert told("INSIDE") == [
        (E.REPLICA_NOT_AVAILABLE, 1, [1, 2], [1, 2]),
        (E.NONE, 2, [2, 1], [2, 1]),
        (E.LEADER_NOT_AVAILABLE, -1, [2], []),
        (E.REPLICA_NOT_AVAILABLE, 1, [1], [1]),
    ]
    assert told("OUTSIDE") == [
        (E.REPLICA_NOT_AVAILABLE, 1, [1], [1]),
        (E.LEADER_NOT_AVAILABLE, -1, [1], [1]),
        (E.LEADER_NOT_AVAILABLE, -1, [], []),
        (E.REPLICA_NOT_AVAILABLE, 1, [1], [1]),
    ]


def test_a_broker_older_than_the_ids_of_log_directories_has_all_its_replicas_online(broker: InProcessBroker) -> None:
    pretend(broker.server.metadata, broker_record(2, "INSIDE", directories=[]))
    assert [one.offline_replicas for one in partitions(broker, 12, "INSIDE")] == [[3], [], [3], [9]]


def test_described_partitions_have_no_error_and_those_who_may_lead_them(broker: InProcessBroker) -> None:
    def told(listener: str) -> list[Described]:
        request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name="spread")])
        found: list[Described] = ask(broker, request, 0, listener).topics[0].partitions
        return found

    def expected(
        index: int,
        leader: int,
        *replicas: int,
        isr: list[int],
        offline: list[int],
        eligible: tuple[int, ...] = (),
        last_known: tuple[int, ...] = (),
    ) -> Described:
        return Described(
            partition_index=index,
            leader_id=leader,
            leader_epoch=0,
            replica_nodes=list(replicas),
            isr_nodes=isr,
            eligible_leader_replicas=list(eligible),
            last_known_elr=list(last_known),
            offline_replicas=offline,
        )

    assert told("INSIDE") == [
        expected(0, 1, 1, 2, 3, isr=[1, 2], offline=[3]),
        expected(1, 2, 2, 1, isr=[2, 1], offline=[2]),
        expected(2, -1, 3, 2, isr=[], offline=[3], eligible=(2,), last_known=(3,)),
        expected(3, 1, 1, 9, isr=[1], offline=[9]),
    ]
    assert told("OUTSIDE")[1] == expected(1, -1, 2, 1, isr=[2, 1], offline=[2])


@serves(DescribeClusterRequest)
@every_version(DescribeClusterRequest)
def test_the_cluster_has_the_brokers_of_the_listener_and_fenced_ones_where_asked(
    broker: InProcessBroker, version: int
) -> None:
    def told(listener: str, *, fenced: bool = False) -> list[DescribedBroker]:
        answer = ask(broker, DescribeClusterRequest(include_fenced_brokers=fenced), version, listener)
        assert answer.controller_id in ((1, 2) if listener == "INSIDE" else (1, -1)), "only with an address"
        found: list[DescribedBroker] = answer.brokers
        return found

    first = DescribedBroker(broker_id=1, host="broker-1.example", port=9_101, rack="r1")
    second = DescribedBroker(broker_id=2, host="broker-2.example", port=9_102)
    assert told("INSIDE") == [first, second]
    outside = DescribedBroker(broker_id=1, host="broker-1.example", port=9_201, rack="r1")
    assert told("OUTSIDE") == [outside]
    if version >= 2:
        third = DescribedBroker(broker_id=3, host="broker-3.example", port=9_103, is_fenced=True)
        assert told("INSIDE", fenced=True) == [first, second, third]
        third = DescribedBroker(broker_id=3, host="broker-3.example", port=9_203, is_fenced=True)
        assert told("OUTSIDE", fenced=True) == [outside, third]


@serves(ListConfigResourcesRequest, versions=[1])
def test_the_brokers_of_the_listener_have_configs_fenced_ones_too(broker: InProcessBroker) -> None:
    request = ListConfigResourcesRequest(resource_types=[ConfigResource.BROKER, ConfigResource.BROKER_LOGGER])
    for listener, names in {"INSIDE": ["1", "2", "3"], "OUTSIDE": ["1", "3"]}.items():
        found = ask(broker, request, 1, listener).config_resources
        for type_ in (ConfigResource.BROKER, ConfigResource.BROKER_LOGGER):
            assert [one.resource_name for one in found if one.resource_type == type_] == names


# Coordinators ---------------------------------------------------------------------------------------------------------


def key_of(partition: int) -> str:
    """A group or transactional id that belongs to this of three partitions."""
    return next(key for key in map(str, range(100)) if partition_of(key, 3) == partition)


@serves(FindCoordinatorRequest, E.NONE, E.COORDINATOR_NOT_AVAILABLE)
@every_version(FindCoordinatorRequest, since=1)
@pytest.mark.parametrize(("key_type", "topic"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_a_coordinator_is_the_leader_of_the_keys_partition_if_the_client_can_reach_it(
    broker: InProcessBroker, version: int, key_type: int, topic: str
) -> None:
    pretend(
        broker.server.metadata,
        *topic_records(topic, partition_record(1), partition_record(2), partition_record(3, leader=-1, isr=[])),
    )

    def found(partition: int, listener: str) -> tuple[int, int, str, int]:
        key = key_of(partition)
        if version >= 4:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (one,) = ask(broker, request, version, listener).coordinators
        else:
            one = ask(broker, FindCoordinatorRequest(key_type=key_type, key=key), version, listener)
        return one.error_code, one.node_id, one.host, one.port

    nobody = (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
    assert found(0, "INSIDE") == (E.NONE, 1, "broker-1.example", 9_101)
    assert found(1, "INSIDE") == (E.NONE, 2, "broker-2.example", 9_102)
    assert found(2, "INSIDE") == nobody
    assert found(0, "OUTSIDE") == (E.NONE, 1, "broker-1.example", 9_201)
    assert found(1, "OUTSIDE") == nobody


@serves(FindCoordinatorRequest, E.NONE, E.INVALID_REQUEST, E.COORDINATOR_NOT_AVAILABLE, versions=[6])
def test_share_groups_have_their_coordinators_on_brokers_that_have_share_groups(broker: InProcessBroker) -> None:
    leaders = (1, 1, 2, 1)
    pretend(
        broker.server.metadata, *topic_records("__share_group_state", *(partition_record(leader) for leader in leaders))
    )
    # Kafka has answered so, with four partitions led by 1, 1, 2 and 1.
    answered = {
        "g:AAAAAAAAAAAAAAAAAAAAAA:0": 1,
        "g:AAAAAAAAAAAAAAAAAAAAAA:+0": 1,
        "a:g:AAAAAAAAAAAAAAAAAAAAAA:1": 1,
        "h:BBBBBBBBBBBBBBBBBBBBBB:3": 2,
        "h:BBBBBBBBBBBBBBBBBBBBBA:3": 2,
        "h:BBBBBBBBBBBBBBBBBBBBBB:+003": 2,
        "h:BQBQBQBQBQBQBQBQBQBQBQ:07": 1,
    }
    keys = [*answered, "bad", "g:AAAAAAAAAAAAAAAAAAAAAA:2147483648"]
    found = ask(broker, FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6).coordinators
    assert {one.key: one.node_id for one in found if one.error_code == E.NONE} == answered
    assert {one.key for one in found if one.error_code == E.INVALID_REQUEST} == {
        "bad",
        "g:AAAAAAAAAAAAAAAAAAAAAA:2147483648",
    }
    (outside,) = ask(
        broker, FindCoordinatorRequest(key_type=2, coordinator_keys=["h:BBBBBBBBBBBBBBBBBBBBBB:3"]), 6, "OUTSIDE"
    ).coordinators
    assert (outside.error_code, outside.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)


# Partitions of other brokers ------------------------------------------------------------------------------------------


@serves(ProduceRequest, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(ProduceRequest)
def test_produce_names_the_leader_and_its_address(broker: InProcessBroker, version: int) -> None:
    def produce(partition: int, listener: str = "INSIDE") -> ProduceResponse:
        name, topic_id = ("far", bytes(16)) if version < 13 else ("", id_of("far"))
        request = produce_request(name, produced([record()]), partition=partition, topic_id=topic_id)
        answer: ProduceResponse = ask(broker, request, version, listener)
        return answer

    def expected(partition: int, leader: int, epoch: int, code: int = E.NOT_LEADER_OR_FOLLOWER) -> ProduceAnswer:
        answer = ProduceAnswer(index=partition, error_code=code, base_offset=-1)
        if version >= 10:
            answer.current_leader = ProduceAnswer.CurrentLeader(leader_id=leader, leader_epoch=epoch)
        return answer

    elsewhere = produce(ELSEWHERE)
    assert elsewhere.responses[0].partition_responses == [expected(ELSEWHERE, 2, 4)]
    second = ProduceResponse.NodeEndpoint(node_id=2, host="broker-2.example", port=9_102)
    assert elsewhere.node_endpoints == ([second] if version >= 10 else [])
    outside = produce(ELSEWHERE, "OUTSIDE")
    assert outside.responses[0].partition_responses == [expected(ELSEWHERE, 2, 4)]
    assert outside.node_endpoints == []
    leaderless = produce(LEADERLESS)
    assert leaderless.responses[0].partition_responses == [expected(LEADERLESS, -1, 1)]
    assert leaderless.node_endpoints == []
    missing = produce(NOT_THERE)
    assert missing.responses[0].partition_responses == [expected(NOT_THERE, -1, -1, E.UNKNOWN_TOPIC_OR_PARTITION)]


def test_an_address_stands_in_an_answer_once(broker: InProcessBroker) -> None:
    request = produce_request("far", produced([record()]), partition=ELSEWHERE)
    request.topic_data += produce_request("spread", produced([record()]), partition=1).topic_data
    request.topic_data += produce_request("near", produced([record()])).topic_data
    answer = ask(broker, request, 12)
    codes = [one.error_code for topic in answer.responses for one in topic.partition_responses]
    assert codes == [E.NOT_LEADER_OR_FOLLOWER, E.NOT_LEADER_OR_FOLLOWER, E.NONE]
    assert [one.node_id for one in answer.node_endpoints] == [2]


@serves(FetchRequest, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION)
@every_version(FetchRequest)
def test_fetch_names_the_leader_and_its_address_from_version_16_on(broker: InProcessBroker, version: int) -> None:
    def fetch(partition: int, listener: str = "INSIDE") -> FetchResponse:
        name, topic_id = ("far", bytes(16)) if version < 13 else ("", id_of("far"))
        request = fetch_request(name, topic_id=topic_id, partition=partition, max_wait_ms=30_000)
        answer: FetchResponse = ask(broker, request, version, listener)
        return answer

    def told(answer: FetchResponse) -> tuple[int, int, int, bool]:
        (one,) = answer.responses[0].partitions
        assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (-1, -1, -1)
        return one.error_code, one.current_leader.leader_id, one.current_leader.leader_epoch, one.records == b""

    leader = (2, 4) if version >= 16 else (-1, -1)
    assert told(fetch(ELSEWHERE)) == (E.NOT_LEADER_OR_FOLLOWER, *leader, True)
    second = FetchResponse.NodeEndpoint(node_id=2, host="broker-2.example", port=9_102)
    assert fetch(ELSEWHERE).node_endpoints == ([second] if version >= 16 else [])
    assert told(fetch(ELSEWHERE, "OUTSIDE")) == (E.NOT_LEADER_OR_FOLLOWER, *leader, True)
    assert fetch(ELSEWHERE, "OUTSIDE").node_endpoints == []
    none = (-1, 1) if version >= 16 else (-1, -1)
    assert told(fetch(LEADERLESS)) == (E.NOT_LEADER_OR_FOLLOWER, *none, True)
    request = fetch_request("far" if version < 13 else "", partition=NOT_THERE)
    request.topics[0].topic_id = id_of("far") if version >= 13 else bytes(16)
    assert told(ask(broker, request, version)) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, True)


def test_a_fetch_of_several_answers_at_once_and_in_the_order_of_the_request(broker: InProcessBroker) -> None:
    request = fetch_request("far", partition=NOT_THERE, max_wait_ms=30_000)
    request.topics += fetch_request("far", partition=ELSEWHERE).topics
    request.topics += fetch_request("near").topics
    answer = ask(broker, request, 12)
    told = [
        (topic.topic, one.partition_index, one.error_code) for topic in answer.responses for one in topic.partitions
    ]
    assert told == [
        ("far", ELSEWHERE, E.NOT_LEADER_OR_FOLLOWER),
        ("near", 0, E.NONE),
        ("far", NOT_THERE, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_session_is_told_where_the_leader_is_as_often_as_it_asks(broker: InProcessBroker) -> None:
    client = broker.connect("INSIDE")
    begun = client.ask(fetch_request("", topic_id=id_of("far"), session_epoch=0), 17)
    again = fetch_request("", session_id=begun.session_id, session_epoch=1, max_wait_ms=30_000)
    again.topics.clear()
    for answer in (begun, client.ask(again, 17)):
        assert [one.error_code for one in answer.responses[0].partitions] == [E.NOT_LEADER_OR_FOLLOWER]
        assert [one.node_id for one in answer.node_endpoints] == [2]


@serves(ListOffsetsRequest, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[9])
@pytest.mark.parametrize("replica_id", [-1, -2, 2])
def test_offsets_are_the_leaders(broker: InProcessBroker, replica_id: int) -> None:
    asked = ListOffsetsRequest.Topic.Partition
    partitions = [asked(partition_index=index, timestamp=-1) for index in (ELSEWHERE, LEADERLESS, NOT_THERE)]
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsRequest.Topic(name="far", partitions=partitions)]
    )
    found = ask(broker, request, 9).topics[0].partitions
    assert [(one.error_code, one.offset, one.timestamp, one.leader_epoch) for one in found] == [
        (E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1),
        (E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1),
        (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1),
    ]


@serves(OffsetForLeaderEpochRequest, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[4])
def test_epochs_are_the_leaders(broker: InProcessBroker) -> None:
    asked = OffsetForLeaderEpochRequest.Topic.Partition
    topic = OffsetForLeaderEpochRequest.Topic(
        topic="far", partitions=[asked(partition=index, leader_epoch=0) for index in (ELSEWHERE, LEADERLESS, NOT_THERE)]
    )
    found = ask(broker, OffsetForLeaderEpochRequest(topics=[topic]), 4).topics[0].partitions
    assert [(one.error_code, one.leader_epoch, one.end_offset) for one in found] == [
        (E.NOT_LEADER_OR_FOLLOWER, -1, -1),
        (E.NOT_LEADER_OR_FOLLOWER, -1, -1),
        (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


@serves(DeleteRecordsRequest, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[2])
def test_records_are_deleted_by_the_leader(broker: InProcessBroker) -> None:
    asked = DeleteRecordsRequest.Topic.Partition
    topic = DeleteRecordsRequest.Topic(
        name="far", partitions=[asked(partition_index=index, offset=0) for index in (ELSEWHERE, LEADERLESS, NOT_THERE)]
    )
    found = ask(broker, DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2).topics[0].partitions
    assert [(one.error_code, one.low_watermark) for one in found] == [
        (E.NOT_LEADER_OR_FOLLOWER, -1),
        (E.NOT_LEADER_OR_FOLLOWER, -1),
        (E.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


@serves(DescribeProducersRequest, E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[0])
def test_producers_are_described_by_brokers_with_a_replica(broker: InProcessBroker) -> None:
    topic = DescribeProducersRequest.Topic(name="far", partition_indexes=[ELSEWHERE, LEADERLESS, NOT_THERE])
    found = ask(broker, DescribeProducersRequest(topics=[topic]), 0).topics[0].partitions
    assert [(one.error_code, one.active_producers) for one in found] == [
        (E.NOT_LEADER_OR_FOLLOWER, []),
        (E.NOT_LEADER_OR_FOLLOWER, []),
        (E.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


# Partitions that this node follows ------------------------------------------------------------------------------------


def list_offset(broker: InProcessBroker, *, replica_id: int, epoch: int = -1) -> tuple[int, int]:
    asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsRequest.Topic(name="near", partitions=[asked])]
    )
    (found,) = ask(broker, request, 9).topics[0].partitions
    return found.error_code, found.offset


@serves(
    ListOffsetsRequest, E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH, versions=[9]
)
def test_a_follower_tells_its_offsets_to_those_who_debug_and_its_epoch_to_all(broker: InProcessBroker) -> None:
    ask(broker, produce_request("near", produced([record()])), 12)
    hand_over(broker, "near", OTHER)
    for replica_id in (-1, 2):
        assert list_offset(broker, replica_id=replica_id) == (E.NOT_LEADER_OR_FOLLOWER, -1)
        assert list_offset(broker, replica_id=replica_id, epoch=1) == (E.NOT_LEADER_OR_FOLLOWER, -1)
    assert list_offset(broker, replica_id=-2) == (E.NONE, 1)
    for replica_id in (-1, -2, 2):
        assert list_offset(broker, replica_id=replica_id, epoch=0) == (E.FENCED_LEADER_EPOCH, -1)
        assert list_offset(broker, replica_id=replica_id, epoch=2) == (E.UNKNOWN_LEADER_EPOCH, -1)


@serves(
    OffsetForLeaderEpochRequest,
    *(E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH),
    versions=[4],
)
def test_a_follower_does_not_tell_where_its_epochs_end(broker: InProcessBroker) -> None:
    hand_over(broker, "near", OTHER)

    def code(current_leader_epoch: int) -> int:
        asked = OffsetForLeaderEpochRequest.Topic.Partition(
            partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=0
        )
        topic = OffsetForLeaderEpochRequest.Topic(topic="near", partitions=[asked])
        request = OffsetForLeaderEpochRequest(replica_id=-2, topics=[topic])
        found: int = ask(broker, request, 4).topics[0].partitions[0].error_code
        return found

    assert [code(epoch) for epoch in (-1, 0, 1, 2)] == [
        E.NOT_LEADER_OR_FOLLOWER,
        E.FENCED_LEADER_EPOCH,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_LEADER_EPOCH,
    ]


def test_a_follower_describes_the_producers_that_its_log_knows(broker: InProcessBroker) -> None:
    ask(broker, produce_request("near", produced([record()], producer_id=7, producer_epoch=0, base_sequence=0)), 12)
    hand_over(broker, "near", OTHER)
    request = DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(name="near", partition_indexes=[0])])
    (found,) = ask(broker, request, 0).topics[0].partitions
    assert (found.error_code, [one.producer_id for one in found.active_producers]) == (E.NONE, [7])


def leader_of(answer: ProduceResponse) -> tuple[int, int, int, list[int]]:
    (one,) = answer.responses[0].partition_responses
    endpoints = [endpoint.node_id for endpoint in answer.node_endpoints]
    return one.error_code, one.current_leader.leader_id, one.current_leader.leader_epoch, endpoints


def test_a_producer_whose_requests_are_recognised_is_told_of_the_new_leader(broker: InProcessBroker) -> None:
    client = broker.connect("INSIDE")
    for _ in range(3):
        assert leader_of(client.ask(produce_request("near", produced([record()])), 12)) == (E.NONE, -1, -1, [])
    hand_over(broker, "near", OTHER)
    for _ in range(2):
        told = leader_of(client.ask(produce_request("near", produced([record()])), 12))
        assert told == (E.NOT_LEADER_OR_FOLLOWER, 2, 1, [2])


@pytest.mark.parametrize("already_sent", [0, 2])
def test_a_produce_that_waits_for_replicas_is_told_of_the_new_leader(
    broker: InProcessBroker, already_sent: int
) -> None:
    client = broker.connect("INSIDE")
    for _ in range(already_sent):
        client.ask(produce_request("near", produced([record()])), 12)
    replicas = broker.server.components.replicas
    partition = replicas.partition("near", 0)

    async def wait_for_broker_2() -> None:
        replicas.apply(partition, LeaderAndIsr(1, partition.leader_epoch, (1, 2), frozenset({1, 2})))

    broker.run(wait_for_broker_2())
    client.send(produce_request("near", produced([record()])), 12)
    assert client.has_no_answer()
    hand_over(broker, "near", OTHER)
    assert leader_of(client.receive()) == (E.NOT_LEADER_OR_FOLLOWER, 2, 1, [2])


@pytest.mark.parametrize("waits", [True, False])
def test_a_consumer_whose_requests_are_recognised_is_told_of_the_new_leader(
    broker: InProcessBroker, waits: bool
) -> None:
    client = broker.connect("INSIDE")
    topic_id = broker.server.metadata.image.topics.by_name["near"].topic_id

    def request(max_wait_ms: int) -> FetchRequest:
        epoch = {"current_leader_epoch": 0}
        return fetch_request("", topic_id=topic_id, max_wait_ms=max_wait_ms, partition_fields=epoch)

    for _ in range(3):
        assert client.ask(request(0), 17).responses[0].partitions[0].error_code == E.NONE
    if waits:
        client.send(request(30_000), 17)
        assert client.has_no_answer()
        hand_over(broker, "near", OTHER)
    else:
        hand_over(broker, "near", OTHER)
        client.send(request(30_000), 17)
    answer = client.receive()
    (one,) = answer.responses[0].partitions
    assert (one.error_code, one.current_leader) == (
        E.FENCED_LEADER_EPOCH,
        FetchResponse.Response.Partition.CurrentLeader(leader_id=2, leader_epoch=1),
    )
    assert answer.node_endpoints == [FetchResponse.NodeEndpoint(node_id=2, host="broker-2.example", port=9_102)]
