"""LogStartCheckpoints: writes log start offsets at once after a deletion of records, not only periodically."""

import asyncio
from collections.abc import Callable, Mapping

from broker.runtime.worker_thread import WorkerThread
from storage.errors import StorageError
from storage.log_dir import LogDir
from storage.log_manager import LogManager

Failures = Mapping[LogDir, StorageError]
"""The error of each directory whose checkpoint could not be written; empty if all were written."""


class LogStartCheckpoints:
    """Writes ``log-start-offset-checkpoint`` of all directories, in the worker thread."""

    def __init__(self, logs: LogManager, worker: WorkerThread) -> None:
        self._logs = logs
        self._worker = worker

    def save(self, done: Callable[[Failures], None]) -> None:
        """Write all log start offsets; ``done`` is called when this and every earlier request is written."""
        checkpoints = self._logs.log_start_checkpoints()

        def perform() -> Failures:
            failures: dict[LogDir, StorageError] = {}
            for checkpoint in checkpoints:
                try:
                    checkpoint.perform()
                except StorageError as error:
                    failures[checkpoint.directory] = error
            return failures

        self._worker.submit(perform, done, _raise)

    async def saved(self) -> Failures:
        """`save`, and wait until it is done."""
        saved: asyncio.Future[Failures] = asyncio.get_running_loop().create_future()

        def done(failures: Failures) -> None:
            if not saved.done():  # who waits may have been cancelled
                saved.set_result(failures)

        self.save(done)
        return await saved


def _raise(error: Exception) -> None:
    raise error
