"""Whatever tests leave in a broker, after a reset it equals a fresh broker in all that a client can see."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.control.places import names_of
from broker.runtime.loggers import ROOT
from broker.security.acls.codes import ANY
from config.resources import ConfigResource
from ottla.testing import Broker, BrokerError
from protocol.messages.acls import DescribeAclsRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.client_quotas import DescribeClientQuotasRequest
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.committed_offsets import OffsetFetchRequest
from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.log_dirs import DescribeLogDirsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.quorum import DescribeQuorumRequest
from protocol.messages.reassignments import ListPartitionReassignmentsRequest
from protocol.messages.scram_credentials import DescribeUserScramCredentialsRequest
from protocol.messages.share_groups import ShareGroupDescribeRequest
from protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from storage.batch.records import Record, encode_batch
from tests.support.leftovers import (
    GROUP,
    LEFTOVERS,
    LOGGER,
    NEWER_GROUP,
    SETTINGS,
    SHARE_GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    CarelessTest,
)
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

EXAMPLES: Final = 12
"""How many sequences of tests are tried; each has up to `MOST_TESTS`."""

MOST_TESTS: Final = 4

_MINUTE_MS: Final = 60_000


def _resource(kind: int, name: str, *keys: str) -> DescribeConfigsRequest.Resource:
    """All configs of the resource, or those with ``keys``."""
    return DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )


def _list_offsets(timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=TOPIC, partitions=[partition])])


LOOKS: Final[list[tuple[Any, int]]] = [
    (ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3),
    (MetadataRequest(topics=None, include_topic_authorized_operations=True), 12),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
    (DescribeQuorumRequest(topics=[]), 1),
    (ListGroupsRequest(), 5),
    (DescribeGroupsRequest(groups=[GROUP]), 5),
    (ConsumerGroupDescribeRequest(group_ids=[NEWER_GROUP], include_authorized_operations=True), 1),
    (ShareGroupDescribeRequest(group_ids=[SHARE_GROUP], include_authorized_operations=True), 1),
    (OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=GROUP, topics=None)]), 8),
    (ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1),
    (DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID]), 0),
    (DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(name=TOPIC, partition_indexes=[0])]), 0),
    (DescribeLogDirsRequest(topics=None), 4),
    (_list_offsets(-1), 7),
    (ListPartitionReassignmentsRequest(timeout_ms=1_000, topics=None), 0),
    (
        DescribeConfigsRequest(
            resources=[
                _resource(ConfigResource.BROKER, ""),
                _resource(ConfigResource.BROKER, "1"),
                _resource(ConfigResource.BROKER_LOGGER, "1", ROOT, LOGGER),  # others come as modules are imported
                _resource(ConfigResource.GROUP, GROUP),
                _resource(ConfigResource.TOPIC, TOPIC),
            ],
            include_synonyms=True,
        ),
        4,
    ),
    (ListConfigResourcesRequest(), 1),
    (
        DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        ),
        3,
    ),
    (DescribeClientQuotasRequest(components=[], strict=False), 1),
    (DescribeUserScramCredentialsRequest(users=None), 0),
]
"""Requests that change nothing."""

USES: Final[list[tuple[Any, int]]] = [
    (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 3),
    (produce_request(TOPIC, encode_batch([Record(value=b"the first")])), 9),
    (_list_offsets(-2), 7),
    (_list_offsets(-1), 7),
    (fetch_request(TOPIC, session_epoch=0), 11),
    (DescribeConfigsRequest(resources=[_resource(ConfigResource.TOPIC, TOPIC)]), 4),
    (DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(name=TOPIC, partition_indexes=[0])]), 0),
    (FindCoordinatorRequest(coordinator_keys=[GROUP]), 4),
]
"""Requests of a test that begins to use the broker; the topic is there."""


RANDOM: Final = frozenset({"cluster_id", "topic_id", "session_id", "replica_directory_id", "port"})
OF_THE_MACHINE: Final = frozenset({"usable_bytes", "total_bytes"})
OF_NOW: Final = frozenset({"last_timestamp", "last_fetch_timestamp", "last_caught_up_timestamp"})
NOT_COMPARED: Final = RANDOM | OF_THE_MACHINE | OF_NOW
"""Fields that differ between any two brokers."""

PLACE: Final = re.compile(r"/\S*/ottla-test-\w+/\d+")
"""A data directory of a broker for tests."""


def plain(value: object) -> Any:
    """A message as values that can be compared."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str):
        return PLACE.sub("its directory", value)
    if isinstance(value, int | float | None):
        return value
    return {name: plain(getattr(value, name)) for name in names_of(value) if name not in NOT_COMPARED}


class Seen(dict[str, Any]):
    """What clients see of a broker, by the name of what they look at."""

    def __repr__(self) -> str:
        return f"{len(self)} answers"  # a test that fails shows what differs

    def differences(self, other: Seen) -> dict[str, tuple[Any, Any]]:
        """What is not the same in both."""
        return {name: (self[name], other[name]) for name in self if self[name] != other[name]}


def what_clients_see(kafka: Broker) -> Seen:
    """The broker's answers to all that a client can ask about it, and to the first use of it."""
    seen = Seen()
    seen["connections"] = kafka._control_listener.read("/clients")
    seen["rules"] = kafka._control_listener.read("/faults")
    seen["is it now"] = abs(kafka.now_ms() - time.time() * 1000) < _MINUTE_MS
    seen["requests"] = [(one["api"], one["client_id"]) for one in kafka.requests()]
    with RawClient(kafka.listener_addresses["PLAINTEXT"]) as client:
        for number, (request, version) in enumerate(LOOKS):
            seen[f"{number} {type(request).__name__}"] = plain(client.ask(request, version))
        with suppress(BrokerError):
            kafka.create_topic(TOPIC)
        for number, (request, version) in enumerate(USES):
            seen[f"then {number} {type(request).__name__}"] = plain(client.ask(request, version))
    return seen


ONLY_CONNECTIONS: Final = frozenset({"half a request"})
"""What is left in a connection, and nowhere else."""


@pytest.fixture(scope="module")
def fresh() -> Seen:
    """What clients see of a broker that nobody has used."""
    with Broker(SETTINGS) as kafka:
        return what_clients_see(kafka)


@pytest.fixture(scope="module")
def used() -> Iterator[Broker]:
    """A broker that all tests of this file use."""
    with Broker(SETTINGS) as kafka:
        yield kafka


@settings(max_examples=EXAMPLES)
@given(tests=st.lists(st.lists(st.sampled_from(sorted(LEFTOVERS)), min_size=1, max_size=4), max_size=MOST_TESTS))
def test_a_reset_broker_is_a_fresh_one(used: Broker, fresh: Seen, tests: list[list[str]]) -> None:
    for leftovers in tests:
        used.reset()
        with closing(CarelessTest(used)) as test:
            for name in leftovers:
                with suppress(BrokerError):
                    LEFTOVERS[name](test)
            used.reset()
            assert what_clients_see(used).differences(fresh) == {}


@pytest.mark.parametrize("name", LEFTOVERS)
def test_what_is_left_can_be_seen_until_the_reset(used: Broker, fresh: Seen, name: str) -> None:
    used.reset()
    with closing(CarelessTest(used)) as test:
        LEFTOVERS[name](test)
        differing = what_clients_see(used).differences(fresh).keys() - {"requests"}
        assert differing - {"connections"} or name in ONLY_CONNECTIONS
        used.reset()
        assert what_clients_see(used).differences(fresh) == {}
