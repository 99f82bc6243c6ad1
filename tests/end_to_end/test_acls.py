"""Stock clients under an authorizer: they make ACLs, and are held to them. The broker is a process as users have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern
from kafka.admin import ResourceType as KafkaPythonsResourceType
from kafka.errors import ClusterAuthorizationFailedError

from dev.broker_process import BrokerProcess
from tests.support.clients import Login, Record, RequestFailed, connect, values
from tests.support.sasl_broker import SaslBroker

ALICE, ADMIN = Login("PLAIN", "alice", "wonder"), Login("PLAIN", "admin", "secret")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    broker = SaslBroker(
        tmp_path_factory.mktemp("acls"),
        **{
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "listener.name.sasl.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'user_alice="wonder" user_admin="secret";'
            ),
        },
    )
    with broker:
        yield broker


def test_a_stock_consumer_and_producer_may_what_confluents_administrator_allows(guarded: SaslBroker) -> None:
    admin = AdminClient(
        {
            **{"bootstrap.servers": guarded.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT"},
            **{"sasl.mechanisms": "PLAIN", "sasl.username": "admin", "sasl.password": "secret"},
        }
    )
    connect("confluent-kafka", guarded.sasl_bootstrap, ADMIN).create_topic("orders")
    alice = connect("confluent-kafka", guarded.sasl_bootstrap, ALICE)
    assert alice.topics() == set()
    with pytest.raises(RequestFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        alice.produce("orders", [Record(value=b"0")])

    def binding(operation: AclOperation, kind: ResourceType = ResourceType.TOPIC, prefix: str = "ord") -> AclBinding:
        place = (kind, prefix, ResourcePatternType.PREFIXED)
        return AclBinding(*place, "User:alice", "*", operation, AclPermissionType.ALLOW)

    # librdkafka's consumers have a group, whether they use it or not.
    group = binding(AclOperation.READ, ResourceType.GROUP, "assigned-by-hand")
    wanted = [binding(AclOperation.WRITE), binding(AclOperation.READ), group]
    for created in admin.create_acls(wanted).values():
        created.result(60)
    assert alice.topics() == {"orders"}
    alice.produce("orders", [Record(value=b"1")])
    assert values(alice.consume_all("orders")) == [b"1"]
    writes = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.WRITE, AclPermissionType.ANY)
    )
    (deleted,) = admin.delete_acls([writes]).values()
    assert deleted.result(60) == [binding(AclOperation.WRITE)]
    with pytest.raises(RequestFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        alice.produce("orders", [Record(value=b"2")])
    assert values(alice.consume_all("orders")) == [b"1"]


def test_kafka_python_makes_finds_and_deletes_acls(guarded: SaslBroker) -> None:
    admin = kafka_python(guarded, ADMIN)
    letters = ResourcePattern(KafkaPythonsResourceType.TOPIC, "letters")
    wanted = ACL("User:alice", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, letters)
    assert admin.create_acls([wanted])["failed"] == []
    connect("kafka-python", guarded.sasl_bootstrap, ADMIN).create_topic("letters")
    alice = connect("kafka-python", guarded.sasl_bootstrap, ALICE)
    alice.produce("letters", [Record(value=b"a")])
    assert values(alice.consume_all("letters")) == [b"a"]
    filter_ = ACLFilter("User:alice", "*", ACLOperation.ANY, ACLPermissionType.ANY, letters)
    found, _ = admin.describe_acls(filter_)
    assert found == [wanted]
    ((_, deleted, _),) = admin.delete_acls([filter_])
    assert deleted == [wanted]
    assert "letters" not in alice.topics()
    admin.close()
    with closing(kafka_python(guarded, ALICE)) as other, pytest.raises(ClusterAuthorizationFailedError):
        other.describe_acls(filter_)


def kafka_python(broker: SaslBroker, login: Login) -> KafkaAdminClient:
    return KafkaAdminClient(
        bootstrap_servers=broker.sasl_bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=login.mechanism,
        sasl_plain_username=login.user,
        sasl_plain_password=login.password,
    )


def test_the_log_says_at_the_start_by_what_clients_are_judged(guarded: SaslBroker) -> None:
    assert "0 ACLs, super users: User:admin; what no ACL is about is denied" in guarded.log_text(last_lines=10_000)


def test_a_start_warns_of_listeners_whose_clients_nobody_knows(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path,
        settings={
            "listeners": "PLAINTEXT://0.0.0.0:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        },
    )
    try:
        broker.start()
        assert "without authentication, and do what ACLs and super.users allow User:ANONYMOUS" in broker.log_text()
    finally:
        broker.close()
