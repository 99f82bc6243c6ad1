"""The APIs of administrators."""

from __future__ import annotations

from typing import Any, Final

from broker.request.permissions import Operation as O
from broker.request.permissions import ResourceType
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest, DescribeDelegationTokenRequest
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from protocol.messages.quorum import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from protocol.messages.registrations import UnregisterBrokerRequest, UnregisterControllerRequest
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from tests.parity.access import ALL, ALLOW, LITERAL, acl
from tests.parity.authorization.questions import (
    Asking,
    Case,
    Needed,
    on_cluster,
    on_group,
    on_topic,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET: Final = 0
TOPICS_BY_ID: Final = 6


def _create_topics(asking: Asking) -> CreateTopicsRequest:
    of_topic = CreateTopicsRequest.Topic
    return CreateTopicsRequest(
        topics=[
            of_topic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[of_topic.Config(name="retention.ms", value="1000")],
            )
            for name in ("fresh", "new", "orders")
        ],
        validate_only=True,
    )


def _delete_topics(asking: Asking) -> DeleteTopicsRequest:
    names = ["absent", "letters"]
    if asking.version >= TOPICS_BY_ID:
        return DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(name=name, topic_id=bytes(16)) for name in names], timeout_ms=30_000
        )
    return DeleteTopicsRequest(topic_names=names, timeout_ms=30_000)


def _delete_topic_by_id(asking: Asking) -> DeleteTopicsRequest:
    name = f"doomed-{asking.number}"
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.Topic(name=None, topic_id=asking.exchange.create_topic(name))], timeout_ms=30_000
    )


def _described_configs(*resources: tuple[int, str, str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=[key])
            for kind, name, key in resources
        ]
    )


_CONFIGS: Final = (
    (TOPIC, "orders", "retention.ms", "1000"),
    (TOPIC, "letters", "retention.ms", "1000"),
    (TOPIC, "absent", "retention.ms", "1000"),
    (BROKER, "1", "background.threads", "10"),
    (BROKER, "", "log.cleaner.threads", "1"),
    (CLIENT_METRICS, "metrics", "interval.ms", "1000"),
    (GROUP, "readers", "consumer.session.timeout.ms", "50000"),
)


def _altered_configs(asking: Asking) -> AlterConfigsRequest:
    of_resource = AlterConfigsRequest.Resource
    return AlterConfigsRequest(
        resources=[
            of_resource(resource_type=kind, resource_name=name, configs=[of_resource.Config(name=key, value=value)])
            for kind, name, key, value in _CONFIGS
        ],
        validate_only=True,
    )


def _incrementally(*configs: tuple[int, str, str, str]) -> IncrementalAlterConfigsRequest:
    of_resource = IncrementalAlterConfigsRequest.Resource
    return IncrementalAlterConfigsRequest(
        resources=[
            of_resource(
                resource_type=kind,
                resource_name=name,
                configs=[of_resource.Config(name=key, config_operation=SET, value=value)],
            )
            for kind, name, key, value in configs
        ],
        validate_only=True,
    )


_LOGGER: Final = (BROKER_LOGGER, "1", "org.apache.kafka", "INFO")

_ALTERING: Final = (
    (on_topic(O.ALTER_CONFIGS), on_topic(O.ALTER_CONFIGS, "absent")),
    (on_cluster(O.ALTER_CONFIGS),),
    (on_group(O.ALTER_CONFIGS),),
)


def _unwanted_acls(asking: Asking) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.Filter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter="nothing",
                pattern_type_filter=LITERAL,
                principal_filter=None,
                host_filter=None,
                operation=O.READ,
                permission_type=ALLOW,
            )
        ]
    )


def _described_acls(asking: Asking) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter="nothing",
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=O.READ,
        permission_type=ALLOW,
    )


def _quota(asking: Asking) -> AlterClientQuotasRequest:
    of_entry = AlterClientQuotasRequest.Entry
    return AlterClientQuotasRequest(
        entries=[
            of_entry(
                entity=[of_entry.Entity(entity_type="user", entity_name="alice")],
                ops=[of_entry.Op(key="bogus", value=1000.0, remove=False)],
            )
        ],
        validate_only=True,
    )


def _log_dirs_altered(asking: Asking) -> AlterReplicaLogDirsRequest:
    of_dir = AlterReplicaLogDirsRequest.Dir
    topics = [of_dir.Topic(name="orders", partitions=[0, 1]), of_dir.Topic(name="absent", partitions=[0])]
    return AlterReplicaLogDirsRequest(dirs=[of_dir(path="/nowhere", topics=topics)])


def _reassigned(asking: Asking) -> AlterPartitionReassignmentsRequest:
    of_topic = AlterPartitionReassignmentsRequest.Topic
    partition = of_topic.Partition(partition_index=0, replicas=None)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=30_000, topics=[of_topic(name="orders", partitions=[partition])]
    )


def _partitions(asking: Asking) -> CreatePartitionsRequest:
    of_topic = CreatePartitionsRequest.Topic
    return CreatePartitionsRequest(
        topics=[of_topic(name=name, count=5, assignments=None) for name in ("orders", "letters", "absent")],
        timeout_ms=30_000,
        validate_only=True,
    )


def _credential(asking: Asking) -> AlterUserScramCredentialsRequest:
    of_request = AlterUserScramCredentialsRequest
    return of_request(deletions=[of_request.Deletion(name="nobody", mechanism=1)], upsertions=[])


def _quorum(asking: Asking) -> DescribeQuorumRequest:
    of_topic = DescribeQuorumRequest.Topic
    return DescribeQuorumRequest(
        topics=[of_topic(topic_name="__cluster_metadata", partitions=[of_topic.Partition(partition_index=1)])]
    )


def _features(asking: Asking) -> UpdateFeaturesRequest:
    update = UpdateFeaturesRequest.FeatureUpdate(feature="group.version", max_version_level=99, upgrade_type=1)
    return UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=True)


def _voter(asking: Asking) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id="another", timeout_ms=1000, voter_id=7, voter_directory_id=b"7" * 16, listeners=[]
    )


def _token(**owner: Any) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(**owner, renewers=[], max_lifetime_ms=60_000)


_ON_CLUSTER: Final = (
    ("of no topic", O.DESCRIBE, lambda asking: ListPartitionReassignmentsRequest(topics=[])),
    ("of a topic", O.ALTER, _reassigned),
    ("all", O.DESCRIBE, lambda asking: DescribeLogDirsRequest(topics=[])),
    ("to nowhere", O.ALTER, _log_dirs_altered),
    (
        "of a partition",
        O.ALTER,
        lambda asking: ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0])], timeout_ms=30_000
        ),
    ),
    ("of all partitions", O.ALTER, lambda asking: ElectLeadersRequest(topic_partitions=None, timeout_ms=30_000)),
    ("of a user", O.DESCRIBE_CONFIGS, lambda asking: DescribeClientQuotasRequest(components=[], strict=False)),
    ("of a user", O.ALTER_CONFIGS, _quota),
    (
        "of nobody",
        O.DESCRIBE,
        lambda asking: DescribeUserScramCredentialsRequest(
            users=[DescribeUserScramCredentialsRequest.User(name="nobody")]
        ),
    ),
    ("of nobody", O.ALTER, _credential),
    ("of another partition", O.DESCRIBE, _quorum),
    ("to a level that there is not", O.ALTER, _features),
    ("that there is not", O.ALTER, lambda asking: UnregisterBrokerRequest(broker_id=77)),
    ("that there is not", O.ALTER, lambda asking: UnregisterControllerRequest(controller_id=77)),
    ("in another cluster", O.ALTER, _voter),
    (
        "in another cluster",
        O.ALTER,
        lambda asking: RemoveRaftVoterRequest(cluster_id="another", voter_id=7, voter_directory_id=b"7" * 16),
    ),
    (
        "one",
        O.ALTER,
        lambda asking: CreateAclsRequest(creations=[acl("some", principal="User:nobody", operation=O.READ)]),
    ),
    ("one that there is not", O.ALTER, _unwanted_acls),
    ("one that there is not", O.DESCRIBE, _described_acls),
)

CASES: Final = (
    *(Case(step=step, request=request, ways=((on_cluster(operation),),)) for step, operation, request in _ON_CLUSTER),
    Case(
        step="of two topics",
        request=lambda asking: DescribeLogDirsRequest(
            topics=[DescribeLogDirsRequest.Topic(topic="orders", partitions=[0])]
        ),
        ways=((on_cluster(O.ALTER),), (on_topic(O.DESCRIBE),)),
        versions=(4, 4),
    ),
    Case(
        step="with operations",
        request=lambda asking: DescribeClusterRequest(include_cluster_authorized_operations=True),
        ways=((on_cluster(O.DESCRIBE),), (on_cluster(O.ALTER), on_cluster(O.IDEMPOTENT_WRITE)), (on_cluster(ALL),)),
    ),
    Case(
        step="topics",
        request=_create_topics,
        ways=(
            (on_cluster(O.CREATE),),
            (on_topic(O.CREATE, "fresh"), on_topic(O.DESCRIBE_CONFIGS, "fresh")),
            (on_topic(O.CREATE), on_topic(O.DESCRIBE_CONFIGS, "new")),
        ),
    ),
    Case(
        step="by name",
        request=_delete_topics,
        ways=((on_topic(O.DELETE, "absent"),), (on_topic(O.DESCRIBE, "letters"),)),
    ),
    Case(
        step="by id",
        request=_delete_topic_by_id,
        ways=((on_topic(O.DELETE, "doomed-{number}"),), (on_topic(O.DESCRIBE, "doomed-{number}"),)),
        versions=(6, 6),
    ),
    Case(
        step="of topics",
        request=_partitions,
        ways=((on_topic(O.ALTER), on_topic(O.ALTER, "absent")), (on_cluster(O.ALTER),)),
    ),
    Case(
        step="of topics",
        request=lambda asking: _described_configs(*((TOPIC, name, "retention.ms") for name in ("orders", "absent"))),
        ways=(
            (on_topic(O.DESCRIBE_CONFIGS), on_topic(O.DESCRIBE_CONFIGS, "absent")),
            (on_topic(O.ALTER_CONFIGS),),
            (on_topic(O.DESCRIBE),),
        ),
    ),
    Case(
        step="of the broker, its loggers, groups and metrics",
        request=lambda asking: _described_configs(
            (BROKER, "1", "background.threads"),
            (BROKER, "", "background.threads"),
            (BROKER_LOGGER, "1", "no.such.logger"),
            (CLIENT_METRICS, "metrics", "interval.ms"),
            (GROUP, "readers", "consumer.session.timeout.ms"),
        ),
        ways=((on_cluster(O.DESCRIBE_CONFIGS),), (on_group(O.DESCRIBE_CONFIGS),), (on_cluster(O.ALTER_CONFIGS),)),
    ),
    Case(step="of everything", request=_altered_configs, ways=_ALTERING),
    Case(step="of everything", request=lambda asking: _incrementally(*_CONFIGS), ways=_ALTERING),
    Case(
        step="of a logger",
        request=lambda asking: _incrementally(_LOGGER),
        ways=((on_cluster(O.ALTER_CONFIGS),), (on_cluster(O.ALTER),)),
    ),
    Case(
        step="all",
        request=lambda asking: ListConfigResourcesRequest(),
        ways=((on_cluster(O.DESCRIBE_CONFIGS),), (on_topic(O.DESCRIBE_CONFIGS),)),
    ),
    Case(
        step="of its own",
        request=lambda asking: _token(),
        ways=((on_cluster(O.DESCRIBE),),),
        user="alice",
    ),
    Case(
        step="of another owner",
        request=lambda asking: _token(owner_principal_type="User", owner_principal_name="carol"),
        ways=((Needed(O.CREATE_TOKENS, ResourceType.USER, "User:carol"),),),
        versions=(3, 3),
        user="alice",
    ),
    Case(
        step="of another owner",
        request=lambda asking: DescribeDelegationTokenRequest(
            owners=[DescribeDelegationTokenRequest.Owner(principal_type="User", principal_name="admin")]
        ),
        ways=(
            (Needed(O.DESCRIBE, ResourceType.DELEGATION_TOKEN, "*"),),
            (Needed(O.DESCRIBE_TOKENS, ResourceType.USER, "User:admin"),),
        ),
        user="bob",
    ),
)
