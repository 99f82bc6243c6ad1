"""The response in which everything carries one error code, of each API in every version."""

from typing import Any

import pytest

from protocol.codec import decode, encode
from protocol.error_counts import ERROR_CODES
from protocol.errors import ErrorCode
from protocol.messages.acls import CreateAclsRequest, CreateAclsResponse
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.messages.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from protocol.refusals import refusal
from protocol.schema import ArrayOf, StructOf, describe, layout
from tests.unit.protocol.declared import MESSAGES

CODE = ErrorCode.POLICY_VIOLATION
WHY = "not today"
ID = bytes(range(16))


def produce(acks: int) -> ProduceRequest:
    topic = ProduceRequest.TopicData
    batches = [topic.PartitionData(index=index, records=memoryview(b"")) for index in (0, 3)]
    return ProduceRequest(
        acks=acks, timeout_ms=1, topic_data=[topic(name="orders", topic_id=ID, partition_data=batches)]
    )


def produced() -> ProduceResponse:
    part = ProduceResponse.Response.PartitionResponse
    parts = [part(index=index, error_code=CODE, base_offset=-1, error_message=WHY) for index in (0, 3)]
    return ProduceResponse(responses=[ProduceResponse.Response(name="orders", topic_id=ID, partition_responses=parts)])


def fetch() -> FetchRequest:
    part = FetchRequest.Topic.Partition(partition=4, fetch_offset=17, partition_max_bytes=1000, log_start_offset=3)
    topic = FetchRequest.Topic(topic="orders", topic_id=ID, partitions=[part])
    return FetchRequest(max_wait_ms=1, min_bytes=1, session_id=7, session_epoch=0, topics=[topic])


def fetched() -> FetchResponse:
    part = FetchResponse.Response.Partition(
        partition_index=4, error_code=CODE, high_watermark=-1, aborted_transactions=[], records=b""
    )
    return FetchResponse(error_code=CODE, responses=[FetchResponse.Response(topic="orders", partitions=[part])])


def offset_fetch() -> OffsetFetchRequest:
    group = OffsetFetchRequest.Group
    return OffsetFetchRequest(
        group_id="readers",
        topics=[OffsetFetchRequest.Topic(name="orders", partition_indexes=[0, 1])],
        groups=[
            group(group_id="readers", topics=[group.Topic(name="orders", topic_id=ID, partition_indexes=[0, 1])]),
            group(group_id="others", topics=None),
        ],
    )


def offset_fetched() -> OffsetFetchResponse:
    part, group = OffsetFetchResponse.Topic.Partition, OffsetFetchResponse.Group
    parts = [part(partition_index=index, committed_offset=-1, error_code=CODE) for index in (0, 1)]
    return OffsetFetchResponse(
        error_code=CODE,
        topics=[OffsetFetchResponse.Topic(name="orders", partitions=parts)],
        groups=[group(group_id=group_id, topics=[], error_code=CODE) for group_id in ("readers", "others")],
    )


def acl_creation(name: str) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=2, resource_name=name, principal="User:alice", host="*", operation=3, permission_type=3
    )


def replicas_in(path: str, topic: str, partitions: list[int]) -> AlterReplicaLogDirsRequest.Dir:
    of_topic = AlterReplicaLogDirsRequest.Dir.Topic(name=topic, partitions=partitions)
    return AlterReplicaLogDirsRequest.Dir(path=path, topics=[of_topic])


REFUSED: list[tuple[Any, Any]] = [
    (produce(acks=1), produced()),
    (produce(acks=-1), produced()),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.Topic(
                    name="orders", partitions=[ListOffsetsRequest.Topic.Partition(partition_index=2, timestamp=-2)]
                )
            ],
        ),
        ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.Topic(
                    name="orders",
                    partitions=[ListOffsetsResponse.Topic.Partition(partition_index=2, error_code=CODE)],
                )
            ]
        ),
    ),
    (
        MetadataRequest(topics=[MetadataRequest.Topic(name="orders", topic_id=ID)]),
        MetadataResponse(
            brokers=[],
            topics=[MetadataResponse.Topic(error_code=CODE, name="orders", topic_id=ID, partitions=[])],
            error_code=CODE,
        ),
    ),
    (
        OffsetCommitRequest(
            group_id="readers",
            topics=[
                OffsetCommitRequest.Topic(
                    name="orders",
                    topic_id=ID,
                    partitions=[OffsetCommitRequest.Topic.Partition(partition_index=1, committed_offset=5)],
                )
            ],
        ),
        OffsetCommitResponse(
            topics=[
                OffsetCommitResponse.Topic(
                    name="orders",
                    topic_id=ID,
                    partitions=[OffsetCommitResponse.Topic.Partition(partition_index=1, error_code=CODE)],
                )
            ]
        ),
    ),
    (offset_fetch(), offset_fetched()),
    (
        FindCoordinatorRequest(key="readers", coordinator_keys=["readers", "others"]),
        FindCoordinatorResponse(
            error_code=CODE,
            error_message=WHY,
            node_id=-1,
            port=-1,
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=-1, host="", port=-1, error_code=CODE, error_message=WHY
                )
                for key in ("readers", "others")
            ],
        ),
    ),
    (
        JoinGroupRequest(
            group_id="readers", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[]
        ),
        JoinGroupResponse(error_code=CODE),
    ),
    (HeartbeatRequest(group_id="readers", generation_id=1, member_id="me"), HeartbeatResponse(error_code=CODE)),
    (
        LeaveGroupRequest(group_id="readers", member_id="me", members=[LeaveGroupRequest.Member(member_id="me")]),
        LeaveGroupResponse(error_code=CODE),
    ),
    (
        SyncGroupRequest(group_id="readers", generation_id=1, member_id="me", assignments=[]),
        SyncGroupResponse(error_code=CODE),
    ),
    (
        DescribeGroupsRequest(groups=["readers", "others"]),
        DescribeGroupsResponse(
            groups=[
                DescribeGroupsResponse.Group(group_id=group_id, error_code=CODE, error_message=WHY)
                for group_id in ("readers", "others")
            ]
        ),
    ),
    (ListGroupsRequest(), ListGroupsResponse(error_code=CODE)),
    (ApiVersionsRequest(), ApiVersionsResponse(error_code=CODE, api_keys=[])),
    (
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.Topic(
                    name="orders", num_partitions=3, replication_factor=1, assignments=[], configs=[]
                )
            ]
        ),
        CreateTopicsResponse(topics=[CreateTopicsResponse.Topic(name="orders", error_code=CODE, error_message=WHY)]),
    ),
    (
        # Topics go by name alone until version 5.
        DeleteTopicsRequest(
            topics=[
                DeleteTopicsRequest.Topic(name="orders", topic_id=bytes(16)),
                DeleteTopicsRequest.Topic(name="others", topic_id=ID),
            ],
            topic_names=["orders", "others"],
            timeout_ms=1,
        ),
        DeleteTopicsResponse(
            responses=[
                DeleteTopicsResponse.Response(name=name, topic_id=topic_id, error_code=CODE, error_message=WHY)
                for name, topic_id in (("orders", bytes(16)), ("others", ID))
            ]
        ),
    ),
    (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.Topic(
                    name="orders", partitions=[DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=9)]
                )
            ],
            timeout_ms=1,
        ),
        DeleteRecordsResponse(
            topics=[
                DeleteRecordsResponse.Topic(
                    name="orders",
                    partitions=[
                        DeleteRecordsResponse.Topic.Partition(partition_index=0, low_watermark=-1, error_code=CODE)
                    ],
                )
            ]
        ),
    ),
    (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1, producer_id=5, producer_epoch=6),
        InitProducerIdResponse(error_code=CODE, producer_id=-1, producer_epoch=-1),
    ),
    (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.Topic(
                    topic="orders",
                    partitions=[OffsetForLeaderEpochRequest.Topic.Partition(partition=1, leader_epoch=4)],
                )
            ]
        ),
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponse.Topic(
                    topic="orders",
                    partitions=[OffsetForLeaderEpochResponse.Topic.Partition(partition=1, error_code=CODE)],
                )
            ]
        ),
    ),
    (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.Resource(resource_type=2, resource_name="orders", configuration_keys=["a"])
            ]
        ),
        DescribeConfigsResponse(
            results=[
                DescribeConfigsResponse.Result(
                    error_code=CODE, error_message=WHY, resource_type=2, resource_name="orders", configs=[]
                )
            ]
        ),
    ),
    (
        AlterConfigsRequest(
            resources=[AlterConfigsRequest.Resource(resource_type=2, resource_name="orders", configs=[])]
        ),
        AlterConfigsResponse(
            responses=[
                AlterConfigsResponse.Response(
                    error_code=CODE, error_message=WHY, resource_type=2, resource_name="orders"
                )
            ]
        ),
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsRequest.Resource(resource_type=4, resource_name="1", configs=[])]
        ),
        IncrementalAlterConfigsResponse(
            responses=[
                IncrementalAlterConfigsResponse.Response(
                    error_code=CODE, error_message=WHY, resource_type=4, resource_name="1"
                )
            ]
        ),
    ),
    (
        DescribeLogDirsRequest(topics=[DescribeLogDirsRequest.Topic(topic="orders", partitions=[0])]),
        DescribeLogDirsResponse(error_code=CODE, results=[]),
    ),
    (
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.Topic(name="orders", count=4, assignments=None)],
            timeout_ms=1,
            validate_only=False,
        ),
        CreatePartitionsResponse(
            results=[CreatePartitionsResponse.Result(name="orders", error_code=CODE, error_message=WHY)]
        ),
    ),
    (
        DeleteGroupsRequest(groups_names=["readers", "others"]),
        DeleteGroupsResponse(
            results=[
                DeleteGroupsResponse.Result(group_id=group_id, error_code=CODE, error_message=WHY)
                for group_id in ("readers", "others")
            ]
        ),
    ),
    (
        ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0, 2])]),
        ElectLeadersResponse(
            error_code=CODE,
            replica_election_results=[
                ElectLeadersResponse.ReplicaElectionResult(
                    topic="orders",
                    partition_result=[
                        ElectLeadersResponse.ReplicaElectionResult.PartitionResult(
                            partition_id=index, error_code=CODE, error_message=WHY
                        )
                        for index in (0, 2)
                    ],
                )
            ],
        ),
    ),
    (
        ElectLeadersRequest(topic_partitions=None),
        ElectLeadersResponse(error_code=CODE, replica_election_results=[]),
    ),
    (
        AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False,
            topics=[
                AlterPartitionReassignmentsRequest.Topic(
                    name="orders",
                    partitions=[AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=0, replicas=[1, 2])],
                )
            ],
        ),
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=False,
            error_code=CODE,
            error_message=WHY,
            responses=[
                AlterPartitionReassignmentsResponse.Response(
                    name="orders",
                    partitions=[
                        AlterPartitionReassignmentsResponse.Response.Partition(
                            partition_index=0, error_code=CODE, error_message=WHY
                        )
                    ],
                )
            ],
        ),
    ),
    (
        ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsRequest.Topic(name="orders", partition_indexes=[0])]
        ),
        ListPartitionReassignmentsResponse(error_code=CODE, error_message=WHY, topics=[]),
    ),
    (
        OffsetDeleteRequest(
            group_id="readers",
            topics=[
                OffsetDeleteRequest.Topic(
                    name="orders", partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)]
                )
            ],
        ),
        OffsetDeleteResponse(error_code=CODE),
    ),
    (
        DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequest.Topic(
                    topic_name="__cluster_metadata",
                    partitions=[DescribeQuorumRequest.Topic.Partition(partition_index=0)],
                )
            ]
        ),
        DescribeQuorumResponse(error_code=CODE, error_message=WHY, topics=[]),
    ),
    (
        DescribeClusterRequest(endpoint_type=2),
        DescribeClusterResponse(error_code=CODE, error_message=WHY, cluster_id="", brokers=[]),
    ),
    (
        ListConfigResourcesRequest(resource_types=[2]),
        ListConfigResourcesResponse(error_code=CODE, config_resources=[]),
    ),
    (
        DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name="orders")]),
        DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponse.Topic(error_code=CODE, name="orders", partitions=[])]
        ),
    ),
    (SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=CODE, mechanisms=[])),
    (
        CreateAclsRequest(creations=[acl_creation("orders"), acl_creation("letters")]),
        CreateAclsResponse(results=[CreateAclsResponse.Result(error_code=CODE, error_message=WHY) for _ in range(2)]),
    ),
    (
        AlterReplicaLogDirsRequest(
            dirs=[
                replicas_in("/a", "orders", [0, 1]),
                replicas_in("/b", "letters", [2]),
            ]
        ),
        AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirsResponse.Result(
                    topic_name=name,
                    partitions=[
                        AlterReplicaLogDirsResponse.Result.Partition(partition_index=index, error_code=CODE)
                        for index in indexes
                    ],
                )
                for name, indexes in (("orders", [0, 1]), ("letters", [2]))
            ]
        ),
    ),
    (
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.Entry(
                    entity=[
                        AlterClientQuotasRequest.Entry.Entity(entity_type="user", entity_name=None),
                        AlterClientQuotasRequest.Entry.Entity(entity_type="client-id", entity_name="shop"),
                    ],
                    ops=[],
                )
            ],
            validate_only=False,
        ),
        AlterClientQuotasResponse(
            entries=[
                AlterClientQuotasResponse.Entry(
                    error_code=CODE,
                    error_message=WHY,
                    entity=[
                        AlterClientQuotasResponse.Entry.Entity(entity_type="user", entity_name=None),
                        AlterClientQuotasResponse.Entry.Entity(entity_type="client-id", entity_name="shop"),
                    ],
                )
            ]
        ),
    ),
    (
        AlterUserScramCredentialsRequest(
            deletions=[AlterUserScramCredentialsRequest.Deletion(name="alice", mechanism=1)],
            upsertions=[
                AlterUserScramCredentialsRequest.Upsertion(
                    name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
                )
            ],
        ),
        AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResponse.Result(user=user, error_code=CODE, error_message=WHY)
                for user in ("alice", "bob")
            ]
        ),
    ),
    (
        DescribeTransactionsRequest(transactional_ids=["shop"]),
        DescribeTransactionsResponse(
            transaction_states=[
                DescribeTransactionsResponse.TransactionState(
                    error_code=CODE,
                    transactional_id="shop",
                    transaction_state="",
                    transaction_timeout_ms=0,
                    transaction_start_time_ms=0,
                    producer_id=0,
                    producer_epoch=0,
                    topics=[],
                )
            ]
        ),
    ),
]


def each_version(samples: list[tuple[Any, Any]]) -> list[Any]:
    return [
        pytest.param(request, version, response, id=f"{type(request).__name__}-v{version}")
        for request, response in samples
        for version in versions_of(request)
    ]


def versions_of(request: Any) -> range:
    first, last = describe(type(request)).versions
    return range(first, last + 1)


def as_received(request: Any, version: int) -> Any:
    """A request without what the version lacks."""
    return decode(type(request), version, encode(request, version))


def refused(request: Any, version: int) -> bytes | None:
    response = refusal(type(request))(as_received(request, version), version, CODE, WHY)
    return None if response is None else encode(response, version)


@pytest.mark.parametrize(("request_", "version", "response"), each_version(REFUSED))
def test_everything_that_the_request_names_carries_the_code(request_: Any, version: int, response: Any) -> None:
    assert refused(request_, version) == encode(response, version)


@pytest.mark.parametrize("version", versions_of(fetch()))
def test_a_fetch_by_topic_ids_carries_the_code_at_its_top_alone(version: int) -> None:
    by_name = version < 13
    assert refused(fetch(), version) == encode(
        fetched() if by_name else FetchResponse(error_code=CODE, responses=[]), version
    )


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_a_topic_without_a_name_has_an_empty_one_where_the_response_knows_no_null(version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=ID)])
    topic = MetadataResponse.Topic(error_code=CODE, name="", topic_id=ID, partitions=[])
    assert refused(request, version) == encode(MetadataResponse(brokers=[], topics=[topic], error_code=CODE), version)


def test_a_topic_is_deleted_by_its_id_alone_where_the_response_knows_null() -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(topic_id=ID)], timeout_ms=1)
    topic = DeleteTopicsResponse.Response(name=None, topic_id=ID, error_code=CODE, error_message=WHY)
    assert refused(request, 6) == encode(DeleteTopicsResponse(responses=[topic]), 6)


@pytest.mark.parametrize("version", versions_of(produce(acks=0)))
def test_a_produce_request_that_wants_no_acknowledgement_gets_no_answer(version: int) -> None:
    assert refused(produce(acks=0), version) is None


@pytest.mark.parametrize("cls", [cls for cls in MESSAGES if describe(cls).is_request], ids=lambda cls: cls.__name__)
def test_every_response_says_what_stands_in_it(cls: type[Any]) -> None:
    assert callable(refusal(cls))


@pytest.mark.parametrize("cls", [cls for cls in MESSAGES if not describe(cls).is_request], ids=lambda cls: cls.__name__)
def test_every_response_can_carry_a_code_or_mirrors_what_can(cls: type[Any]) -> None:
    def carries(struct: type[Any]) -> bool:
        return any(
            field.name in ERROR_CODES
            or (
                bool(field.mirrors)
                and isinstance(field.wire_type, ArrayOf)
                and isinstance(field.wire_type.element, StructOf)
                and carries(field.wire_type.element.cls)
            )
            for field in layout(struct)
        )

    assert carries(cls)


def test_lists_of_one_answer_are_not_those_of_another() -> None:
    first, second = (refusal(FetchRequest)(fetch(), 4, CODE, None) for _ in range(2))
    first.responses[0].partitions[0].aborted_transactions.append(None)
    assert second.responses[0].partitions[0].aborted_transactions == []


HEARTBEAT = ConsumerGroupHeartbeatRequest(group_id="readers", member_id="me", member_epoch=1)
DESCRIPTION = ConsumerGroupDescribeRequest(group_ids=["readers"], include_authorized_operations=False)


def test_the_sentence_stands_where_clients_are_told_of_the_code() -> None:
    refuse = refusal(ConsumerGroupHeartbeatRequest)
    assert refuse(HEARTBEAT, 1, ErrorCode.INVALID_REQUEST, "words").error_message == "words"
    assert refuse(HEARTBEAT, 1, ErrorCode.NOT_COORDINATOR, "words").error_message is None


def test_a_description_that_is_refused_has_no_sentence() -> None:
    [group] = refusal(ConsumerGroupDescribeRequest)(DESCRIPTION, 1, ErrorCode.INVALID_REQUEST, "words").groups
    assert (group.error_code, group.error_message) == (ErrorCode.INVALID_REQUEST, None)


def test_no_words_are_null() -> None:
    request_ = DescribeClusterRequest(include_cluster_authorized_operations=False)
    assert refusal(DescribeClusterRequest)(request_, 1, ErrorCode.UNKNOWN_SERVER_ERROR, "").error_message is None
