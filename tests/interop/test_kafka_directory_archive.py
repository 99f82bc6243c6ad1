"""`ottla.archive.group`, which Apache Kafka does not have: its tools set it here, and its broker forgets it."""

from __future__ import annotations

import pytest

from dev.waiting import until
from tests.interop import programs
from tests.interop.directories import EARLIEST, LAST_HOUR_MS, METADATA_DIRECTORY, TOPIC, SharedDirectory, Visitor
from tests.interop.java_tools import JavaTools
from tests.support.batches import produced, records

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

OURS = {"ottla.archive.group": "archive.orders", "ottla.archive.max.bytes": "1000000"}
AT_ONCE = {"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100"}
OF_ORDERS = ("--entity-type", "topics", "--entity-name", "orders")


def configs(visitor: Visitor) -> dict[str, str | None]:
    return dict(visitor.picture().topics["orders"].configs)


def test_kafkas_tools_set_and_show_the_settings_and_refuse_wrong_values(shared: SharedDirectory) -> None:
    shared.ottla.start()
    java = JavaTools(programs.java(), shared.ottla.bootstrap)
    with Visitor(shared.ottla.bootstrap) as ottla:
        ottla.create("orders")

    java.run(
        "kafka-configs", "--alter", *OF_ORDERS, "--add-config", ",".join(f"{k}={v}" for k, v in OURS.items())
    ).done()

    shown = "\n".join(java.lines("kafka-configs", "--describe", *OF_ORDERS))
    assert all(f"{key}={value} sensitive=false" in shown for key, value in OURS.items())
    refused = java.run("kafka-configs", "--alter", *OF_ORDERS, "--add-config", "ottla.archive.max.bytes=-2").refused()
    assert "Invalid value -2 for configuration ottla.archive.max.bytes: Value must be at least -1" in refused.said
    java.run("kafka-configs", "--alter", *OF_ORDERS, "--delete-config", ",".join(OURS)).done()
    assert "ottla" not in "\n".join(java.lines("kafka-configs", "--describe", *OF_ORDERS))
    # It asks its own list before it asks any broker.
    created = java.run("kafka-topics", "--create", "--topic", "anew", "--config", "ottla.archive.group=a").refused()
    assert "Unknown topic config name: ottla.archive.group" in created.said


def test_kafka_starts_on_topics_with_the_settings_shows_none_and_alters_others(shared: SharedDirectory) -> None:
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        ottla.create("orders", retention_ms="123456789")
        ottla.configure(TOPIC, "orders", OURS)
        ottla.produce("orders", produced(3))
        before = ottla.picture().topics["orders"].partitions
    shared.ottla.kill()

    shared.kafka.start()
    with Visitor(shared.kafka.bootstrap) as kafka:
        assert kafka.picture().topics["orders"].partitions == before
        assert configs(kafka) == {"retention.ms": "123456789"}
        kafka.configure(TOPIC, "orders", {"retention.ms": "98765432"})
        assert kafka.produce("orders", produced(1)) == 3
    shared.kafka.stop()

    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        assert configs(ottla) == {"retention.ms": "98765432", **OURS}, "Kafka has written no snapshot"
    shared.ottla.stop()


def test_kafka_drops_the_settings_at_its_next_snapshot(shared: SharedDirectory) -> None:
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        ottla.create("orders", retention_ms="123456789")
        ottla.configure(TOPIC, "orders", OURS)
    shared.ottla.stop()

    shared.kafka.settings["metadata.log.max.snapshot.interval.ms"] = "1000"
    metadata = shared.data / METADATA_DIRECTORY
    known = set(metadata.glob("*.checkpoint"))
    shared.kafka.start()
    until(lambda: set(metadata.glob("*.checkpoint")) != known, "a snapshot of Kafka's")
    shared.kafka.stop()

    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        assert configs(ottla) == {"retention.ms": "123456789"}
    shared.ottla.stop()


def test_what_ottla_has_held_kafka_deletes_at_its_first_look(shared: SharedDirectory) -> None:
    shared.ottla.settings |= AT_ONCE
    shared.kafka.settings |= AT_ONCE
    shared.ottla.start()
    with Visitor(shared.ottla.bootstrap) as ottla:
        for topic in ("orders", "unheld"):
            ottla.create(topic, retention_ms="1000")
        ottla.configure(TOPIC, "orders", OURS)
        for topic in ("orders", "unheld"):
            ottla.produce(topic, produced(records(3, timestamp=LAST_HOUR_MS)))
        until(lambda: ottla.offset_at("unheld", EARLIEST) == 3, "that retention has looked")
        assert ottla.offset_at("orders", EARLIEST) == 0
    shared.ottla.stop()

    shared.kafka.start()
    with Visitor(shared.kafka.bootstrap) as kafka:
        until(lambda: kafka.offset_at("orders", EARLIEST) == 3, "that the records have gone")
    shared.kafka.stop()
