"""A broker has not imported what it has not been asked for, which saves memory and time at its start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from dev.broker_process import BrokerProcess

IMPORTED = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)

OF_SHARE_GROUPS = ("broker.share.", "broker.coordinators.share", "broker.coordinators.group.share.")
OF_STREAMS_GROUPS = ("broker.coordinators.group.streams.",)
OF_CONSUMER_GROUPS = ("broker.coordinators.group.consumer.",)
OF_TRANSACTIONS = ("broker.coordinators.transaction",)
OF_SECURITY = ("broker.security.",)
OF_OTHER_BROKERS = ("broker.peers", "broker.membership.remote", "broker.membership.alter", "broker.raft.remote")
OF_CONTROLLERS_PLANS = ("broker.controller.reassignment", "broker.controller.topic_creation")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    broker.environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    with broker:
        yield broker


def imported(broker: BrokerProcess, *beginnings: str) -> list[str]:
    """The modules with names that begin so, which the process has imported so far."""
    names = IMPORTED.findall(broker.log_path.read_text(errors="replace"))
    assert "broker.network.processor" in names, "the log has the names of modules"
    return [name for name in names if name.startswith(beginnings)]


def produce_and_consume(broker: BrokerProcess, **settings: object) -> None:
    """A stock client writes a record, reads it in a group, and commits."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"v")
    assert producer.flush(60) == 0
    options = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **settings}
    consumer = Consumer(options)
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"v"
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_a_broker_that_is_ready_has_none_of_them(broker: BrokerProcess) -> None:
    assert imported(broker, *OF_SHARE_GROUPS, *OF_STREAMS_GROUPS, *OF_CONSUMER_GROUPS, *OF_TRANSACTIONS) == []
    assert imported(broker, *OF_SECURITY, *OF_OTHER_BROKERS, *OF_CONTROLLERS_PLANS) == []


def test_a_classic_group_brings_no_other_kind_of_groups(broker: BrokerProcess) -> None:
    produce_and_consume(broker)
    assert imported(broker, "broker.coordinators.group.membership")
    assert imported(broker, *OF_SHARE_GROUPS, *OF_STREAMS_GROUPS, *OF_CONSUMER_GROUPS, *OF_TRANSACTIONS) == []


def test_a_stored_group_brings_its_kind_at_the_next_start(broker: BrokerProcess) -> None:
    produce_and_consume(broker, **{"group.protocol": "consumer"})
    broker.stop()
    broker.log_path.write_text("")

    broker.start()
    produce_and_consume(broker, **{"group.id": "other"})
    assert imported(broker, *OF_CONSUMER_GROUPS)
    assert imported(broker, *OF_SHARE_GROUPS, *OF_STREAMS_GROUPS, *OF_TRANSACTIONS) == []
