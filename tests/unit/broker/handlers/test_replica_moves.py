"""Replicas move between data directories while they are written and read (AlterReplicaLogDirs; KIP-113)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.support.broker import InProcessBroker, running_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    paths = ",".join(str(tmp_path / name) for name in ("one", "two", "three"))
    with running_broker(tmp_path / "one", log_dirs=paths) as broker:
        yield broker


def move(broker: InProcessBroker, name: str, topic: str = "orders", partition: int = 0) -> E:
    of_dir = AlterReplicaLogDirsRequest.Dir
    path = str(broker.directory.parent / name)
    request = AlterReplicaLogDirsRequest(
        dirs=[of_dir(path=path, topics=[of_dir.Topic(name=topic, partitions=[partition])])]
    )
    (result,) = broker.ask(request, 2).results
    return E(result.partitions[0].error_code)


def until(broker: InProcessBroker, condition: Callable[[], bool]) -> None:
    """Let time pass until the condition holds."""

    def holds() -> bool:
        broker.advance(10)
        return condition()

    broker.wait_until(holds)


def place(broker: InProcessBroker, topic: str = "orders") -> str:
    return Path(broker.log(topic).directory).parent.name


def test_a_replica_moves(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for number in range(20):
        broker.produce("orders", b"%d" % number)
    assert place(broker) == "one"

    assert move(broker, "two") == E.NONE
    until(broker, lambda: place(broker) == "two")

    log = broker.log("orders")
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 20, 20)
    broker.produce("orders", b"more")
    broker.restart()
    assert place(broker) == "two"
    assert broker.log("orders").log_end_offset == 21
