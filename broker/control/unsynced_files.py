"""UnsyncedFiles: files of a test, which nobody needs after a power cut."""

from storage.files import File, FileSystem


class UnsyncedFile(File):
    """A file that is never flushed. What was written is in the page cache, and survives the process."""

    def fsync(self) -> None:
        """Do nothing: flushing takes a disk up to 40 ms, and a start of a broker does it nine times."""


class UnsyncedFiles(FileSystem):
    """The machine's own file system without its flushes."""

    def _file(self, path: str, fd: int) -> File:
        return UnsyncedFile(path, fd)

    def fsync_directory(self, path: str) -> None:
        """Do nothing; see `UnsyncedFile.fsync`."""
