"""The data directories of this node: locked, known by their ids, formatted if they are new."""

import logging
from collections.abc import Mapping, Sequence

from broker.clock import Ids
from broker.metadata.formatting import format_directories
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from storage.checkpoints import MetaProperties
from storage.errors import WrongDirectory
from storage.files import FileSystem
from storage.log_dir import LogDir

log = logging.getLogger(__name__)


class Directories:
    """``log.dirs``, and ``metadata.log.dir`` where it is none of them; locked as long as this lives."""

    def __init__(self, files: FileSystem, settings: BrokerSettings) -> None:
        self._files = files
        self._settings = settings
        self._locked: dict[str, LogDir] = {}
        self.cluster_id = ""
        self.by_id: dict[bytes, LogDir] = {}
        """Log directories by the id that the metadata log knows them by; those without one are missing here."""

    def lock(self) -> None:
        """Take every directory. Raises DirectoryLocked, LogDirFailed; what was taken stays so until `release`."""
        for path in dict.fromkeys((*self._settings.log_dirs, self._settings.metadata_directory)):
            self._locked[path] = LogDir.lock(self._files, path)

    def identify(self, ids: Ids, now_ms: int, date: str, controller_endpoint: Listener) -> None:
        """Read whose directories they are, and format those that are nobody's. Raises WrongDirectory, LogDirFailed."""
        found = {path: directory.read_properties() for path, directory in self._locked.items()}
        known = {path: properties for path, properties in found.items() if properties is not None}
        self._check(known)
        new = [path for path, properties in found.items() if properties is None]
        if new:
            cluster_id = next((properties.cluster_id for properties in known.values()), None)
            known |= format_directories(
                self._files,
                new,
                metadata_directory=self._settings.metadata_directory,
                node_id=self._settings.node_id,
                cluster_id=cluster_id,
                controller_endpoint=controller_endpoint,
                ids=ids,
                now_ms=now_ms,
                date=date,
            )
            log.info("formatted %s", ", ".join(new))
        self.cluster_id = next(iter(known.values())).cluster_id
        for path in self._settings.log_dirs:
            directory_id = known[path].directory_id
            if directory_id is not None:
                self.by_id[directory_id] = self._locked[path]

    @property
    def for_logs(self) -> Sequence[LogDir]:
        """The directories of ``log.dirs``."""
        return [self._locked[path] for path in dict.fromkeys(self._settings.log_dirs)]

    @property
    def for_metadata(self) -> LogDir:
        """The directory of the metadata log."""
        return self._locked[self._settings.metadata_directory]

    def begin_loading(self) -> bool:
        """Take the clean-shutdown markers away; True if all of them were there."""
        for directory in self._locked.values():
            directory.begin_loading()
        return all(directory.was_clean for directory in self._locked.values())

    def release(self, *, broker_epoch: int, is_clean: bool) -> None:
        """Give all directories back; the marker is the last thing written, where everything was closed in order."""
        for directory in self._locked.values():
            directory.leave(clean=is_clean, broker_epoch=broker_epoch)
        self._locked.clear()

    def _check(self, known: Mapping[str, MetaProperties]) -> None:
        """All directories belong to this node and to one cluster. Raises WrongDirectory."""
        first: tuple[str, MetaProperties] | None = None
        for path, properties in known.items():
            if properties.node_id != self._settings.node_id:
                raise WrongDirectory(
                    f"{path} belongs to node {properties.node_id}, and node.id is {self._settings.node_id}"
                )
            first = first or (path, properties)
            if properties.cluster_id != first[1].cluster_id:
                raise WrongDirectory(
                    f"{path} belongs to cluster {properties.cluster_id}, {first[0]} to {first[1].cluster_id}"
                )
