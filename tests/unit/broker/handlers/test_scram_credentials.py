"""DescribeUserScramCredentials and AlterUserScramCredentials through the codec."""

import hashlib
from pathlib import Path

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from protocol.records.cluster_metadata import UserScramCredentialRecord
from tests.support.broker import InProcessBroker, running_broker

SHA_256, SHA_512 = 1, 2

Described = DescribeUserScramCredentialsRequest
Altered = AlterUserScramCredentialsRequest


def upsertion(
    user: str, mechanism: int = SHA_256, iterations: int = 4096, password: bytes = b"salted"
) -> Altered.Upsertion:
    return Altered.Upsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=password
    )


def deletion(user: str, mechanism: int = SHA_256) -> Altered.Deletion:
    return Altered.Deletion(name=user, mechanism=mechanism)


def alter(broker: InProcessBroker, *changes: Altered.Deletion | Altered.Upsertion) -> dict[str, int]:
    """The error code of each user."""
    asked = Altered(
        deletions=[change for change in changes if isinstance(change, Altered.Deletion)],
        upsertions=[change for change in changes if isinstance(change, Altered.Upsertion)],
    )
    return {result.user: result.error_code for result in broker.ask(asked, 0).results}


def describe(broker: InProcessBroker, *users: str) -> dict[str, list[tuple[int, int]]]:
    """Mechanism and iterations of the credentials of each user that has some."""
    asked = Described(users=[Described.User(name=user) for user in users] or None)
    answer = broker.ask(asked, 0)
    assert answer.error_code == E.NONE
    return {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
        if result.error_code == E.NONE
    }


@serves(Described)
@serves(Altered)
@every_version(Altered)
def test_a_credential_is_kept_and_told_back_without_its_keys(broker: InProcessBroker, version: int) -> None:
    assert describe(broker) == {}
    assert alter(broker, upsertion("alice"), upsertion("bob", SHA_512, 16_384)) == {"alice": E.NONE, "bob": E.NONE}
    assert describe(broker) == {"alice": [(SHA_256, 4096)], "bob": [(SHA_512, 16_384)]}
    assert describe(broker, "bob") == {"bob": [(SHA_512, 16_384)]}
    broker.restart()
    assert alter(broker, upsertion("alice", SHA_512)) == {"alice": E.NONE}
    assert describe(broker, "alice") == {"alice": [(SHA_256, 4096), (SHA_512, 4096)]}
    assert alter(broker, deletion("alice")) == {"alice": E.NONE}
    assert describe(broker, "alice") == {"alice": [(SHA_512, 4096)]}


@pytest.mark.parametrize(("mechanism", "name"), [(SHA_256, "sha256"), (SHA_512, "sha512")])
def test_what_is_kept_is_what_rfc_5802_lets_a_server_keep(broker: InProcessBroker, mechanism: int, name: str) -> None:
    salted = hashlib.pbkdf2_hmac(name, b"pencil", b"salt", 4096)
    alter(broker, upsertion("alice", mechanism, password=salted))
    (record,) = broker.server.components.metadata.image.scram_credentials.by_key.values()
    assert isinstance(record, UserScramCredentialRecord)
    assert (record.salt, record.iterations) == (b"salt", 4096)
    # What a client proves is its key, and the server knows the hash of that key.
    client_key = _hmac(name, salted, b"Client Key")
    assert record.stored_key == hashlib.new(name, client_key).digest()
    assert record.server_key == _hmac(name, salted, b"Server Key")
    assert salted not in (record.stored_key, record.server_key)


def _hmac(name: str, key: bytes, message: bytes) -> bytes:
    """HMAC as RFC 2104 writes it."""
    block = hashlib.new(name).block_size
    padded = key.ljust(block, b"\0")
    inner = hashlib.new(name, bytes(byte ^ 0x36 for byte in padded) + message).digest()
    return hashlib.new(name, bytes(byte ^ 0x5C for byte in padded) + inner).digest()


@serves(Described, E.RESOURCE_NOT_FOUND, E.DUPLICATE_RESOURCE, versions=[0])
def test_users_that_are_not_there_or_named_twice_are_told_so(broker: InProcessBroker) -> None:
    alter(broker, upsertion("alice"))
    asked = Described(users=[Described.User(name=name) for name in ("alice", "bob", "carol", "bob")])
    assert [(result.user, result.error_code) for result in broker.ask(asked, 0).results] == [
        ("carol", E.RESOURCE_NOT_FOUND),
        ("bob", E.DUPLICATE_RESOURCE),
        ("alice", E.NONE),
    ], "in the order of Java's hash map, as Kafka 4.4.0 tells them"


@serves(
    Altered,
    E.RESOURCE_NOT_FOUND,
    E.UNSUPPORTED_SASL_MECHANISM,
    E.UNACCEPTABLE_CREDENTIAL,
    E.DUPLICATE_RESOURCE,
    versions=[0],
)
def test_each_user_has_an_error_and_the_others_are_changed(broker: InProcessBroker) -> None:
    assert alter(
        broker,
        deletion("nobody"),
        deletion("strange", 0),
        upsertion("stranger", 9),
        upsertion(""),
        upsertion("hasty", iterations=4095),
        upsertion("slow", iterations=16_385),
        upsertion("open", password=b""),
        upsertion("twice"),
        upsertion("twice", SHA_512),
        upsertion("good"),
    ) == {
        "nobody": E.RESOURCE_NOT_FOUND,
        "strange": E.UNSUPPORTED_SASL_MECHANISM,
        "stranger": E.UNSUPPORTED_SASL_MECHANISM,
        "": E.UNACCEPTABLE_CREDENTIAL,
        "hasty": E.UNACCEPTABLE_CREDENTIAL,
        "slow": E.UNACCEPTABLE_CREDENTIAL,
        "open": E.UNACCEPTABLE_CREDENTIAL,
        "twice": E.DUPLICATE_RESOURCE,
        "good": E.NONE,
    }
    assert describe(broker) == {"good": [(SHA_256, 4096)]}


def test_no_password_stands_in_the_log(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    alter(broker, upsertion("alice", password=b"secret-of-alice"), upsertion("bob", 9, password=b"secret-of-bob"))
    assert "secret" not in caplog.text


def test_a_cluster_before_kafka_3_5_has_no_such_credentials(tmp_path: Path) -> None:
    with running_broker(tmp_path, ottla_release_version="3.4") as broker:
        (result,) = broker.ask(Altered(deletions=[], upsertions=[upsertion("alice")]), 0).results
    assert (result.error_code, result.error_message) == (
        E.UNSUPPORTED_VERSION,
        "The current metadata version does not support SCRAM",
    )
