"""Reading bytes that are not in the page cache in a thread, so that the event loop does not wait for the disk.

A disk may take ten milliseconds to find a page, and the loop would stand still. So a fetch is read
``in_memory_only``: the headers that a search needs come by `preadv2(RWF_NOWAIT)`, which costs what `pread` costs and
fails where the disk would have to be asked, and one byte of what is to be sent is looked at in the same way. What is
not there comes out as `NotInMemory`: have its `ReadAhead` performed in a thread, then read again, in the ordinary way.

    region asked for | READ_AHEAD_BYTES behind it
    waited for       | the disk is asked for it: a reader who follows looks whether it has come, and asks for more when
                     | he is half through
"""

from collections.abc import Sequence
from typing import Final

from storage.errors import StorageError
from storage.files import File, FileRegion

READ_AHEAD_BYTES: Final = 1 << 20
"""Bytes ahead of a reader that are read ahead, and checked for in the page cache."""

MOST_AHEAD_BYTES: Final = 16 << 20
"""Bytes read ahead in all, at most, behind the ranges that one fetch waits for."""

_STEP_BYTES: Final = 128 * 1024
"""Bytes that every system reads for one request to read ahead."""

_NOTHING: Final = -1
"""The value of `File.asked_to` after a page was missing, until the next read-ahead."""


class ReadAhead:
    """A range of a file that must be read from the disk, and the range behind it that is read ahead."""

    __slots__ = ("_ahead_bytes", "file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size
        self._ahead_bytes = READ_AHEAD_BYTES

    def perform(self) -> None:
        """Read the range into the page cache and start to read ahead behind it. Blocks: for a thread.

        Raises LogDirFailed.
        """
        file, end = self.file, self.position + self.size
        for position in range(self.position, end + self._ahead_bytes, _STEP_BYTES):
            file.will_need(_STEP_BYTES, position)
        for position in (*range(self.position, end, _STEP_BYTES), end - 1):
            file.pread(1, position)

    def done(self) -> None:
        """Note that the read-ahead has been performed."""
        self.file.in_memory_to = end = self.position + self.size
        self.file.asked_to = end + self._ahead_bytes // 2

    @staticmethod
    def perform_all(together: "Sequence[ReadAhead]") -> None:
        """Perform all read-aheads that one fetch waits for. Blocks; raises LogDirFailed."""
        for one in together:
            one._ahead_bytes = min(READ_AHEAD_BYTES, MOST_AHEAD_BYTES // len(together))
            one.perform()


class NotInMemory(StorageError):
    """The bytes to read are not in the page cache."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{size} bytes at {position} of {file.path} are on the disk only")
        self.ahead = ReadAhead(file, position, size)
        # The failed read has made the system fetch its page, so that a second look would prove nothing.
        file.in_memory_to = file.asked_to = _NOTHING


def read_in_memory(file: File, size: int, position: int) -> bytes | bytearray:
    """Read like `File.pread`, from the page cache only. Raises NotInMemory."""
    found = file.pread_in_memory(size, position)
    if found is None:
        raise NotInMemory(file, position, size)
    return found


def look_ahead(region: FileRegion, limit: int) -> None:
    """Raise NotInMemory unless the page cache seems to have the region and the range that a reader asks for next.

    That range ends at ``limit``, the end of the file, at the latest, and need not be there if it is read ahead."""
    file, end = region.file, region.position + region.size
    if end <= file.in_memory_to:
        return
    is_asked = end <= file.asked_to
    looked_to = end if is_asked else min(end + READ_AHEAD_BYTES, limit)
    if file.asked_to == _NOTHING or file.pread_in_memory(1, looked_to - 1) is None:
        raise NotInMemory(file, region.position, region.size)
    file.in_memory_to = looked_to
    if not is_asked:
        file.asked_to = looked_to
