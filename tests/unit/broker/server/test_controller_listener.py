"""What a node serves to brokers and tools on its controller listener."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from broker.server.controller_apis import CONTROLLER_APIS
from config.release_versions import NEWEST
from config.resources import ConfigResource
from protocol.api_keys import ASKED_CONTROLLERS, FORWARDED, ApiKey
from protocol.errors import ErrorCode as E
from protocol.headers import encode_request
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.schema import request_class
from tests.support.broker import ConnectionClosed, InProcessBroker
from tests.unit.broker.server.controller_clients import (
    LISTENERS,
    Member,
    envelope,
    metadata_fetch,
    metadata_quorum,
    unpacked,
)

pytestmark = pytest.mark.settings(**LISTENERS)

KAFKAS = (
    "1:4-18 17:0-1 18:0-5 19:2-7 20:1-6 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 "
    "43:0-2 44:0-1 45:0-1 46:0-0 49:0-1 50:0-0 51:0-0 52:0-2 53:0-1 54:0-1 55:0-2 56:2-3 57:0-2 58:0-0 59:0-1 60:0-2 "
    "62:0-4 63:0-2 64:0-0 67:0-0 70:0-0 73:0-0 80:0-1 81:0-0 82:0-0 94:0-0"
)
"""What a controller of Apache Kafka 4.4.0 lists."""

OF_VOTERS = {"52:0-2", "53:0-1", "54:0-1", "70:0-0", "82:0-0"}
"""What only several controllers ask each other."""


def endpoint(broker: InProcessBroker) -> tuple[str, int]:
    (listener,) = broker.server.socket_server.controller_listeners
    return listener.host, listener.port


# The list


def test_all_that_kafkas_controllers_list_is_listed_but_what_voters_ask_each_other(broker: InProcessBroker) -> None:
    request = ApiVersionsRequest(client_software_name="kafka", client_software_version="4.4.0")
    answer = broker.connect("CONTROLLER").ask(request, 4)

    listed = [f"{api.api_key}:{api.min_version}-{api.max_version}" for api in answer.api_keys]
    assert listed == [one for one in KAFKAS.split() if one not in OF_VOTERS]
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert finalized == {**NEWEST.levels, "kraft.version": 1}


def test_what_only_controllers_are_asked_and_what_is_forwarded_is_on_the_list() -> None:
    listed = {api.key for api in CONTROLLER_APIS}

    assert listed > ASKED_CONTROLLERS - {ApiKey.CONTROLLER_REGISTRATION}
    assert listed > FORWARDED
    assert [api.key for api in CONTROLLER_APIS] == sorted(listed)


def test_the_handler_of_each_api_takes_its_requests(broker: InProcessBroker) -> None:
    for api in CONTROLLER_APIS:
        route = broker.server.controller_registry.route(api.key, api.key.versions[1])
        assert route is not None
        handler: Any = route.handler
        assert handler.__annotations__["request"] in (request_class(api.key), Any)


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.JOIN_GROUP], ids=lambda key: key.title)
def test_what_only_brokers_are_asked_closes_the_connection(broker: InProcessBroker, api: ApiKey) -> None:
    client = broker.connect("CONTROLLER")
    client.send_bytes((10).to_bytes(4, "big") + api.to_bytes(2, "big") + b"\0\5" + bytes(4) + b"\xff\xff")

    assert client.is_closed()


def test_clients_of_the_broker_are_not_served_what_controllers_are(broker: InProcessBroker) -> None:
    with pytest.raises(ConnectionClosed):
        Member.heartbeat(_of_a_client(broker))
    assert broker.ask(MetadataRequest(topics=None), 12).brokers[0].node_id == 1


def _of_a_client(broker: InProcessBroker) -> Member:
    member = Member(broker)
    member.client = broker.connect("PLAINTEXT")
    return member


def test_without_the_listener_nothing_listens(tmp_path: Any) -> None:
    broker = InProcessBroker(tmp_path / "data")
    assert broker.server.socket_server.controller_listeners == ()
    assert broker.server.components.controller_listener is None
    broker.close()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(8), b"\0\0\0\x0a" + b"\xff" * 10])
def test_garbage_closes_the_connection_with_one_line(
    broker: InProcessBroker, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = broker.connect("CONTROLLER")
    with caplog.at_level(logging.INFO):
        client.send_bytes(garbage)

        assert client.is_closed()
    assert len([record for record in caplog.records if "losing" in record.message]) == 1


# The quorum


def test_the_cluster_of_a_controller_listener_is_its_controllers(broker: InProcessBroker) -> None:
    client = broker.connect("CONTROLLER")

    for version in (1, 2):
        answer = client.ask(
            DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True), version
        )
        (controller,) = answer.brokers
        assert (controller.broker_id, (controller.host, controller.port)) == (1, endpoint(broker))
        assert (answer.endpoint_type, answer.controller_id, answer.cluster_authorized_operations) == (2, 1, 8096)
        assert answer.cluster_id == broker.server.components.node.cluster_id
        assert client.ask(DescribeClusterRequest(), version).error_code == E.MISMATCHED_ENDPOINT_TYPE
        assert client.ask(DescribeClusterRequest(endpoint_type=3), version).error_code == E.UNSUPPORTED_ENDPOINT_TYPE
    assert client.ask(DescribeClusterRequest(), 0).error_code == E.INVALID_REQUEST


def test_a_fetch_of_the_metadata_log_waits_for_the_next_change(broker: InProcessBroker) -> None:
    observer = broker.connect("CONTROLLER")
    observer.send(metadata_fetch(broker, waits=True), 18)
    assert observer.has_no_answer()

    broker.create_topic("orders")

    ((partition,),) = (topic.partitions for topic in observer.receive().responses)
    assert b"orders" in bytes(partition.records)


def test_a_fetch_that_waits_is_answered_when_the_node_stops(broker: InProcessBroker) -> None:
    observer = broker.connect("CONTROLLER")
    observer.send(metadata_fetch(broker, waits=True), 18)
    assert observer.has_no_answer()

    broker.run(broker.server.stop())

    ((partition,),) = (topic.partitions for topic in observer.receive().responses)
    assert partition.records == b""
    broker.start()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_follows_the_log_is_described_on_both_listeners(broker: InProcessBroker, version: int) -> None:
    broker.connect("CONTROLLER").ask(metadata_fetch(broker, node_id=9), 18)

    for listener in ("CONTROLLER", "PLAINTEXT"):
        answer = broker.connect(listener).ask(metadata_quorum(), version)
        ((partition,),) = (topic.partitions for topic in answer.topics)
        (observer,) = partition.observers
        assert (observer.replica_id, observer.log_end_offset) == (9, partition.high_watermark)
        if version >= 2:
            ((address,),) = (node.listeners for node in answer.nodes)
            assert (address.host, address.port) == endpoint(broker)


def test_a_node_of_another_cluster_is_refused(broker: InProcessBroker) -> None:
    client = broker.connect("CONTROLLER")
    fetch = metadata_fetch(broker)
    fetch.cluster_id = "AAAAAAAAAAAAAAAAAAAAAA"

    assert client.ask(fetch, 18).error_code == E.INCONSISTENT_CLUSTER_ID
    snapshot = FetchSnapshotRequest(cluster_id=fetch.cluster_id, topics=[])
    assert client.ask(snapshot, 1).error_code == E.INCONSISTENT_CLUSTER_ID
    assert Member(broker).register(cluster_id=fetch.cluster_id).error_code == E.INCONSISTENT_CLUSTER_ID


def test_the_metadata_log_names_the_address_of_this_start(broker: InProcessBroker) -> None:
    def addresses() -> list[tuple[str, str, int]]:
        voters = broker.server.components.raft.quorum.voters
        assert voters is not None
        return [(one.name, one.host, one.port) for voter in voters.voters for one in voter.endpoints]

    before = addresses()
    assert before == [("CONTROLLER", *endpoint(broker))]

    broker.restart()

    assert addresses() == [("CONTROLLER", *endpoint(broker))] != before
    assert broker.server.components.metadata.image.cluster.controllers[1].end_points[0].port == endpoint(broker)[1]


# Brokers


def restart_followed_by(member: Member) -> None:
    """Stop the node in order, and start it again. It stops once the active member has heard that it is away."""
    broker = member.broker

    async def begin_to_stop() -> asyncio.Future[None]:
        return asyncio.ensure_future(broker.server.stop())

    stopping = broker.run(begin_to_stop())
    broker.settle()
    member.heartbeat()
    while not stopping.done():
        broker.advance(100)
    broker.restart()
    member.client = broker.connect("CONTROLLER")


@pytest.mark.parametrize("version", range(2, 5))
def test_a_broker_registers_and_is_unfenced_by_a_heartbeat(broker: InProcessBroker, version: int) -> None:
    member = Member(broker)

    assert member.register(version).error_code == E.NONE
    assert member.is_fenced
    for heartbeat_version in range(3):
        answer = member.heartbeat(heartbeat_version)
        assert (answer.error_code, answer.is_caught_up, answer.is_fenced) == (E.NONE, True, False)
    assert not member.is_fenced

    # A stop of the node waits for brokers that are active.
    broker.advance(9_000 + 1_000)
    broker.wait_until(lambda: member.is_fenced)


def test_a_broker_that_is_silent_is_fenced_when_its_session_is_over(broker: InProcessBroker) -> None:
    member = Member(broker)
    member.register()
    member.heartbeat()
    for _ in range(5):
        broker.advance(3_000)
        member.heartbeat()
    assert not member.is_fenced

    broker.advance(9_000 + 1_000)
    broker.wait_until(lambda: member.is_fenced)


def test_a_broker_has_a_whole_session_behind_the_start_of_its_controller(broker: InProcessBroker) -> None:
    member = Member(broker)
    member.register()
    member.heartbeat()
    restart_followed_by(member)
    broker.advance(8_900)
    assert not member.is_fenced

    assert member.heartbeat().error_code == E.NONE
    broker.advance(8_900)
    assert not member.is_fenced

    broker.advance(2_000)
    broker.wait_until(lambda: member.is_fenced)


def test_a_broker_of_an_old_epoch_is_told_so_in_each_answer(broker: InProcessBroker) -> None:
    member = Member(broker)
    member.register()
    stale = {"broker_id": 2, "broker_epoch": member.epoch - 1}

    assert member.heartbeat(broker_epoch=member.epoch - 1).error_code == E.STALE_BROKER_EPOCH
    for request, versions in (
        (AlterPartitionRequest(**stale, topics=[]), (2, 3)),
        (AllocateProducerIdsRequest(**stale), (0,)),
        (AssignReplicasToDirsRequest(**stale, directories=[]), (0,)),
    ):
        for version in versions:
            assert member.client.ask(request, version).error_code == E.STALE_BROKER_EPOCH, request


def test_over_the_wire_nobody_is_the_controllers_own_broker(broker: InProcessBroker) -> None:
    other = Member(broker, node_id=1)
    own = broker.server.components.metadata.image.cluster.brokers[1]

    for incarnation in (1, int.from_bytes(own.incarnation_id, "big")):
        assert other.register(incarnation=incarnation).error_code == E.DUPLICATE_BROKER_REGISTRATION
    other.epoch = own.broker_epoch
    assert other.heartbeat(want_shut_down=True).error_code == E.STALE_BROKER_EPOCH
    epoch = {"broker_id": 1, "broker_epoch": own.broker_epoch}
    for request, version in (
        (AlterPartitionRequest(topics=[], **epoch), 3),
        (AllocateProducerIdsRequest(**epoch), 0),
        (AssignReplicasToDirsRequest(directories=[], **epoch), 0),
    ):
        assert other.client.ask(request, version).error_code == E.STALE_BROKER_EPOCH
    assert broker.server.components.metadata.image.cluster.brokers[1] == own


def test_blocks_of_producer_ids_are_given_once(broker: InProcessBroker) -> None:
    member = Member(broker)
    member.register()
    request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=member.epoch)

    first, second = (member.client.ask(request, 0) for _ in range(2))

    assert (first.error_code, first.producer_id_len) == (E.NONE, 1_000)
    assert second.producer_id_start == first.producer_id_start + 1_000


@pytest.mark.parametrize("version", range(3))
def test_an_election_without_need_says_so(broker: InProcessBroker, version: int) -> None:
    broker.create_topic("orders")
    asked = ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0])

    answer = broker.connect("CONTROLLER").ask(ElectLeadersRequest(topic_partitions=[asked]), version)

    ((result,),) = (one.partition_result for one in answer.replica_election_results)
    assert result.error_code == E.ELECTION_NOT_NEEDED


# Configs of other brokers


def cleaner_threads(broker_id: str, value: str = "2") -> IncrementalAlterConfigsRequest:
    of = IncrementalAlterConfigsRequest.Resource
    config = of.Config(name="log.cleaner.threads", config_operation=0, value=value)
    return IncrementalAlterConfigsRequest(
        resources=[of(resource_type=ConfigResource.BROKER, resource_name=broker_id, configs=[config])],
        validate_only=False,
    )


def test_brokers_hand_on_their_own_configs_and_clients_ask_each_broker_for_its_own(broker: InProcessBroker) -> None:
    Member(broker).register()
    client = broker.connect("CONTROLLER")
    inside = unpacked(client.ask(envelope(cleaner_threads("2"), 1), 0), IncrementalAlterConfigsResponse, 1)
    straight = client.ask(cleaner_threads("2", "3"), 1)

    assert [answer.responses[0].error_code for answer in (inside, straight)] == [E.NONE, E.NONE]
    stored = broker.server.components.metadata.image.configs.of(ConfigResource.BROKER, "2")
    assert stored == {"log.cleaner.threads": "3"}
    (refused,) = broker.ask(cleaner_threads("2"), 1).responses
    assert refused.error_message == "Unexpected broker id, expected 1, but received 2"


@pytest.mark.parametrize(
    ("name", "code"),
    [("3", E.BROKER_ID_NOT_REGISTERED), ("-1", E.BROKER_ID_NOT_REGISTERED), ("three", E.INVALID_REQUEST)],
)
def test_a_broker_that_is_not_registered_has_no_configs(broker: InProcessBroker, name: str, code: E) -> None:
    (answer,) = broker.connect("CONTROLLER").ask(cleaner_threads(name), 1).responses

    assert answer.error_code == code


def test_the_configs_of_the_controllers_own_broker_are_checked(broker: InProcessBroker) -> None:
    (answer,) = broker.connect("CONTROLLER").ask(cleaner_threads("1", "many"), 1).responses

    assert answer.error_code == E.INVALID_REQUEST


# Envelopes


def topic(name: str, partitions: int = 1) -> CreateTopicsRequest:
    wanted = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[wanted])


@pytest.mark.parametrize("version", range(2, 8))
def test_a_request_in_an_envelope_is_answered_in_an_envelope(broker: InProcessBroker, version: int) -> None:
    client = broker.connect("CONTROLLER")

    answer = client.ask(envelope(topic("orders"), version), 0)
    again = client.ask(envelope(topic("orders"), version, address=bytes(15) + b"\1"), 0)

    assert answer.error_code == E.NONE
    assert unpacked(answer, CreateTopicsResponse, version).topics[0].error_code == E.NONE
    assert "orders" in broker.topics()
    assert unpacked(again, CreateTopicsResponse, version).topics[0].error_code == E.TOPIC_ALREADY_EXISTS


def test_a_log_line_about_a_request_in_an_envelope_has_the_clients_address(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = broker.connect("CONTROLLER")
    with caplog.at_level(logging.INFO):
        client.ask(envelope(topic("orders", partitions=-5), 7, address=bytes([10, 1, 2, 3])), 0)

    assert "10.1.2.3" in caplog.text


def forwarded(name: str) -> Any:
    """A request in an envelope, by what is wrong with it."""
    request = topic("orders")
    return {
        "an API that is not forwarded": envelope(MetadataRequest(topics=[]), 12),
        "an envelope in an envelope": envelope(envelope(request, 7), 0),
        "an unknown version": envelope(
            request, 7, request_data=b"\0\x13\0\x63" + encode_request(1, "", request, 7)[8:]
        ),
        "a body cut short": envelope(request, 7, request_data=encode_request(1, "", request, 7)[4:-3]),
        "no header": envelope(request, 7, request_data=b"\0\x13\0\7"),
        "nothing": envelope(request, 7, request_data=b""),
        "no principal": envelope(request, 7, request_principal=None),
        "half a principal": envelope(request, 7, request_principal=b"\0"),
        "a later principal": envelope(request, 7, request_principal=b"\0\1"),
        "a damaged principal": envelope(request, 7, request_principal=b"\0\0\x70abc"),
        "an address of five bytes": envelope(request, 7, address=bytes(5)),
    }[name]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("an API that is not forwarded", E.INVALID_REQUEST),
        ("an envelope in an envelope", E.INVALID_REQUEST),
        ("an unknown version", E.UNSUPPORTED_VERSION),
        ("a body cut short", E.INVALID_REQUEST),
        ("no header", E.INVALID_REQUEST),
        ("nothing", E.INVALID_REQUEST),
        ("no principal", E.PRINCIPAL_DESERIALIZATION_FAILURE),
        ("half a principal", E.PRINCIPAL_DESERIALIZATION_FAILURE),
        ("a later principal", E.PRINCIPAL_DESERIALIZATION_FAILURE),
        ("a damaged principal", E.PRINCIPAL_DESERIALIZATION_FAILURE),
        ("an address of five bytes", E.INVALID_REQUEST),
    ],
)
def test_an_envelope_that_is_wrong_is_refused_and_its_connection_goes_on(
    broker: InProcessBroker, what: str, code: E
) -> None:
    client = broker.connect("CONTROLLER")

    answer = client.ask(forwarded(what), 0)

    assert (answer.error_code, answer.response_data) == (code, None)
    assert client.ask(envelope(topic("orders"), 7), 0).error_code == E.NONE
