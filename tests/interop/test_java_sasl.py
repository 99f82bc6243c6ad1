"""Kafka's own tools authenticate by SASL, make users of SCRAM, and delegation tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java_tools import JavaTools
from tests.support.sasl_broker import SaslBroker

_PACKAGE = "org.apache.kafka.common.security"
_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


@pytest.fixture
def sasl_broker(tmp_path: Path) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path, **{"delegation.token.secret.key": "topsecret"}) as broker:
        yield broker


def login(directory: Path, mechanism: str, user: str, password: str, more: str = "") -> tuple[str, str]:
    """The option that gives a tool its login."""
    path = directory / f"{user}-{mechanism}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={_PACKAGE}.{_MODULES[mechanism]} required "
        f'username="{user}" password="{password}"{more};\n'
    )
    return "--command-config", str(path)


def test_a_user_is_made_and_uses_topics_and_tokens(java: JavaTools, sasl_broker: SaslBroker, tmp_path: Path) -> None:
    tools = JavaTools(java.command, sasl_broker.sasl_bootstrap)
    admin = login(tmp_path, "PLAIN", "alice", "wonder")
    carol = login(tmp_path, "SCRAM-SHA-512", "carol", "secret1")
    user = ("--entity-type", "users", "--entity-name", "carol")
    tools.run("kafka-configs", *admin, "--alter", *user, "--add-config", "SCRAM-SHA-512=[password=secret1]").done()
    produced = tools.run("kafka-console-producer", *carol, "--topic", "letters", stdin=b"a\nb\n")
    produced.done()
    token = tools.lines("kafka-delegation-tokens", *carol, "--create", "--max-life-time-period", "-1")[-1].split()
    by_token = login(tmp_path, "SCRAM-SHA-512", token[0], token[1], ' tokenauth="true"')
    from_start = ("--topic", "letters", "--from-beginning", "--max-messages", "2")
    assert tools.lines("kafka-console-consumer", *by_token, *from_start)[:2] == ["a", "b"]
