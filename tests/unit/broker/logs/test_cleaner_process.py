"""A cleaner's process and its orders: the next order finds a process, whenever the last one was killed."""

import asyncio
import time
from pathlib import Path

from broker.logs.cleaner_process import CleanerProcess
from broker.runtime.clock import LoopClock
from broker.runtime.worker_thread import WorkerThread
from storage.cleaning.candidates import order_for
from storage.cleaning.order import CleaningReport
from tests.support.cleaning import LIMITS, CompactedLog


def test_after_a_kill_behind_the_last_answer_the_next_order_is_carried_out(tmp_path: Path) -> None:
    log = CompactedLog.make(tmp_path)
    for number in range(3):
        log.write((b"key", b"%d" % number))
        log.roll()
    order = order_for(log.candidate(), LIMITS, log.home.now_ms)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        process = CleanerProcess(WorkerThread("cleaner", loop, LoopClock(loop, time.time)))
        try:
            for _ in range(2):
                results = [result async for result in process.clean(order)]
                assert isinstance(results[-1], CleaningReport)
                process.kill()
        finally:
            await process.stop()

    asyncio.run(scenario())
