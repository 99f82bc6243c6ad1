"""The requests to both brokers before their metrics are compared: each kind once, right and wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.committed_offsets import OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import JoinGroupResponse
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.log_dirs import DescribeLogDirsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.quorum import DescribeQuorumRequest
from protocol.messages.reassignments import ListPartitionReassignmentsRequest
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
)
from tests.support.batches import changed, produced, record, records
from tests.support.groups import (
    commit_request,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

ASKED_UNTIL_READY = ("DescribeTransactions", "FindCoordinator", "InitProducerId", "ListOffsets", "OffsetFetch")
"""Requests that are asked until the broker is so far."""

ORDERS = "orders"
COMPACTED = "latest.orders"
SHOP = "shop"
"""A transactional id."""
TOPIC = 2
"""The code of topics among the resources of configs."""


@contextmanager
def load(bootstrap: str) -> Iterator[None]:
    """Ask everything, and stay connected."""
    # One connection for each network processor, so that all of them have something to tell.
    with RawClient(bootstrap) as client, RawClient(bootstrap) as second, RawClient(bootstrap) as third:
        for each in (client, second, third):
            each.ask(ApiVersionsRequest(client_software_name="parity", client_software_version="1.0"), 5)
        _make_topics(client)
        _produce(client)
        _fetch(client)
        _meet_in_a_group(client, second)
        _write_in_transactions(client)
        _administrate(client)
        yield


def _make_topics(client: RawClient) -> None:
    config = CreateTopicsRequest.Topic.Config(name="cleanup.policy", value="compact")
    topics = [
        CreateTopicsRequest.Topic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
        )
        for name, partitions, configs in ((ORDERS, 2, []), (COMPACTED, 1, [config]), ("doomed", 1, []))
    ]
    client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    client.ask(CreateTopicsRequest(topics=topics[:1], timeout_ms=30_000), 7)

    def can_be_written_to() -> bool:
        # Asked about, not written to: how often is up to the broker, and is not compared.
        topics = [ListOffsetsRequest.Topic(name=name, partitions=partitions) for name in (ORDERS, COMPACTED, "doomed")]
        answers = client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 7)
        return not any(partition.error_code for topic in answers.topics for partition in topic.partitions)

    partitions = [ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)]
    until(can_be_written_to, "that all topics can be written to")


def _produce(client: RawClient) -> None:
    for _ in range(3):
        client.ask(produce_request(ORDERS, produced(2)), 12)
    client.ask(produce_request(ORDERS, produced([record(bytes(50_000))]), partition=1, acks=1), 9)
    client.ask(produce_request("nowhere", produced()), 12)
    client.ask(produce_request(ORDERS, produced(), partition=7), 12)
    client.ask(produce_request(ORDERS, produced([record(bytes(2_000_000))])), 12)
    client.ask(produce_request(ORDERS, changed(produced(), crc=1)), 12)
    client.ask(produce_request(COMPACTED, produced([record(key=None), record(), record(key=None)])), 12)
    client.ask(produce_request(COMPACTED, produced(records(3))), 12)
    late = record(timestamp=int(time.time() * 1000) + 10 * 86_400_000)
    client.ask(produce_request(ORDERS, produced([late])), 12)
    state = _new_producer(client)
    for sequence in (0, 0, 7):  # new, a duplicate, one that leaves some out
        client.ask(produce_request(ORDERS, produced(2, base_sequence=sequence, **state)), 12)


def _new_producer(client: RawClient, transactional_id: str | None = None) -> dict[str, int]:
    """A producer's id and epoch; Kafka has none yet when it has just started."""
    state: dict[str, int] = {}

    def is_given() -> bool:
        answer = client.ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)
        state.update(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
        return not answer.error_code

    until(is_given, "that there are producer ids")
    return state


def _fetch(client: RawClient) -> None:
    client.ask(fetch_request(ORDERS), 12)
    client.ask(fetch_request(ORDERS, partition=1), 12)
    client.ask(fetch_request(ORDERS, offset=1_000), 12)
    client.ask(fetch_request("nowhere"), 12)
    client.ask(fetch_request(ORDERS, partition_max_bytes=-1), 12)
    client.ask(fetch_request(ORDERS, offset=8, max_wait_ms=100, partition_max_bytes=1_000), 12)
    made = client.ask(fetch_request(ORDERS, partition=1, session_id=0, session_epoch=0), 12)
    client.ask(
        FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=made.session_id, session_epoch=1, topics=[], forgotten_topics_data=[]
        ),
        12,
    )
    client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, session_id=made.session_id, session_epoch=9, topics=[]), 12)


def _meet_in_a_group(client: RawClient, second: RawClient) -> None:
    """A group forms twice, commits, and is left; another is only committed to; a third is deleted."""
    coordinator = FindCoordinatorRequest(coordinator_keys=["readers"], key_type=0)
    until(lambda: not client.ask(coordinator, 4).coordinators[0].error_code, "that the coordinator is known")
    ids = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="readers", topics=None)], require_stable=False)
    until(lambda: not client.ask(ids, 8).groups[0].error_code, "that the coordinator has loaded")
    joined = _joined(client)
    client.ask(sync_request(joined, {joined.member_id: b"everything"}), 5)
    client.ask(heartbeat_request(joined), 4)
    joined = _joined(client, member_id=joined.member_id)  # its generation ends
    client.ask(sync_request(joined, {joined.member_id: b"everything"}), 5)
    as_member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    client.ask(commit_request({(ORDERS, 0): 2, (ORDERS, 1): 1}, **as_member), 9)
    client.ask(commit_request({(ORDERS, 0): 3}, **{**as_member, "generation_id_or_member_epoch": 99}), 9)
    second.ask(commit_request({(ORDERS, 0): 5}, group_id="simple"), 9)
    second.ask(commit_request({(ORDERS, 0): 5, (ORDERS, 1): 7}, group_id="doomed"), 9)
    topic = OffsetDeleteRequest.Topic
    gone = topic(name=ORDERS, partitions=[topic.Partition(partition_index=1)])
    second.ask(OffsetDeleteRequest(group_id="doomed", topics=[gone]), 0)
    client.ask(DescribeGroupsRequest(groups=["readers", "nobody"]), 6)
    client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5)
    client.ask(DeleteGroupsRequest(groups_names=["doomed", "readers"]), 2)
    left = _joined(second, group_id="left")
    second.ask(leave_request(left.member_id, group_id="left"), 5)


def _joined(client: RawClient, group_id: str = "readers", member_id: str = "") -> JoinGroupResponse:
    """A member of a generation that nobody else is in."""
    timeout = {"session_timeout_ms": 300_000}  # nobody is to be put out while a page is made
    answer: JoinGroupResponse = client.ask(join_request(group_id, member_id, **timeout), 9)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = client.ask(join_request(group_id, answer.member_id, **timeout), 9)
    return answer


def _write_in_transactions(client: RawClient) -> None:
    """A client of old adds its partition and commits, a new client does not ask before it writes, and aborts."""
    coordinator = FindCoordinatorRequest(coordinator_keys=[SHOP], key_type=1)
    until(lambda: not client.ask(coordinator, 4).coordinators[0].error_code, "that the coordinator is known")
    for version, is_added, end_version in ((9, True, 3), (12, False, 5)):
        state = _new_producer(client, SHOP)
        own = {"transactional_id": SHOP, **state}
        batches = [produced(2, base_sequence=sequence, is_transactional=True, **state) for sequence in (0, 2)]
        requests = [produce_request(ORDERS, batch, transactional_id=SHOP) for batch in batches]
        if is_added:
            client.ask(requests[0], version)
            topic = AddPartitionsToTxnTopic(name=ORDERS, partitions=[0])
            of_old = {f"v3_and_below_{name}": value for name, value in own.items()}
            client.ask(AddPartitionsToTxnRequest(v3_and_below_topics=[topic], **of_old), 3)
        for request in requests:
            client.ask(request, version)
        client.ask(EndTxnRequest(committed=is_added, **own), end_version)
        until(lambda: _has_ended(client), "that the transaction has ended")


def _has_ended(client: RawClient) -> bool:
    described = client.ask(DescribeTransactionsRequest(transactional_ids=[SHOP]), 0)
    return bool(described.transaction_states[0].transaction_state.startswith("Complete"))


def _administrate(client: RawClient) -> None:
    named = MetadataRequest.Topic
    client.ask(MetadataRequest(topics=[named(name=ORDERS), named(name="no name")]), 12)
    client.ask(
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderEpochRequest.Topic(
                    topic=ORDERS,
                    partitions=[OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=0)],
                )
            ],
        ),
        4,
    )
    resource = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name=ORDERS, configuration_keys=None)
    client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    altered = IncrementalAlterConfigsRequest.Resource
    config = altered.Config(name="retention.ms", config_operation=0, value="1000000000")
    client.ask(
        IncrementalAlterConfigsRequest(
            resources=[altered(resource_type=TOPIC, resource_name=ORDERS, configs=[config])], validate_only=False
        ),
        1,
    )
    client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    client.ask(DescribeLogDirsRequest(topics=None), 4)
    client.ask(
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.Topic(name=ORDERS)], response_partition_limit=100, cursor=None
        ),
        0,
    )
    client.ask(DescribeQuorumRequest(topics=[]), 2)
    client.ask(ListConfigResourcesRequest(resource_types=[]), 1)
    client.ask(ElectLeadersRequest(topic_partitions=None), 2)
    client.ask(ListPartitionReassignmentsRequest(topics=None, timeout_ms=30_000), 0)
    deletion = DeleteRecordsRequest.Topic
    client.ask(
        DeleteRecordsRequest(
            topics=[deletion(name=ORDERS, partitions=[deletion.Partition(partition_index=0, offset=3)])],
            timeout_ms=30_000,
        ),
        2,
    )
    more = CreatePartitionsRequest.Topic(name="doomed", count=2, assignments=None)
    client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=30_000, validate_only=True), 3)
    client.ask(produce_request("doomed", produced(1)), 12)
    client.ask(
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="doomed", topic_id=bytes(16))], timeout_ms=30_000), 6
    )
