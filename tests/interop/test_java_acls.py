"""Kafka's own tools under an authorizer: `kafka-acls` gives and takes permissions, and other tools are held to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop.java_tools import JavaTools
from tests.interop.test_java_sasl import login
from tests.support.sasl_broker import SaslBroker

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "listener.name.sasl.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="secret" user_alice="wonder" user_bob="build";'
    ),
}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path, **AUTHORIZER) as broker:
        yield broker


def test_permissions_are_given_listed_and_taken(java: JavaTools, guarded: SaslBroker, tmp_path: Path) -> None:
    tools = JavaTools(java.command, guarded.sasl_bootstrap)
    admin = login(tmp_path, "PLAIN", "admin", "secret")
    alice = login(tmp_path, "PLAIN", "alice", "wonder")
    tools.run("kafka-topics", *admin, "--create", "--topic", "letters").done()
    assert "Not authorized to access topics: [letters]" in produced(tools, alice)
    tools.run(
        "kafka-acls", *admin, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "letters"
    ).done()
    assert "rror" not in produced(tools, alice)
    listed = "\n".join(tools.lines("kafka-acls", *admin, "--list", "--topic", "letters"))
    assert "resourceType=TOPIC, name=letters, patternType=LITERAL" in listed
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    assert tools.lines("kafka-topics", *alice, "--list") == ["letters"]
    removed = ("--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "letters")
    tools.run("kafka-acls", *admin, *removed).done()
    assert tools.lines("kafka-topics", *alice, "--list") == []
    assert "ClusterAuthorizationException" in tools.run("kafka-acls", *alice, "--list").refused().said


def produced(tools: JavaTools, login: tuple[str, str]) -> str:
    """What the producer says of one record."""
    return tools.run("kafka-console-producer", *login, "--topic", "letters", stdin=b"a\n").said
