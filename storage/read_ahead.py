"""Reading what the page cache has lost, without holding up who asks for it.

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
"""How far ahead of a reader the disk is asked, and looked whether it has to be."""

MOST_AHEAD_BYTES: Final = 16 << 20
"""What the disk is asked for at once behind all that one fetch waits for."""

_STEP_BYTES: Final = 128 * 1024
"""What every system reads when it is told to read ahead."""

_NOTHING: Final = -1
"""Something was missing, and nothing has been read ahead since."""


class ReadAhead:
    """A stretch of a file that has to come from the disk, and what stands behind it."""

    __slots__ = ("_ahead_bytes", "file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size
        self._ahead_bytes = READ_AHEAD_BYTES

    def perform(self) -> None:
        """Wait until the stretch is in the page cache; what stands behind it is on its way. Blocks: for a thread.

        Raises LogDirFailed.
        """
        file, end = self.file, self.position + self.size
        for position in range(self.position, end + self._ahead_bytes, _STEP_BYTES):
            file.will_need(_STEP_BYTES, position)
        for position in (*range(self.position, end, _STEP_BYTES), end - 1):
            file.pread(1, position)

    def done(self) -> None:
        """It has been performed."""
        self.file.in_memory_to = end = self.position + self.size
        self.file.asked_to = end + self._ahead_bytes // 2

    @staticmethod
    def perform_all(together: "Sequence[ReadAhead]") -> None:
        """Perform what one fetch waits for. Blocks; raises LogDirFailed."""
        for one in together:
            one._ahead_bytes = min(READ_AHEAD_BYTES, MOST_AHEAD_BYTES // len(together))
            one.perform()


class NotInMemory(StorageError):
    """The page cache has not got what is to be read."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{size} bytes at {position} of {file.path} are on the disk only")
        self.ahead = ReadAhead(file, position, size)
        # The look itself has had the system fetch the page that was looked at: a second look would prove nothing.
        file.in_memory_to = file.asked_to = _NOTHING


def read_in_memory(file: File, size: int, position: int) -> bytes | bytearray:
    """What `File.pread` gives, if the page cache has it all. Raises NotInMemory."""
    found = file.pread_in_memory(size, position)
    if found is None:
        raise NotInMemory(file, position, size)
    return found


def look_ahead(region: FileRegion, limit: int) -> None:
    """Raise NotInMemory unless the page cache seems to have the region; and where the disk has not been asked for what
    a reader asks for next, up to ``limit``, where the file ends, unless it seems to have that too."""
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
