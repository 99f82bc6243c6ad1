"""LogDirs: locks the data directories of this node, reads their ids, and formats new ones."""

import logging
from collections.abc import Collection, Sequence

from broker.metadata.image.records import Record
from broker.raft.formatting import format_directories
from broker.runtime.clock import Ids
from broker.server.log_dir_checks import (
    check_identities,
    check_is_new,
    check_membership,
    check_metadata_log,
    check_place_of_metadata_log,
    mark_membership,
)
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from config.release_versions import METADATA_CHANGES_AT, NEWEST, ReleaseVersion
from storage.checkpoints import MetaProperties, format_id
from storage.errors import LogDirFailed, StorageError
from storage.files import FileSystem
from storage.log_dir import LogDir

log = logging.getLogger(__name__)


class LogDirs:
    """The directories of ``log.dirs``, and ``metadata.log.dir`` where it is not among them; locked until `release`."""

    def __init__(self, files: FileSystem, settings: BrokerSettings, first_records: Sequence[Record] = ()) -> None:
        """``first_records``: what a cluster that is made here has beside its features."""
        self._files = files
        self._settings = settings
        self._release_version = settings.ottla_release_version or NEWEST
        self._first_records = first_records
        self._locked: dict[str, LogDir] = {}
        self._properties: dict[str, MetaProperties] = {}
        """The `meta.properties` by the path of their directory."""
        self.cluster_id = ""
        self.by_id: dict[bytes, LogDir] = {}
        """Log directories by their id in the metadata log, once `complete_ids` was called."""

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

    @property
    def is_new(self) -> bool:
        """Whether no directory belongs to a cluster yet. Raises WrongDirectory, LogDirFailed."""
        return all(directory.read_properties() is None for directory in self._alive())

    def identify(
        self, ids: Ids, now_ms: int, date: str, controller_endpoint: Listener, *, cluster_id: str | None = None
    ) -> None:
        """Read the directories' meta.properties, and format the empty ones. Raises WrongDirectory, LogDirFailed.

        ``cluster_id`` is that of the controllers, which is asked for where every directory of a member is new.
        """
        is_member = self._settings.is_member
        check_membership(self._files, self._settings.metadata_directory, is_member=is_member)
        known: dict[str, MetaProperties] = {}
        new: list[str] = []
        for directory in self._alive():
            try:
                if not is_member:
                    check_place_of_metadata_log(self._files, directory, self._settings.metadata_directory)
                properties = directory.read_properties()
                if properties is None:
                    check_is_new(directory)
            except LogDirFailed as error:
                self.start_without(directory, error)
                continue
            if properties is None:
                new.append(directory.path)
            else:
                known[directory.path] = properties
        check_identities(known, self._settings)
        if not is_member:
            check_metadata_log(self._files, known, self._settings.metadata_directory, self._alive())
        # The metadata directory comes first: an interrupted format must not leave log directories without it.
        new.sort(key=lambda path: path != self._settings.metadata_directory)
        for path in new:
            id_of_new = next((one.cluster_id for one in known.values()), self._settings.ottla_cluster_id or cluster_id)
            try:
                known |= format_directories(
                    self._files,
                    [path],
                    metadata_directory=self._settings.metadata_directory,
                    node_id=self._settings.node_id,
                    cluster_id=id_of_new,
                    controller_endpoint=None if is_member else controller_endpoint,
                    ids=ids,
                    now_ms=now_ms,
                    date=date,
                    release_version=self._release_version,
                    first_records=self._first_records,
                )
            except LogDirFailed as error:
                self.start_without(self._locked[path], error)
            else:
                log.info("formatted %s", path)
                if path == self._settings.metadata_directory and not is_member:
                    _log_what_opens(self._release_version)
        if self._first_records and self._settings.metadata_directory not in new:
            log.info("--add-scram has no effect, since %s is not new", self._settings.metadata_directory)
        if is_member:
            mark_membership(self._files, self._settings.metadata_directory)
        self._properties = {path: known[path] for path in self._locked if path in known}
        self.cluster_id = known[self._settings.metadata_directory].cluster_id

    @property
    def metadata_directory_id(self) -> bytes | None:
        """The id of ``metadata.log.dir`` in its `meta.properties`; Kafka before 3.7 has written none."""
        return self._properties[self._settings.metadata_directory].directory_id

    def complete_ids(self, ids: Ids, date: str) -> None:
        """Give every directory without an id a new id, as Kafka does (KIP-858). Raises DiskFull, LogDirFailed."""
        for path, properties in self._properties.items():
            directory = self._locked[path]
            directory_id = properties.directory_id
            if directory_id is None:
                if directory.has_failed:
                    continue
                directory_id = ids.uuid()
                completed = properties._replace(directory_id=directory_id)
                try:
                    directory.write_properties(completed, date)
                except LogDirFailed as error:
                    self.start_without(directory, error)
                    continue
                self._properties[path] = completed
                log.info("%s had no directory.id, it is %s now", path, format_id(directory_id))
            if path in self._settings.log_dirs:
                self.by_id[directory_id] = directory

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

    def cordon(self, paths: Collection[str]) -> None:
        """Let exactly these directories of ``log.dirs`` take no new replicas (KIP-1066)."""
        for directory in self.for_logs:
            directory.is_cordoned = directory.path in paths

    @property
    def cordoned_ids(self) -> list[bytes]:
        """The ids of the log directories that can be used and take no new replicas, in the order of ``log.dirs``."""
        return [directory_id for directory_id in self.online_ids if self.by_id[directory_id].is_cordoned]

    @property
    def for_logs(self) -> Sequence[LogDir]:
        """The directories of ``log.dirs``."""
        return [self._locked[path] for path in dict.fromkeys(self._settings.log_dirs)]

    @property
    def for_metadata(self) -> LogDir:
        """The directory of the metadata log."""
        return self._locked[self._settings.metadata_directory]

    @property
    def last_broker_epoch(self) -> int:
        """The broker epoch of the last run if all its directories were left in order, else -1. Raises LogDirFailed.

        Asked before `begin_loading`.
        """
        epochs = {directory.last_broker_epoch for directory in self._alive()}
        epoch = epochs.pop() if len(epochs) == 1 else None
        return -1 if epoch is None else epoch

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


def _log_what_opens(version: ReleaseVersion) -> None:
    log.info(
        "metadata.version %d (%s)%s: Kafka %s and later open the directory; a new one for an older Kafka is made with "
        "--release-version, such as 4.0",
        version.metadata_version,
        version.name,
        ", which cannot be lowered" if version.metadata_version in METADATA_CHANGES_AT else "",
        version.oldest_kafka,
    )
