"""LogRemovals: removes files of deleted segments and logs once their delay (``file.delete.delay.ms``) is over."""

from functools import partial

from broker.replication.replica_manager import ReplicaManager
from broker.runtime.scheduler import Scheduler
from broker.runtime.worker_thread import WorkerThread
from storage.log_dir import LogDir
from storage.removal import PendingRemoval


class LogRemovals:
    """Removes files of logs in the worker thread, since a removal may take long."""

    def __init__(self, *, scheduler: Scheduler, worker: WorkerThread, replicas: ReplicaManager) -> None:
        """``replicas`` is notified of a directory in which files cannot be removed."""
        self._scheduler = scheduler
        self._worker = worker
        self._replicas = replicas

    def remove_later(self, removal: PendingRemoval, directory: LogDir) -> None:
        """Remove the files of ``removal`` once its delay is over, unless ``directory`` fails before."""

        def perform() -> None:
            if not directory.has_failed:
                self._worker.submit(removal.perform, _nothing, partial(self._replicas.work_failed, directory))

        self._scheduler.once(removal.delay_ms, perform)


def _nothing(_: object) -> None:
    pass
