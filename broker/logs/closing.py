"""Closing of all logs at a clean stop: the loop writes them to their end, several threads a directory sync them."""

import asyncio
import logging
from typing import Final

from broker.runtime.clock import Clock
from broker.runtime.worker_thread import MakeWorker, WorkerThread
from storage.errors import StorageError
from storage.log_manager import ClosingLog, LogManager

log = logging.getLogger(__name__)

MOST_UNDER_WAY: Final = 16
"""Logs that may wait for a thread: each holds its files open."""


async def close_logs(logs: LogManager, *, make_worker: MakeWorker, clock: Clock, threads_per_directory: int) -> None:
    """Close all logs and write the checkpoints. A directory that fails over it counts as failed.

    A sync waits for the disk most of its time, and several syncs at once share the wait (bench: partitions).
    """
    threads = {
        directory.path: [
            make_worker(f"closing {number} of {directory.path}")
            for number in range(min(threads_per_directory, logs.count_in(directory)))
        ]
        for directory in logs.directories
    }
    free_slots = asyncio.Semaphore(sum(map(len, threads.values())) * MOST_UNDER_WAY)

    def submit(thread: WorkerThread, closing: ClosingLog) -> None:
        def done(_: None) -> None:
            free_slots.release()
            logs.complete_close(closing)

        def failed(error: Exception) -> None:
            free_slots.release()
            if not isinstance(error, StorageError):
                raise error
            logs.fail(closing.directory, error)

        thread.submit(closing.perform, done, failed)
        thread.do_without_thread()

    for number, closing in enumerate(logs.begin_close(clock.now_ms())):
        if closing.target is None:
            logs.complete_close(closing)
            continue
        await free_slots.acquire()
        of_directory = threads[closing.directory.path]
        submit(of_directory[number % len(of_directory)], closing)
    for of_directory in threads.values():
        for thread in of_directory:
            await thread.stop()
    logs.write_checkpoints()
