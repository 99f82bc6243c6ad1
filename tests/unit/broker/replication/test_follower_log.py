"""What a follower's decisions do to its logs, and what a crash leaves of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.replication.follower_log import FollowerLogs
from broker.replication.log_start_checkpoints import LogStartCheckpoints
from broker.replication.replica_fetch import BeginAnew, Truncate
from broker.replication.replica_fetcher import WRITE_ENDS_MS, FollowedPartition
from broker.replication.traffic import ReplicaStats
from broker.runtime.manual_clock import ManualClock
from broker.runtime.worker_thread import WorkerThread
from tests.support.log_managers import ORDERS, Broker, append
from tests.support.logs import T, values_in

EPOCH = 3


class Follower:
    """A broker that follows orders-0, whose log was flushed and stands in the checkpoints as it is."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(T)
        self.broker = Broker(directory)
        self.broker.start()
        self.log = self.broker.create(ORDERS)
        append(self.log, b"a", b"b", b"c", b"d")
        self.log.flush(T)
        for write in self.broker.manager.recovery_point_checkpoints():
            write.perform()
        self.partition = SimpleNamespace(
            log=self.log, is_leader=False, leader_epoch=EPOCH, log_dir=self.broker.manager.directory_of(ORDERS)
        )

    def perform(self, step: Truncate | BeginAnew, *, while_it_waits: Callable[[], None] = lambda: None) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()
            worker = WorkerThread("housekeeper", loop, ManualClock(T))
            logs = FollowerLogs(
                clock=self.clock,
                logs=self.broker.manager,
                housekeeper=worker,
                log_starts=LogStartCheckpoints(self.broker.manager, worker),
                find=lambda *_: cast(Any, self.partition),
                appended=lambda _: None,
                failed=lambda *_: None,
                flush=lambda *_: None,
                stop_cleaning=lambda _: None,
                stats=ReplicaStats(),
            )
            followed = FollowedPartition(ORDERS, topic_id=bytes(16), leader_epoch=EPOCH, fetch=cast(Any, None))
            performing = loop.create_task(logs.perform(followed, step))
            await asyncio.sleep(0)
            while_it_waits()
            while not performing.done():
                await asyncio.sleep(0.001)
                self.clock.advance(WRITE_ENDS_MS)
            await performing
            await worker.stop()

        asyncio.run(run())

    def after_a_crash(self) -> tuple[list[bytes], int]:
        """The values and the end of the log that the next start finds."""
        self.broker.crash()
        log = self.broker.start().get(ORDERS)
        assert log is not None
        return values_in(log), log.log_end_offset


@pytest.mark.parametrize("step", [Truncate(2), BeginAnew(2)], ids=["a truncation", "a log that begins anew"])
def test_after_a_crash_nothing_that_was_cut_off_is_vouched_for(tmp_path: Path, step: Truncate | BeginAnew) -> None:
    """The log went on where the recovery point was, without the records below (replicated seed 90001181)."""
    follower = Follower(tmp_path)

    follower.perform(step)

    assert follower.after_a_crash() == ([b"a", b"b"] if isinstance(step, Truncate) else [], 2)


def test_a_log_that_is_held_while_the_recovery_point_is_lowered_is_cut_once_it_is_released(tmp_path: Path) -> None:
    """The copy that took the log's place still had what was cut off."""
    follower = Follower(tmp_path)
    ends: list[int] = []

    def held() -> None:
        follower.log.hold()

        def release() -> None:
            ends.append(follower.log.log_end_offset)
            follower.log.release()

        follower.clock.call_at(follower.clock.monotonic_ms() + 1_000, release)

    follower.perform(Truncate(2), while_it_waits=held)

    assert ends == [4]
    assert follower.after_a_crash() == ([b"a", b"b"], 2)


def test_a_leadership_that_changes_before_the_truncation_keeps_the_log(tmp_path: Path) -> None:
    follower = Follower(tmp_path)

    def elected() -> None:
        follower.partition.leader_epoch += 1

    follower.perform(Truncate(2), while_it_waits=elected)

    assert follower.after_a_crash() == ([b"a", b"b", b"c", b"d"], 4)
