"""Every broker setting that DescribeConfigs lists as changeable can be changed, and keeps its value over a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="a broker of our own is started again",
)

OF_A_LISTENER_ONLY = ("ssl.key.password", "ssl.keystore.", "ssl.truststore.")
"""Kafka changes these for `listener.name.<name>.…` only."""
UNSET = {
    "log.flush.interval.ms": "1000",
    "log.retention.ms": "1000000",
    "log.roll.ms": "1000",
    "log.roll.jitter.ms": "0",
}
"""Values of those that have none."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_for_tests(tmp_path) as process:
        yield process


def described(broker: BrokerProcess) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return entries


def changed(broker: BrokerProcess, values: dict[str, str]) -> None:
    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_every_one_is_stored_and_told_back_also_after_a_restart(broker: BrokerProcess) -> None:
    values = {
        name: entry.value if entry.value is not None else UNSET.get(name, "")
        for name, entry in described(broker).items()
        if not entry.is_read_only and not name.startswith(OF_A_LISTENER_ONLY) and entry.value != "null"
    }
    # What may not be set to nothing, and what has one value for the whole cluster with eligible leader replicas.
    for name in ("ssl.engine.factory.class", "cordoned.log.dirs", "min.insync.replicas"):
        values.pop(name, None)
    assert "sasl.kerberos.min.time.before.relogin" in values
    values["sasl.kerberos.min.time.before.relogin"] = "58000"
    values["sasl.jaas.config"] = "secret"

    changed(broker, values)

    for _ in range(2):
        entries = described(broker)
        for name, value in values.items():
            entry = entries[name]
            assert entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value, name
            assert entry.value == (None if entry.is_sensitive else value), name
        broker.stop()
        broker.start()
    assert "is ignored" not in broker.log_text()
