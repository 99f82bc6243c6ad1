"""What a test can leave in a broker: a function for each kind, each as careless as a test may be."""

from __future__ import annotations

import dataclasses
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from broker.controller.feature_updates import UpgradeType
from broker.request.permissions import Operation, ResourceType
from broker.security.acls.codes import PatternType, PermissionType
from config.resources import ConfigResource
from dev.waiting import until
from ottla.testing import Broker
from protocol.errors import ErrorCode
from protocol.messages.acls import CreateAclsRequest
from protocol.messages.client_quotas import AlterClientQuotasRequest
from protocol.messages.committed_offsets import OffsetCommitRequest
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import JoinGroupRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.share_fetch import ShareFetchRequest
from protocol.messages.share_groups import ShareGroupHeartbeatRequest
from protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from storage.batch.records import Record, encode_batch
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

SETTINGS: Final[Mapping[str, str]] = {
    "ottla.clock": "manual",
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
    "delegation.token.secret.key": "secret",
}
"""Of a broker in which all of this can be left."""

TOPIC: Final = "left"
GROUP: Final = "left-group"
NEWER_GROUP: Final = "left-newer-group"
SHARE_GROUP: Final = "left-share-group"
LOGGER: Final = "broker.network.socket_server"
TRANSACTIONAL_ID: Final = "left-transaction"
USER: Final = "left-user"
CLIENT_ID: Final = "left-client"
THROTTLED: Final = "left-throttled"
UNLUCKY: Final = "left-unlucky"

_OF_GROUP: Final = 0
_OF_TRANSACTION: Final = 1
_SET: Final = 0
_QUARTER_OF_AN_HOUR_MS: Final = 900_000
_NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class CarelessTest:
    """A test with a broker, and connections that it leaves open."""

    def __init__(self, kafka: Broker) -> None:
        self.kafka = kafka
        self._connections: list[RawClient] = []
        self.numbers = count(1)
        self.client = self.connect()

    def connect(self, bootstrap: str | None = None, client_id: str = CLIENT_ID) -> RawClient:
        client = RawClient(bootstrap or self.kafka.bootstrap_servers, client_id=client_id)
        self._connections.append(client)
        return client

    def close(self) -> None:
        """Close the connections at last, long after the test."""
        for client in self._connections:
            client.close()

    def ask(self, request: Any, version: int) -> Any:
        return self.client.ask(request, version)

    def make_topic(self, name: str = TOPIC, **configs: str) -> None:
        """Make a topic, unless it is there."""
        if name not in {topic.name for topic in self.ask(MetadataRequest(topics=None), 9).topics}:
            configs = {key.replace("_", "."): value for key, value in configs.items()}
            self.kafka.create_topic(name, partitions=2, configs={"max.message.bytes": "100000", **configs})

    def configure(self, kind: int, name: str, config: str, value: str) -> None:
        """Set a config of a broker, a topic or a group."""
        setting = IncrementalAlterConfigsRequest.Resource.Config(name=config, config_operation=_SET, value=value)
        resource = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=[setting])
        self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def until_coordinated(self, key_type: int, key: str, ask: Callable[[], int]) -> None:
        """Ask until the coordinator of a group or transactional id answers; ``ask`` returns the error code."""

        def is_answered() -> bool:
            self.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 4)
            return ask() not in _NOT_YET

        until(is_answered, "a coordinator")


def _records(test: CarelessTest) -> None:
    test.make_topic()
    test.ask(produce_request(TOPIC, encode_batch([Record(value=b"left")])), 9)


def _deleted_records(test: CarelessTest) -> None:
    _records(test)
    partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=-1)
    topic = DeleteRecordsRequest.Topic(name=TOPIC, partitions=[partition])
    test.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)


def _retention(test: CarelessTest) -> None:
    test.make_topic("left-short", retention_ms="1000")
    test.kafka.produce("left-short", ["1", "2"])
    test.kafka.advance(minutes=2)
    test.kafka.run("retention")


def _compaction(test: CarelessTest) -> None:
    test.make_topic("left-table", cleanup_policy="compact")
    test.kafka.produce("left-table", [{"key": "a", "value": str(number)} for number in range(5)])
    test.kafka.run("compaction")


def _committed_offsets(test: CarelessTest) -> None:
    test.make_topic()
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequest.Topic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    test.until_coordinated(_OF_GROUP, GROUP, lambda: int(test.ask(request, 7).topics[0].partitions[0].error_code))


def _members(test: CarelessTest) -> None:
    """A member, and another one whose JoinGroup waits for the first."""
    group = f"{GROUP}-{next(test.numbers)}"
    request = JoinGroupRequest(
        group_id=group,
        member_id="",
        session_timeout_ms=_QUARTER_OF_AN_HOUR_MS,
        rebalance_timeout_ms=_QUARTER_OF_AN_HOUR_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=memoryview(b""))],
    )
    test.until_coordinated(_OF_GROUP, group, lambda: int(test.ask(request, 3).error_code))
    test.connect().send(request, 3)
    test.kafka.wait_for(group=group, members=2)


def _newer_members(test: CarelessTest) -> None:
    """A member of the newer protocol with partitions that it owes to another member (KIP-848)."""
    test.make_topic()
    for member_id in ("first", "second"):
        joins = ConsumerGroupHeartbeatRequest(
            group_id=NEWER_GROUP,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=_QUARTER_OF_AN_HOUR_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        test.until_coordinated(_OF_GROUP, NEWER_GROUP, lambda joins=joins: int(test.ask(joins, 1).error_code))


def _sharing_members(test: CarelessTest) -> None:
    """A member of a share group that has acquired a record, and waits for more (KIP-932)."""
    test.configure(ConfigResource.GROUP, SHARE_GROUP, "share.auto.offset.reset", "earliest")
    _records(test)
    member_id = urlsafe_b64encode(next(test.numbers).to_bytes(16)).decode().rstrip("=")
    member = test.connect()
    beat = ShareGroupHeartbeatRequest(
        group_id=SHARE_GROUP, member_id=member_id, member_epoch=0, subscribed_topic_names=[TOPIC]
    )
    assigned: list[Any] = []

    def is_assigned() -> bool:
        test.until_coordinated(_OF_GROUP, SHARE_GROUP, lambda: int(test.ask(beat, 1).error_code))
        assigned[:] = test.ask(beat, 1).assignment.topic_partitions
        return bool(assigned)

    until(is_assigned, "an assignment")
    [topic] = assigned
    fetch = ShareFetchRequest(
        group_id=SHARE_GROUP,
        member_id=member_id,
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=1,
        max_records=100,
        batch_size=100,
        topics=[
            ShareFetchRequest.Topic(
                topic_id=topic.topic_id,
                partitions=[
                    ShareFetchRequest.Topic.Partition(partition_index=0, acknowledgement_batches=[]),
                ],
            )
        ],
        forgotten_topics_data=[],
    )
    member.ask(fetch, 1)
    member.send(dataclasses.replace(fetch, share_session_epoch=1, max_wait_ms=_QUARTER_OF_AN_HOUR_MS, topics=[]), 1)


def _transaction(test: CarelessTest) -> None:
    """A transaction that is open, with a record."""
    test.make_topic()
    request = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
    producer: Any = None

    def begin() -> int:
        nonlocal producer
        producer = test.ask(request, 3)
        return int(producer.error_code)

    test.until_coordinated(_OF_TRANSACTION, TRANSACTIONAL_ID, begin)
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    test.ask(added, 3)
    batch = encode_batch(
        [Record(value=b"open")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    test.ask(produce_request(TOPIC, batch, transactional_id=TRANSACTIONAL_ID), 9)


def _producer_id(test: CarelessTest) -> None:
    test.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 3)


def _configs(test: CarelessTest) -> None:
    """Settings of all brokers, of this broker, of one of its loggers, and of a group."""
    test.configure(ConfigResource.BROKER, "", "log.retention.ms", "3600000")
    test.configure(ConfigResource.BROKER, "1", "log.cleaner.threads", "2")
    test.configure(ConfigResource.BROKER_LOGGER, "1", LOGGER, "DEBUG")
    test.configure(ConfigResource.GROUP, GROUP, "consumer.session.timeout.ms", "50000")


def _acls(test: CarelessTest) -> None:
    creation = CreateAclsRequest.Creation(
        resource_type=ResourceType.TOPIC,
        resource_name=TOPIC,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:mallory",
        host="*",
        operation=Operation.READ,
        permission_type=PermissionType.DENY,
    )
    test.ask(CreateAclsRequest(creations=[creation]), 3)


def _scram_user(test: CarelessTest) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 4096)
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name=USER, mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )
    test.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)


def _quotas(test: CarelessTest) -> None:
    """A quota of a client, and the client, which is throttled by it."""
    of_entry = AlterClientQuotasRequest.Entry
    entry = of_entry(
        entity=[of_entry.Entity(entity_type="client-id", entity_name=THROTTLED)],
        ops=[of_entry.Op(key="producer_byte_rate", value=1.0, remove=False)],
    )
    test.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    test.make_topic("left-quota")
    test.connect(client_id=THROTTLED).send(
        produce_request("left-quota", encode_batch([Record(value=bytes(10_000))])), 9
    )


def _delegation_token(test: CarelessTest) -> None:
    client = test.connect(test.kafka.listener_addresses["SASL"])
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), 2)
    client.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)


def _waiting_fetch(test: CarelessTest) -> None:
    """A fetch session, and a request within it that waits for records."""
    test.make_topic()
    begun = test.ask(fetch_request(TOPIC, partition=1, session_epoch=0), 11)
    within = fetch_request(TOPIC, partition=1, session_id=begun.session_id, session_epoch=1)
    within.max_wait_ms = _QUARTER_OF_AN_HOUR_MS
    test.connect().send(within, 11)


def _faults(test: CarelessTest) -> None:
    """Rules, and requests that are late and never answered."""
    test.kafka.fail(api="Metadata", client_id=UNLUCKY, delay_ms=_QUARTER_OF_AN_HOUR_MS, times=1)
    test.kafka.fail(api="Metadata", client_id=UNLUCKY, silence=True, times=1)
    test.kafka.fail(error="UNKNOWN_SERVER_ERROR", client_id="some other client")
    test.kafka.fail(disk="full", topic="some-other-topic")
    for _ in range(2):
        test.connect(client_id=UNLUCKY).send(MetadataRequest(topics=None), 9)


def _leader_away(test: CarelessTest) -> None:
    test.make_topic()
    test.kafka.fail(api="Produce", topic=TOPIC, new_leader_epoch=True, away_ms=_QUARTER_OF_AN_HOUR_MS, times=1)
    test.ask(produce_request(TOPIC, encode_batch([Record(value=b"left")])), 9)


def _moved_clock(test: CarelessTest) -> None:
    test.kafka.advance(minutes=2)


def _half_a_request(test: CarelessTest) -> None:
    test.connect().send_bytes(bytes.fromhex("000001000003000900000001"))


def _snapshot(test: CarelessTest) -> None:
    """A broker that has gone back to a snapshot, with what was there then."""
    _records(test)
    test.kafka.snapshot().restore()
    test.client = test.connect()


def _features(test: CarelessTest) -> None:
    update = UpdateFeaturesRequest.FeatureUpdate(
        feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE
    )
    test.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)


LEFTOVERS: Final[Mapping[str, Callable[[CarelessTest], None]]] = {
    "records": _records,
    "deleted records": _deleted_records,
    "retention": _retention,
    "compaction": _compaction,
    "committed offsets": _committed_offsets,
    "members": _members,
    "newer members": _newer_members,
    "sharing members": _sharing_members,
    "transaction": _transaction,
    "producer id": _producer_id,
    "configs": _configs,
    "ACLs": _acls,
    "SCRAM user": _scram_user,
    "quotas": _quotas,
    "delegation token": _delegation_token,
    "waiting fetch": _waiting_fetch,
    "faults": _faults,
    "leader away": _leader_away,
    "moved clock": _moved_clock,
    "half a request": _half_a_request,
    "snapshot": _snapshot,
    "features": _features,
}
"""Each may come behind each other, and twice; then it may raise `BrokerError`, as a test that fails."""
