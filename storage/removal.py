"""Files that are out of use and are removed from disk once `file.delete.delay.ms` has passed."""

from collections.abc import Sequence

from storage.files import FileSystem


class PendingRemoval:
    """Renamed files, or a renamed directory, to be removed later. After a crash the next start finds them by name."""

    __slots__ = ("_files", "delay_ms", "paths")

    def __init__(self, files: FileSystem, paths: Sequence[str], delay_ms: int) -> None:
        self._files = files
        self.paths = tuple(paths)
        self.delay_ms = delay_ms
        """How long to wait before `perform`, in milliseconds from when this was made."""

    def __repr__(self) -> str:
        return f"PendingRemoval({', '.join(self.paths)}, delay_ms={self.delay_ms})"

    def perform(self) -> None:
        """Remove the files. May block for long, and may run in another thread. Raises LogDirFailed."""
        for path in self.paths:
            if path.endswith("-delete"):
                self._files.remove_tree(path)
            else:
                self._files.remove(path)
