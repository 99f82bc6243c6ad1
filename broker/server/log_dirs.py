"""LogDirs: locks the data directories of this node, reads their ids, and formats new ones."""

import logging
from collections.abc import Mapping, Sequence

from broker.raft.formatting import format_directories
from broker.runtime.clock import Ids
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from storage.checkpoints import MetaProperties
from storage.errors import LogDirFailed, StorageError, WrongDirectory
from storage.files import FileSystem
from storage.log_dir import LogDir

log = logging.getLogger(__name__)


class LogDirs:
    """The directories of ``log.dirs``, and ``metadata.log.dir`` where it is not among them; locked until `release`."""

    def __init__(self, files: FileSystem, settings: BrokerSettings) -> None:
        self._files = files
        self._settings = settings
        self._locked: dict[str, LogDir] = {}
        self.cluster_id = ""
        self.by_id: dict[bytes, LogDir] = {}
        """Log directories by their id in the metadata log; directories without id are missing here."""

    def lock(self) -> None:
        """Lock every directory; a directory that cannot be made or opened goes offline alone.

        Raises DirectoryLocked, LogDirFailed; locked directories stay so until `release`.
        """
        failures: dict[str, LogDirFailed] = {}
        for path in dict.fromkeys((*self._settings.log_dirs, self._settings.metadata_directory)):
            try:
                self._locked[path] = LogDir.lock(self._files, path)
            except LogDirFailed as error:
                self._locked[path] = LogDir.unusable(self._files, path)
                failures[path] = error
        for path, failure in failures.items():
            self.start_without(self._locked[path], failure)

    def identify(self, ids: Ids, now_ms: int, date: str, controller_endpoint: Listener) -> None:
        """Read the directories' meta.properties, and format the empty ones. Raises WrongDirectory, LogDirFailed."""
        known: dict[str, MetaProperties] = {}
        new: list[str] = []
        for directory in self._alive():
            try:
                properties = directory.read_properties()
            except LogDirFailed as error:
                self.start_without(directory, error)
                continue
            if properties is None:
                new.append(directory.path)
            else:
                known[directory.path] = properties
        self._check(known)
        # The metadata directory comes first: an interrupted format must not leave log directories without it.
        new.sort(key=lambda path: path != self._settings.metadata_directory)
        for path in new:
            cluster_id = next((one.cluster_id for one in known.values()), self._settings.ottla_cluster_id)
            try:
                known |= format_directories(
                    self._files,
                    [path],
                    metadata_directory=self._settings.metadata_directory,
                    node_id=self._settings.node_id,
                    cluster_id=cluster_id,
                    controller_endpoint=controller_endpoint,
                    ids=ids,
                    now_ms=now_ms,
                    date=date,
                )
            except LogDirFailed as error:
                self.start_without(self._locked[path], error)
            else:
                log.info("formatted %s", path)
        self.cluster_id = known[self._settings.metadata_directory].cluster_id
        for path in self._settings.log_dirs:
            directory_id = known[path].directory_id if path in known else None
            if directory_id is not None:
                self.by_id[directory_id] = self._locked[path]

    def _alive(self) -> list[LogDir]:
        return [directory for directory in self._locked.values() if not directory.has_failed]

    def start_without(self, directory: LogDir, error: StorageError) -> None:
        """Start without a directory that cannot be used. Raises ``error`` if the broker needs the directory."""
        directory.has_failed = True
        if not self.can_go_on:
            raise error
        log.error("%s is offline, and the partitions in it: %s", directory.path, error)

    @property
    def can_go_on(self) -> bool:
        """Whether the broker can work with the online directories: it needs the metadata's, and one for logs."""
        return not self.for_metadata.has_failed and not all(directory.has_failed for directory in self.for_logs)

    def id_of(self, directory: LogDir) -> bytes | None:
        """The id of a directory in the metadata log; None if it has no id, or could not be read."""
        return next((directory_id for directory_id, known in self.by_id.items() if known is directory), None)

    @property
    def online_ids(self) -> list[bytes]:
        """The ids of the log directories that can be used, in the order of ``log.dirs``."""
        return [directory_id for directory_id, directory in self.by_id.items() if not directory.has_failed]

    @property
    def for_logs(self) -> Sequence[LogDir]:
        """The directories of ``log.dirs``."""
        return [self._locked[path] for path in dict.fromkeys(self._settings.log_dirs)]

    @property
    def for_metadata(self) -> LogDir:
        """The directory of the metadata log."""
        return self._locked[self._settings.metadata_directory]

    def begin_loading(self) -> bool:
        """Remove the clean-shutdown markers; True if all directories had one. Raises LogDirFailed."""
        for directory in self._alive():
            try:
                directory.begin_loading()
            except LogDirFailed as error:
                self.start_without(directory, error)
        return all(directory.was_clean for directory in self._alive())

    def release(self, *, broker_epoch: int, is_clean: bool) -> bool:
        """Unlock all directories. If everything was closed in order, the clean-shutdown marker is written last.

        False if a directory could not be left in order.
        """
        all_clean = is_clean
        for path, directory in self._locked.items():
            all_clean = all_clean and directory.is_in_order and not directory.has_failed
            try:
                directory.leave(clean=is_clean, broker_epoch=broker_epoch)
            except StorageError as error:
                all_clean = False
                if not directory.has_failed:
                    log.error("%s could not be closed cleanly: %s", path, error)
        self._locked.clear()
        return all_clean

    def _check(self, known: Mapping[str, MetaProperties]) -> None:
        """Check that all directories belong to this node and to one cluster. Raises WrongDirectory."""
        first: tuple[str, MetaProperties] | None = None
        wanted = self._settings.ottla_cluster_id
        for path, properties in known.items():
            if properties.node_id != self._settings.node_id:
                raise WrongDirectory(
                    f"{path} belongs to node {properties.node_id}, and node.id is {self._settings.node_id}"
                )
            if wanted is not None and properties.cluster_id != wanted:
                raise WrongDirectory(
                    f"{path} belongs to cluster {properties.cluster_id}, and ottla.cluster.id is {wanted}"
                )
            first = first or (path, properties)
            if properties.cluster_id != first[1].cluster_id:
                raise WrongDirectory(
                    f"{path} belongs to cluster {properties.cluster_id}, {first[0]} to {first[1].cluster_id}"
                )
