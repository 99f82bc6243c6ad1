"""Kafka's Java client consumes, transforms and produces in transactions, while it and the broker are killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from protocol.messages.transactions import DescribeTransactionsRequest
from tests.interop import programs
from tests.interop.conftest import installed
from tests.support.clients.transforming import SETTINGS, Transformation
from tests.support.clients.transforming_worker import WORKERS
from tests.support.raw_client import RawClient

WORKER = Path(__file__).with_name("TransformingWorker.java")


@pytest.fixture
def command() -> list[str]:
    """How a worker is started."""
    words: list[str] = installed(lambda: programs.java_source(WORKER, programs.kafka_libraries()))
    return words


def epochs(broker: BrokerProcess) -> list[int]:
    """The producer epochs of the workers."""
    request = DescribeTransactionsRequest(transactional_ids=[f"worker-{number}" for number in range(WORKERS)])
    with RawClient(broker.bootstrap) as client:
        states = client.ask(request, 0).transaction_states
    assert not any(state.error_code for state in states), states
    return [state.producer_epoch for state in states]


@pytest.mark.timeout(900)
def test_what_is_transformed_is_there_once_though_everything_is_killed(command: list[str], tmp_path: Path) -> None:
    with (
        broker_for_tests(tmp_path, settings=SETTINGS) as broker,
        Transformation(broker, command, tmp_path, random.Random(890)) as transformation,
    ):
        for _ in range(10):
            transformation.kill_something()
        assert transformation.finish() == []
        # In version 2 each transaction ends with a new epoch, before that a start begins one or two.
        assert sum(epochs(broker)) > 2 * (WORKERS + transformation.revived)
