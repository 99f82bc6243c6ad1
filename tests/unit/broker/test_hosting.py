"""Partitions whose log cannot be made for want of something that may come back."""

from pathlib import Path
from typing import Any

import pytest

from broker.hosting import RETRY_MS
from protocol.errors import ErrorCode
from protocol.messages.topics import DeleteTopicsRequest
from storage.errors import DiskFull, StorageError, TooManyOpenFiles
from storage.log_manager import LogManager
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.requests import produce_request


def produce_code(broker: InProcessBroker, topic: str) -> int:
    answer = broker.ask(produce_request(topic, produced([record(b"v")])), 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize("lack", [TooManyOpenFiles, DiskFull])
def test_a_partition_waits_for_what_its_log_lacks_and_is_hosted_then(
    lack: type[StorageError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lacking(*_: Any) -> Any:
        raise lack("opening orders-0: there is nothing left")

    with running_broker(tmp_path) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(LogManager, "create", lacking)
            broker.create_topic("orders", 3)
            assert produce_code(broker, "orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            broker.advance(2 * RETRY_MS)
            assert produce_code(broker, "orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.advance(RETRY_MS)
        assert produce_code(broker, "orders") == ErrorCode.NONE
        assert broker.daemon.replicas.find("orders", 2) is not None
    told = [line for line in caplog.messages if "has no log yet" in line]
    assert len(told) == 1, "one line, not one for each partition and second"


def test_a_topic_that_is_deleted_meanwhile_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: Any) -> Any:
        raise TooManyOpenFiles("opening orders-0: there is nothing left")

    with running_broker(tmp_path) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(LogManager, "create", lacking)
            broker.create_topic("orders")
        gone = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1_000)
        assert broker.ask(gone, 5).responses[0].error_code == ErrorCode.NONE
        broker.advance(2 * RETRY_MS)
        assert broker.daemon.replicas.find("orders", 0) is None
