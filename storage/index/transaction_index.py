"""`<base offset>.txnindex`: the transactions that were aborted by a marker in this segment.

    i16 version (0)
    i64 producer id
    i64 first offset          of the transaction
    i64 last offset           of the ABORT marker
    i64 last stable offset    of the log right after the marker

Markers are appended in order, so last offsets rise. Most segments have none, and then there is no file.
"""

from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from storage.errors import CorruptIndex, DiskFull, TooManyOpenFiles
from storage.files import File, FileSystem
from storage.open_files import OpenFiles

ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction whose records read_committed consumers must not see."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment. The file is made with the first entry."""

    __slots__ = ("__weakref__", "_file", "_files", "_open_files", "_unwritten", "base_offset", "is_confirmed",
                 "path", "size")  # fmt: skip

    def __init__(
        self, files: FileSystem, open_files: OpenFiles, path: str, *, base_offset: int, file_bytes: int
    ) -> None:
        self._files = files
        self._open_files = open_files
        self.path = path
        self.base_offset = base_offset
        self.size = max(file_bytes, 0)
        """Bytes of valid entries; 0 where there is no file."""
        self.is_confirmed = not self.size
        """Whether each entry has been compared with the marker it names, or was written by this process."""
        self._file: File | None = None
        self._unwritten: list[AbortedTransaction] = []

    def file(self) -> File | None:
        """The open file, for callers that hold it open; None without a file."""
        if self._file is None and self.size:
            self._file = self._files.open_log(self.path)
            self._open_files.used(self)
        return self._file

    def let_go(self) -> None:
        """Drop the open file; it is opened again when needed."""
        self._file = None

    def close(self) -> None:
        """Drop the file for good."""
        self.let_go()
        self._open_files.forget(self)

    def append(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction. On a full disk it is kept in memory, and written when there is space."""
        self._unwritten.append(transaction)
        with suppress(DiskFull, TooManyOpenFiles):
            self.write_out()

    def write_out(self) -> None:
        """Write the entries that have found no disk space yet. Raises DiskFull, TooManyOpenFiles, LogDirFailed."""
        while self._unwritten:
            file = self.file()
            if file is None:
                self._file = file = self._files.open_log(self.path, create=not self._files.exists(self.path))
                self._open_files.used(self)
            file.pwrite(ENTRY.pack(_VERSION, *self._unwritten[0]), self.size)
            self.size += ENTRY.size
            del self._unwritten[0]

    def __bool__(self) -> bool:
        """Whether the segment has aborted transactions."""
        return self.size > 0 or bool(self._unwritten)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        """All transactions. Raises CorruptIndex."""
        for version, *fields in ENTRY.iter_unpack(self._content()):
            if version != _VERSION:
                raise CorruptIndex(f"{self.path} has an entry of version {version}, expected {_VERSION}")
            yield AbortedTransaction(*fields)
        yield from self._unwritten

    def _content(self) -> bytes:
        """The bytes of all entries in the file. Raises CorruptIndex where the file has fewer than it had."""
        try:
            file = self.file()
        except FileNotFoundError:
            content = b""
        else:
            content = b"" if file is None else file.pread(self.size, 0)
        if len(content) < self.size:
            self.is_confirmed = False  # it is made anew before it is used again
            raise CorruptIndex(
                f"{self.path} has {len(content)} bytes, expected {self.size}: another process has cut it"
            )
        return content

    def check(self) -> None:
        """Check that entries are whole, of this segment, in order and possible. Raises CorruptIndex."""
        if self.size % ENTRY.size:
            raise CorruptIndex(f"{self.path} has {self.size} bytes, expected a multiple of {ENTRY.size}")
        previous = self.base_offset - 1
        for transaction in self:
            _, first_offset, last_offset, last_stable_offset = transaction
            if last_offset <= previous:
                raise CorruptIndex(f"{self.path} has an entry for the marker at offset {last_offset} behind {previous}")
            if not (0 <= first_offset < last_offset and 0 <= last_stable_offset <= last_offset + 1):
                raise CorruptIndex(
                    f"{self.path} has a transaction from offset {first_offset} to {last_offset} that left the last "
                    f"stable offset at {last_stable_offset}"
                )
            previous = last_offset

    def cut_from(self, offset: int) -> None:
        """Forget the transactions whose marker is at or above ``offset``."""
        kept = [transaction for transaction in self if transaction.last_offset < offset]
        self.reset()
        self._unwritten = kept
        self.write_out()

    def reset(self) -> None:
        """Forget all transactions and remove the file; a file that is only cut would be empty, and never synced."""
        if self.size:
            self.let_go()
            self._files.remove(self.path)
        self.size = 0
        self.is_confirmed = True
        self._unwritten.clear()
