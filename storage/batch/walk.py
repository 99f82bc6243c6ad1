"""Walking batch after batch: what counts as a batch, what a walk does where none is, and the search for the next one.

    what a walk asks, in this order            fault    what it says otherwise
    61 bytes are left                          HEADER   the last 30 bytes are less than the header of a batch
    the magic is 2                             MAGIC    there is magic 7 where a batch of magic 2 is expected
    the length counts a header at least        LENGTH   the batch there says that it has 17 bytes, fewer than its header
    the batch ends before the bytes, or there  TORN     the batch there has 80 of its 91 bytes
    the CRC is right, if the policy says so    CRC      the batch there names the CRC 5ee6c59b, and its bytes have ...
    the offsets follow, if it says so          OFFSETS  the batch there has offsets 3 to 5, expected some from 8 to ...

A header of zeros is said to be zeros, whatever the fault.

Four loops ask the same by themselves, because they make no object for a batch. One of 90 bytes takes this walk 1.05 us,
or 0.6 us without its CRC; `storage.segment_walk` takes 0.33 us, `pipeline.reading.scan` 0.37 us,
`storage.check.log_check` 0.42 us, and `Segment.locate`, which checks no CRC, 0.16 us (CPython 3.11, not compiled).
`tests/unit/storage/test_same_walks.py` and `tests/pipeline/reading/test_same_walk.py` hold them against each other.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple

from storage.batch.record_batch import (
    HEADER_SIZE,
    LAYOUT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    Buffer,
    computed_crc,
    header_struct,
    read_header,
)
from storage.errors import CorruptBatch

CHUNK_BYTES: Final = 1 << 20

EVERYTHING: Final = 2**63 - 1
"""A durable offset for bytes that are not to be cut anywhere."""

_SEARCH_BYTES: Final = 1 << 20

Read = Callable[[int, int], bytes]
"""Given how many bytes, and from which position on: these bytes, fewer where they end. `storage.files.File.pread`."""

PassOver = Callable[[bytes, int, int], int]
"""Given a chunk, where in it a batch begins, and the position of that batch: where in the chunk the first batch begins
that has not been dealt with, or the rest of the last one."""


class BatchFault(Enum):
    """Why what stands at a place is no batch; see the head of this module."""

    HEADER = auto()
    MAGIC = auto()
    LENGTH = auto()
    TORN = auto()
    CRC = auto()
    OFFSETS = auto()


class AtFault(Enum):
    """What a walk does at the first place where no batch is."""

    STOP = auto()
    """It ends there, and says why."""
    RAISE = auto()
    """It raises CorruptBatch. Where the bytes only end before the batch does, it stops."""
    STEP_OVER = auto()
    """It goes on behind the batch if the header fits to what is before it and behind it, else at the next whole batch;
    where there is none, it stops."""


class WalkPolicy(NamedTuple):
    """What a walk asks of each batch beside magic and length, and what it does where one is missing."""

    checks_crc: bool = False
    """Whether a batch's CRC must be right. Needs the records."""
    checks_offsets: bool = False
    """Whether a batch's offsets must rise, behind those of the batch before it and up to `most_offset`."""
    reads_records: bool = True
    """Whether a batch is given whole. Otherwise the walk steps from header to header, and gives the headers."""
    at_fault: AtFault = AtFault.STOP


WHOLE: Final = WalkPolicy()
"""Whole batches, up to the first that is none."""


class StoredBatch(NamedTuple):
    """A batch as it stands in a file."""

    header: BatchHeader
    position: int
    data: memoryview
    """All of it, header included, or the header alone; read-only, and good for as long as it is held."""


_unpack = header_struct(*LAYOUT).unpack_from
# Tuples as their classes make them, without a function around that.
_header = partial(tuple.__new__, BatchHeader)
_stored = partial(tuple.__new__, StoredBatch)


def in_memory(data: Buffer) -> Read:
    """Reads what is in memory already."""
    return lambda size, position: bytes(data[position : position + size])


class BatchWalk:
    """A walk under way. Iterating over it gives the batches one by one.

    A loop of its own calls `read_chunk`, finds out how many bytes of that are batches, and says so to `took`.
    """

    __slots__ = (
        "_chunk_bytes", "_first_chunk_bytes", "_pass_over", "_policy", "_read", "chunk", "damage", "durable_offset",
        "end", "fault", "header", "lost", "most_offset", "next_offset", "position", "problem",
    )  # fmt: skip

    def __init__(
        self, read: Read, position: int, end: int, policy: WalkPolicy = WHOLE, *, next_offset: int = 0,
        most_offset: int = EVERYTHING, durable_offset: int = EVERYTHING, chunk_bytes: int = CHUNK_BYTES,
        pass_over: PassOver | None = None,
    ) -> None:  # fmt: skip
        """``next_offset`` and ``most_offset`` bound the offsets of all batches, where the policy checks them. From
        ``durable_offset`` on the walk stops where it would step over. ``pass_over`` deals with many batches at once:
        those are neither looked at nor given. Positions, and ``chunk_bytes`` to read at once, are in bytes."""
        self._read = read
        self.position = position
        """Everything before it has been dealt with. It goes on by whole chunks."""
        self.end = end
        """Where to stop, in bytes; less than was asked for if there are fewer."""
        self._policy = policy
        self.next_offset = next_offset
        """Behind the last batch, where offsets are checked."""
        self.most_offset = most_offset
        self.durable_offset = durable_offset
        self._first_chunk_bytes = self._chunk_bytes = max(chunk_bytes, HEADER_SIZE)
        self._pass_over = pass_over
        self.chunk = b""
        """What was read last."""
        self.fault: BatchFault | None = None
        """Why the walk stopped before the end."""
        self.header: BatchHeader | None = None
        """What stands there, if there are bytes enough for a header."""
        self.problem = ""
        """The fault in words."""
        self.damage: list[str] = []
        """What was stepped over, a sentence each."""
        self.lost: list[tuple[int, int]] = []
        """The offsets that were stepped over: first, and behind the last."""

    def __iter__(self) -> Iterator[StoredBatch]:
        policy, pass_over = self._policy, self._pass_over
        checks_crc, checks_offsets, reads_records = policy.checks_crc, policy.checks_offsets, policy.reads_records
        while chunk := self.read_chunk():
            start, left = self.position, len(chunk)
            room = left if reads_records else self.end - start
            view = memoryview(chunk)
            at = 0
            while True:
                if pass_over is not None:
                    at = pass_over(chunk, at, start + at)
                if left - at < HEADER_SIZE:
                    break
                header = _header(_unpack(chunk, at))
                size = header.batch_length + LOG_OVERHEAD
                if header.magic != MAGIC or size < HEADER_SIZE or size > room - at:
                    break
                if checks_crc and computed_crc(view, at, size) != header.crc:
                    break
                if checks_offsets:
                    if not self.next_offset <= header.base_offset <= header.last_offset <= self.most_offset:
                        break
                    self.next_offset = header.next_offset
                yield _stored((header, start + at, view[at : at + (size if reads_records else HEADER_SIZE)]))
                at += size
            self.took(at)

    def read_chunk(self) -> bytes:
        """Bytes from `position` on, where a batch should begin; none if the walk is over."""
        if self.fault is not None or self.position >= self.end:
            return b""
        wanted = min(self._chunk_bytes, self.end - self.position)
        self.chunk = chunk = self._read(wanted, self.position)
        if len(chunk) < wanted:
            self.end = self.position + len(chunk)
        return chunk

    def took(self, size: int) -> bool:
        """The first ``size`` bytes of the chunk have been dealt with; behind them stands no whole batch.

        Returns whether the next batch had to be searched for. Raises CorruptBatch if the policy says so.
        """
        self.position += size
        left = len(self.chunk) - size
        if self.position >= self.end or (size and left < HEADER_SIZE):
            return False
        header = _header_at(self._read, self.position, self.end)
        fault = _shape_fault(header, self.end - self.position)
        if fault is None and header is not None:
            if header.size > left and self._policy.reads_records:
                self._chunk_bytes = max(self._chunk_bytes, header.size)
                return False
            has_crc = not self._policy.checks_crc or computed_crc(self.chunk, size, header.size) == header.crc
            fault = BatchFault.OFFSETS if has_crc else BatchFault.CRC
        return fault is not None and self._meet(fault, header)

    def _meet(self, fault: BatchFault, header: BatchHeader | None) -> bool:
        """Do what the policy says about a place where no batch is; the answer is that of `took`."""
        problem = self._sentence(fault, header)
        at_fault = self._policy.at_fault
        if at_fault is AtFault.RAISE and fault not in (BatchFault.HEADER, BatchFault.TORN):
            raise CorruptBatch(f"position {self.position}: {problem}")
        self._chunk_bytes = self._first_chunk_bytes
        if at_fault is AtFault.STEP_OVER and self.next_offset < self.durable_offset:
            read, end, most_offset = self._read, self.end, self.most_offset
            from_offset, from_position = self.next_offset, self.position
            if header is not None and _is_credible(read, header, from_position, end, from_offset, most_offset):
                self.position += header.size
                self.next_offset = header.next_offset
                self.lost.append((from_offset, header.next_offset))
                self.damage.append(
                    f"position {from_position}, offsets {from_offset} to {header.last_offset}: {problem}; it is left so"
                )
                return False
            found = find_batch(read, from_position + 1, end, end, next_offset=from_offset, most_offset=most_offset)
            if found is not None:
                self.position, following = found
                if following.base_offset > from_offset:
                    self.lost.append((from_offset, following.base_offset))
                lost = f"offsets {from_offset} to {following.base_offset - 1} cannot be read, "
                self.damage.append(
                    f"position {from_position}: {problem}; {lost if following.base_offset > from_offset else ''}"
                    f"the next batch stands at position {self.position}"
                )
                return True
        self.fault, self.header, self.problem = fault, header, problem
        return False

    def _sentence(self, fault: BatchFault, header: BatchHeader | None) -> str:
        left = self.end - self.position
        if header is None:
            return f"the last {left} bytes are less than the header of a batch"
        if not any(header):
            return "there are zeros where a batch is expected"
        match fault:
            case BatchFault.MAGIC:
                return f"there is magic {header.magic} where a batch of magic {MAGIC} is expected"
            case BatchFault.LENGTH:
                return f"the batch there says that it has {header.size} bytes, fewer than its header"
            case BatchFault.TORN:
                return f"the batch there has {left} of its {header.size} bytes"
            case BatchFault.CRC:
                crc = computed_crc(self._read(header.size, self.position), 0, header.size)
                return f"the batch there names the CRC {header.crc:08x}, and its bytes have {crc:08x}"
            case _:
                return (
                    f"the batch there has offsets {header.base_offset} to {header.last_offset}, "
                    f"expected some from {self.next_offset} to {self.most_offset}"
                )


def find_batch(
    read: Read, position: int, stop: int, end: int, *, next_offset: int, most_offset: int
) -> tuple[int, BatchHeader] | None:
    """The first whole batch that begins from ``position`` on and before ``stop``: where, and its header.

    Its CRC must be right, its offsets must lie from ``next_offset`` to ``most_offset``, and where it ends, another must
    begin or ``end`` be.
    """
    while position < stop and end - position >= HEADER_SIZE:
        chunk = read(min(_SEARCH_BYTES, end - position), position)
        last_header = min(len(chunk) - HEADER_SIZE, stop - position - 1)
        at = chunk.find(MAGIC, MAGIC_POSITION) - MAGIC_POSITION
        while 0 <= at <= last_header:
            header = read_header(chunk, at)
            if _is_credible(read, header, position + at, end, next_offset, most_offset):
                data = read(header.size, position + at)
                if computed_crc(data, 0, header.size) == header.crc:
                    return position + at, header
            at = chunk.find(MAGIC, at + MAGIC_POSITION + 1) - MAGIC_POSITION
        position += max(last_header + 1, 1)
    return None


def _shape_fault(header: BatchHeader | None, left: int) -> BatchFault | None:
    """Why these are no ``left`` bytes that begin with a whole batch."""
    if header is None:
        return BatchFault.HEADER
    if header.magic != MAGIC:
        return BatchFault.MAGIC
    if header.size < HEADER_SIZE:
        return BatchFault.LENGTH
    return BatchFault.TORN if header.size > left else None


def _is_credible(read: Read, header: BatchHeader, position: int, end: int, next_offset: int, most_offset: int) -> bool:
    """Whether a batch's header fits to what is before it and to what is behind it, so that its place is known."""
    if (
        _shape_fault(header, end - position) is not None
        or not next_offset <= header.base_offset <= header.last_offset <= most_offset
    ):
        return False
    behind = position + header.size
    if behind == end:
        return True
    following = _header_at(read, behind, end)
    return (
        following is not None
        and _shape_fault(following, following.size) is None
        and following.base_offset >= header.next_offset
    )


def _header_at(read: Read, position: int, end: int) -> BatchHeader | None:
    """What stands at a position, if it is as long as a header."""
    data = read(min(HEADER_SIZE, end - position), position)
    return read_header(data) if len(data) == HEADER_SIZE else None
