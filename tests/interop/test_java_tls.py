"""Kafka's own tools over TLS: with PEM files, with a certificate of their own, and a new certificate of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java_tools import JavaTools
from tests.support.certificates import written
from tests.support.tls_broker import KEYSTORE, TlsBroker


@pytest.fixture
def tls_broker(tmp_path: Path) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path, **{"delegation.token.secret.key": "topsecret"}) as broker:
        yield broker


def alice(broker: TlsBroker) -> tuple[str, str]:
    """The option that gives a tool the certificate of alice."""
    own = written(broker.directory / "alice.pem", broker.authority.issue("alice").pem())
    stores = {"truststore": broker.trusted, "keystore": own}
    lines = [f"ssl.{store}.type=PEM\nssl.{store}.location={path}\n" for store, path in stores.items()]
    properties = written(broker.directory / "alice.properties", "security.protocol=SSL\n" + "".join(lines))
    return "--command-config", properties


def test_a_tool_with_a_certificate_is_who_that_says(java: JavaTools, tls_broker: TlsBroker) -> None:
    tools = JavaTools(java.command, tls_broker.bootstrap_of("MUTUAL"))
    as_alice = alice(tls_broker)
    tools.run("kafka-console-producer", *as_alice, "--topic", "letters", stdin=b"a\nb\n").done()
    token = tools.lines("kafka-delegation-tokens", *as_alice, "--create", "--max-life-time-period", "-1")[-1]
    assert "User:CN=alice,O=Acme" in token
    path = tls_broker.directory / "next.pem"
    broker = ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config")
    for _ in range(2):  # another file, and the same file anew
        path.write_text(tls_broker.authority.issue().pem())
        tools.run("kafka-configs", *as_alice, *broker, f"{KEYSTORE}={path}").done()
    assert tls_broker.log_text().count("listener SSL has new keys or certificates") == 2
    path.write_text("nonsense")
    refused = tools.run("kafka-configs", *as_alice, *broker, f"{KEYSTORE}={path}")
    assert "has 0 private keys in PEM, expected one" in refused.said
    from_start = ("--topic", "letters", "--from-beginning", "--max-messages", "2")
    assert tools.lines("kafka-console-consumer", *as_alice, *from_start)[:2] == ["a", "b"]
