"""What the file system tells of a directory's entries, and of its own size."""

from typing import Final, NamedTuple


class DirectoryEntry(NamedTuple):
    """A name in a directory, with the kind and size of the file. For a link these are of what it leads to."""

    name: str
    is_directory: bool
    size: int
    mtime_ms: int
    oddity: str = ""
    """What the entry is if neither a file nor a directory, such as "a pipe"; empty for a file or a directory."""

    @property
    def is_file(self) -> bool:
        """Whether the entry is an ordinary file."""
        return not self.is_directory and not self.oddity

    @property
    def kind(self) -> str:
        """What the entry is, as a noun for a sentence."""
        return self.oddity or ("a directory" if self.is_directory else "a file")


LARGEST_SHARE: Final = 8
"""The part of a file system that is kept free at most, as its inverse: on a small one, 64 MiB could be all there is."""


class DiskSpace(NamedTuple):
    """The size of a file system; zeros where it does not tell."""

    total_bytes: int
    usable_bytes: int
    """Bytes that an ordinary user can still write."""

    def reserve(self, wanted_bytes: int) -> int:
        """The bytes to keep free where ``wanted_bytes`` are wanted: an eighth of the file system at most."""
        return min(wanted_bytes, self.total_bytes // LARGEST_SHARE)
