"""Loading logs at the start: in the broker's process or in child processes, with the same result."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.logs import loading as log_loading
from broker.logs.closing import close_logs
from broker.logs.loading import LogLoading, Stopped
from broker.runtime.manual_clock import ManualClock
from broker.runtime.worker_thread import WorkerThread
from config.log_config import LogConfig
from storage.files import FileSystem
from storage.loading import AFTER_UNCLEAN_STOP, ALWAYS, NEVER
from storage.log import Log
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition
from tests.support.logs import SMALL, T, batch_of, close_all, load_all, marker, values_in

CONFIG = LogConfig(**SMALL)
TOPIC_ID = b"t" * 16
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


def worker(name: str) -> WorkerThread:
    return WorkerThread(name, asyncio.get_running_loop(), ManualClock(T))


class Node:
    """The logs of a broker through its starts and stops."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.files = FileSystem()

    def lock(self) -> LogManager:
        self.logs = LogManager(self.files, [LogDir.lock(self.files, str(path)) for path in self.paths])
        return self.logs

    def fill(self) -> None:
        """Write something into each log, idempotently and in a transaction, with a sequence of batches to remember."""
        load_all(self.lock(), config_of=lambda _: CONFIG, is_ours=lambda *_: True)
        for topic_partition in PARTITIONS:
            log = self.logs.create(topic_partition, TOPIC_ID, CONFIG, T)
            log.assign_epoch_start(3)
            for number in range(200):
                value = b"%d of %s" % (number, str(topic_partition).encode())
                log.stage(batch_of(value * 9, producer_id=7, sequence=number, timestamp=T + number), leader_epoch=3)
            log.append_all(T)
            log.stage(batch_of(b"aborted", producer_id=8, is_transactional=True), leader_epoch=3)
            log.stage_trusted(marker(8, commit=False), leader_epoch=3)
            log.append_all(T)

    def flush(self) -> None:
        """Have everything on the disk, and in the checkpoints of recovery points."""
        for log in self.logs.all():
            log.flush(T)
        for write in self.logs.recovery_point_checkpoints():
            write.perform()

    def crash(self) -> None:
        """The process is gone, with everything that it has written in the files."""
        for log in self.logs.all():
            log.abandon()
        self.logs.leave()
        for path in self.paths:
            (path / ".kafka_cleanshutdown").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop in order, with the threads that the daemon has for it."""

        async def close() -> None:
            await close_logs(self.logs, make_worker=worker, clock=ManualClock(T), threads_per_directory=2)

        asyncio.run(close())
        self.logs.leave()

    def start(
        self, meanwhile: Callable[[LogLoading, asyncio.Event], Awaitable[None]] | None = None, recovery: str = "unclean"
    ) -> LogLoading:
        """Open everything as the daemon does; ``meanwhile`` runs beside and may ask for a stop."""

        async def load() -> LogLoading:
            stop = asyncio.Event()
            loading = LogLoading(
                self.lock(),
                loop=asyncio.get_running_loop(),
                clock=ManualClock(T),
                make_worker=worker,
                processes_per_directory=2,
                recovery=recovery,
                stop=stop,
            )
            beside = asyncio.ensure_future(meanwhile(loading, stop)) if meanwhile else None
            try:
                await loading.run(
                    config_of=lambda _: CONFIG,
                    is_ours=lambda *_: True,
                    assigned=lambda _: None,
                    new_id=lambda: "ab" * 16,
                )
            finally:
                if beside:
                    await beside
            return loading

        return asyncio.run(load())

    def log(self, topic_partition: TopicPartition = PARTITIONS[0]) -> Log:
        log = self.logs.get(topic_partition)
        assert log is not None
        return log


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "data")


@pytest.fixture
def in_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small they are, logs are recovered in processes beside this one."""
    monkeypatch.setattr(log_loading, "WORTH_A_PROCESS_BYTES", 1)
    monkeypatch.setattr(log_loading, "WORTH_AN_ORDER_BYTES", 1)


def state_of(log: Log) -> list[object]:
    """What a log is, but for its directory."""
    indexes = [
        (segment.base_offset, segment.size, segment.offset_index.entries, segment.time_index.last)
        for segment in log.segments
    ]
    return [
        log.log_start_offset, log.log_end_offset, log.recovery_point, log.high_watermark, log.leader_epochs.entries,
        dict(log.producers.entries), log.last_stable_offset, indexes, values_in(log),
        [list(segment.transaction_index) for segment in log.segments], log.lost_from,
    ]  # fmt: skip


def tear(node: Node) -> None:
    """The last batch of each log is there in part only."""
    for path in node.paths[0].glob("orders-*/*.log"):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 1)


@pytest.mark.parametrize("is_flushed", [False, True], ids=["what was written", "what was flushed"])
def test_a_log_recovered_by_a_child_is_the_same_as_one_recovered_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_children: None, is_flushed: bool
) -> None:
    beside, here = Node(tmp_path / "beside"), Node(tmp_path / "here")
    for node in (beside, here):
        node.fill()
        if is_flushed:
            node.flush()
        node.crash()
        tear(node)
    loading = beside.start()
    monkeypatch.setattr(log_loading, "WORTH_A_PROCESS_BYTES", 1 << 40)
    here.start()
    for topic_partition in PARTITIONS:
        assert state_of(beside.log(topic_partition)) == state_of(here.log(topic_partition))
        assert len(beside.log().producers.entries[7].batches) == 5
    ends, lost_from = (202, 201) if is_flushed else (201, None)
    assert (beside.log().log_end_offset, beside.log().lost_from) == (ends, lost_from)
    (stats,) = loading.stats.values()
    assert (stats.logs_loaded, stats.logs_total) == (3, 3)
    assert stats.bytes_checked == stats.bytes_to_check > 3 * 200 * 100
    assert loading.seconds_left is None
    assert sorted(str(one.topic_partition) for one in beside.logs.repaired) == ["orders-0", "orders-1", "orders-2"]
    assert [one.report.bytes_cut > 0 for one in beside.logs.repaired] == [True, True, True]


@pytest.mark.usefixtures("in_children")
def test_a_log_that_a_child_has_recovered_goes_on(node: Node) -> None:
    node.fill()
    node.crash()
    node.start()
    log = node.log()
    again = log.stage(batch_of(b"?", producer_id=7, sequence=197), leader_epoch=4)
    log.stage(batch_of(b"next", producer_id=7, sequence=200), leader_epoch=4)
    log.append_all(T)
    assert (again.is_duplicate, again.first_offset) == (True, 197)
    assert values_in(log)[-1] == b"next"
    node.stop()
    node.start()
    assert node.logs.repaired == []
    assert values_in(node.log())[-1] == b"next"


@pytest.mark.usefixtures("in_children")
def test_where_no_child_can_be_had_logs_are_recovered_here(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_loading, "RECOVERY_CHILD", "tests.support.nobody")
    node.fill()
    node.crash()
    loading = node.start()
    assert [node.log(one).log_end_offset for one in PARTITIONS] == [202, 202, 202]
    assert "recovering orders-0 here, not in a process beside: process" in caplog.text
    (stats,) = loading.stats.values()
    assert stats.bytes_checked == stats.bytes_to_check


@pytest.mark.usefixtures("in_children")
def test_a_directory_whose_files_a_child_cannot_read_goes_offline(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_loading, "RECOVERY_CHILD", "tests.support.children")
    node.fill()
    node.crash()
    node.start()
    assert [directory.has_failed for directory in node.logs.directories] == [True]
    assert "Input/output error" in str(node.logs.failures[0])
    assert node.logs.all() == []


@pytest.mark.usefixtures("in_children")
def test_a_stop_ends_children_in_the_middle(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.fill()
    node.crash()

    def never(order: object) -> dict[str, bool]:
        return {"stay": True}

    monkeypatch.setattr(log_loading, "RECOVERY_CHILD", "tests.support.children")
    monkeypatch.setattr("storage.recovery_order.RecoveryOrder.to_message", never)

    async def ask_for_a_stop(loading: LogLoading, stop: asyncio.Event) -> None:
        stop.set()

    with pytest.raises(Stopped):
        node.start(ask_for_a_stop)
    assert not any(directory.is_loaded for directory in node.logs.directories)


def test_progress_is_told(node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(log_loading, "PROGRESS_INTERVAL_S", 0)
    monkeypatch.setattr(log_loading, "SLICE_S", 0)
    monkeypatch.setattr("storage.recovery._BYTES_A_STEP", 5_000)
    node.fill()
    node.crash()
    left: list[float] = []

    async def look(loading: LogLoading, stop: asyncio.Event) -> None:
        while not (stats := next(iter(loading.stats.values()))).logs_total or stats.logs_loaded < 3:
            if loading.seconds_left is not None:
                left.append(loading.seconds_left)
            await asyncio.sleep(0)

    node.start(look)
    assert left
    assert "loading logs: 1 of 3" in caplog.text
    assert " bytes checked, about 0 s left" in caplog.text
    assert "recovering segments of orders-1 from offset 0 on" in caplog.text
    assert "loaded log for partition orders-2: offsets 0 to 202, recovery point 0" in caplog.text
    assert "recovery complete" in caplog.text


@pytest.mark.parametrize(
    ("recovery", "is_clean", "recovered"),
    [
        (AFTER_UNCLEAN_STOP, True, 0),
        (AFTER_UNCLEAN_STOP, False, 3),
        (ALWAYS, True, 3),
        (ALWAYS, False, 3),
        (NEVER, True, 0),
    ],
)
def test_what_is_checked_is_a_setting(node: Node, recovery: str, is_clean: bool, recovered: int) -> None:
    node.fill()
    if is_clean:
        node.stop()
    else:
        node.crash()
    node.start(recovery=recovery)
    assert len(node.logs.repaired) == recovered
    assert [node.log(one).log_end_offset for one in PARTITIONS] == [202, 202, 202]


def test_a_torn_tail_is_cut_even_where_nothing_is_to_be_checked(node: Node) -> None:
    node.fill()
    node.crash()
    tear(node)
    node.start(recovery=NEVER)
    assert [node.log(one).log_end_offset for one in PARTITIONS] == [201, 201, 201]


def test_all_logs_are_closed_and_the_next_start_reads_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path / "a", tmp_path / "b")
    node.fill()
    node.stop()
    assert all((path / ".kafka_cleanshutdown").exists() for path in node.paths)
    loading = node.start()
    assert [stats.bytes_to_check for stats in loading.stats.values()] == [0, 0]
    assert [stats.logs_loaded for stats in loading.stats.values()] == [2, 1]
    assert [node.log(one).recovery_point for one in PARTITIONS] == [202, 202, 202]
    close_all(node.logs)
