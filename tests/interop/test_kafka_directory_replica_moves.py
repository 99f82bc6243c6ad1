"""A broker is killed while it moves a replica between its data directories; the other broker finishes the move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from broker.tools import verify
from dev.broker_process import BrokerProcess
from dev.waiting import until
from protocol.messages.log_dirs import AlterReplicaLogDirsRequest
from storage.batch.records import Record, encode_batch
from tests.interop import programs
from tests.interop.conftest import FEW_INTERNAL_PARTITIONS, installed
from tests.interop.directories import BROKER, LAST_HOUR_MS, Picture, SharedDirectory, Visitor

pytestmark = pytest.mark.timeout(400)  # several starts of a Java broker, on whatever machine

ORDERS: Final = "orders"
DIRECTORIES: Final = ("one", "two")
THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
BATCHES: Final = 40
VALUE: Final = bytes(20_000)


class SharedDirectories(SharedDirectory):
    """Two data directories that Ottla and Apache Kafka serve in turns."""

    def __init__(self, directory: Path, libraries: Path | str) -> None:
        self.paths = [directory / name for name in DIRECTORIES]
        log_dirs = ",".join(map(str, self.paths))
        super().__init__(directory, libraries, settings={**FEW_INTERNAL_PARTITIONS, "log.dirs": log_dirs})
        self.data = self.ottla.data_directory = self.kafka.data_directory = self.paths[0]

    def places(self, pattern: str) -> set[Path]:
        """The directories that have a log with a name of this pattern."""
        return {path for path in self.paths if list(path.glob(pattern))}


@pytest.fixture
def shared(tmp_path: Path, kafka_version: str) -> Iterator[SharedDirectories]:
    installed(programs.java)
    directories = SharedDirectories(tmp_path, installed(lambda: programs.kafka_libraries(kafka_version)))
    try:
        yield directories
    finally:
        directories.close()


def test_kafka_finishes_a_move_in_which_ottla_was_killed(shared: SharedDirectories) -> None:
    target, before = begin_move(shared, shared.ottla)
    finish_move(shared, shared.kafka, target, before)
    assert verify.main(list(map(str, shared.paths))) == verify.WHOLE


def test_ottla_finishes_a_move_in_which_kafka_was_killed(shared: SharedDirectories) -> None:
    target, before = begin_move(shared, shared.kafka)
    finish_move(shared, shared.ottla, target, before)
    assert verify.main(list(map(str, shared.paths))) == verify.WHOLE


def begin_move(shared: SharedDirectories, broker: BrokerProcess) -> tuple[Path, Picture]:
    """Kill a broker in the middle of a move. Returns where the replica was to go, and what clients saw before."""
    broker.start()
    with Visitor(broker.bootstrap) as visitor:
        visitor.create(ORDERS, segment_bytes=str(1 << 20))
        for number in range(BATCHES):
            visitor.produce(ORDERS, encode_batch([Record(value=VALUE, timestamp=LAST_HOUR_MS + number)]))
        before = visitor.picture()
        visitor.configure(BROKER, "1", {THROTTLE: str(len(VALUE) * 4)})
        [here] = shared.places(f"{ORDERS}-0")
        [target] = set(shared.paths) - {here}
        topic = AlterReplicaLogDirsRequest.Dir.Topic(name=ORDERS, partitions=[0])
        asked = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.Dir(path=str(target), topics=[topic])])
        visitor.ask(asked, 2)
        copies = f"{ORDERS}-0.*-future/*.log"
        until(lambda: any(one.stat().st_size for one in target.glob(copies)), "a copy that has begun")
    broker.kill()
    assert shared.places(f"{ORDERS}-0") == {here}, "the move was over before the broker was killed"
    return target, before


def finish_move(shared: SharedDirectories, broker: BrokerProcess, target: Path, before: Picture) -> None:
    """Start the other broker, which goes on with the move, and has everything that was there before."""
    broker.start()
    with Visitor(broker.bootstrap) as visitor:
        visitor.configure(BROKER, "1", {THROTTLE: None})
        until(lambda: shared.places(f"{ORDERS}-0") == {target}, "the end of the move")
        assert shared.places(f"{ORDERS}-0.*-future") == set()
        assert visitor.picture() == before
        assert visitor.produce(ORDERS, encode_batch([Record(value=VALUE)])) == BATCHES
    broker.stop()
