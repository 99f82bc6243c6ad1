"""A cleaned copy takes the place of the segments that it was made of, in steps of which a crash may leave any.

    1  prepare       the copy's files, which are on disk, are renamed from `.cleaned` to `.swap`
    2  Log.swap_in   the segments' files are renamed to `.deleted`; readers get the copy from now on
    3  sync          these names are on disk
    4  Log.end_swap  the copy's files lose their suffix

After step 1 and before step 4 the next start puts the copy in place (`storage.unfinished`, and Apache Kafka likewise);
before step 1 is done it removes the copy. The directory is synced in between, so that a power cut cannot leave the
copy under its own name beside a segment that it contains.
"""

from storage.errors import FilesRemoved
from storage.file_names import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, offset_in
from storage.files import FileSystem
from storage.segment import Segment


class SegmentSwap:
    """A copy and the segments that it replaces. `prepare` and `sync` may run in another thread."""

    __slots__ = ("_files", "copy", "replaced")

    def __init__(self, files: FileSystem, copy: Segment, replaced: list[Segment]) -> None:
        self._files = files
        self.copy = copy
        self.replaced = replaced
        """Neighbours, by base offset; the copy has the base offset of the first."""

    def prepare(self) -> None:
        """Let the copy count from now on. Raises LogDirFailed."""
        self._files.fsync_directory(self.copy.files.directory)
        self._rename(SWAP_SUFFIX)
        self.sync()

    def end(self) -> None:
        """Give the copy its own name. Raises LogDirFailed."""
        self._rename("")

    def _rename(self, suffix: str) -> None:
        try:
            self.copy.files.rename(suffix)
        except FileNotFoundError as error:
            raise FilesRemoved(f"{error.filename} is gone: another process has removed it") from error

    def sync(self) -> None:
        """Wait until the names of all files are on disk. Raises LogDirFailed."""
        self._files.fsync_directory(self.copy.files.directory)

    def give_up(self) -> None:
        """Remove the copy, which has not been swapped in."""
        self.copy.files.discard()


def remove_copies(files: FileSystem, directory: str) -> None:
    """Remove the `.cleaned` files that a cleaning round has left which did not come to its end. Raises LogDirFailed.

    Copies of a later round may begin behind them, and would not count (see `storage.unfinished`).
    """
    for entry in files.list_directory(directory):
        if any(offset_in(entry.name, suffix + CLEANED_SUFFIX) is not None for suffix in SEGMENT_SUFFIXES):
            files.remove(f"{directory}/{entry.name}")
