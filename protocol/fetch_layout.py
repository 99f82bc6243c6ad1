"""Fetch without an object for each partition: where fields stand in the request of a consumer, and in its answer.

    request   [replica id] max wait, min bytes, max bytes, isolation [session id, epoch]
              topics:  name or id | entries: index [leader epoch] offset [last epoch] [log start] max bytes [tags]
              [forgotten topics] [rack] [tags]
    answer    throttle time [error, session id]
              topics:  name or id | entries: index, error, high watermark, last stable offset [log start],
                       aborted transactions [preferred replica] records [tags]

What stands in brackets depends on the version. This layout is for a request without a fetch session, forgotten topics
and tagged fields, and for an answer without errors, aborted transactions and tagged fields. The codec reads and writes
all others, and these too: `protocol.messages.fetch` is the declaration of both, and tests compare the two.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from protocol.codec import Chunk, SizedRegion
from protocol.headers import begin_response, finish_response
from protocol.messages.fetch import FetchResponse
from protocol.primitives import encode_uvarint, read_uvarint

LOG_START_SINCE: Final = 5
SESSION_SINCE: Final = 7
LEADER_EPOCH_SINCE: Final = 9
RACK_SINCE: Final = 11
PREFERRED_REPLICA_SINCE: Final = 11
FLEXIBLE_SINCE: Final = 12
TOPIC_ID_SINCE: Final = 13
REPLICA_ID_UNTIL: Final = 14

MOST_ENTRIES: Final = 10_000
"""Topics of a request, and partitions of one topic. The codec reads larger requests, and refuses what is too much."""

_CONSUMER: Final = (-1,)
_NO_SESSION: Final = (0, -1)
_NO_REPLICA: Final = -1
_NO_TAGS: Final = b"\0"
_NO_RECORDS: Final = b"\1"
_TOPIC_ID_SIZE: Final = 16
_CORRELATION_ID_AT: Final = 4

_read_length = Struct(">h").unpack_from
_read_count = Struct(">i").unpack_from
_pack_count = Struct(">i").pack
_pack_head = Struct(">i").pack
_pack_head_with_session = Struct(">ihi").pack
_pack_flexible = Struct(">ihqqqBi").pack

Entry = tuple[int, int, int, int, int, int]
"""What is asked of one partition: index, leader epoch, offset to fetch, last fetched epoch, most bytes, number of
tagged fields. An epoch that the version does not have is -1."""

FETCH_OFFSET: Final = 2
"""The place of the offset in an `Entry`."""


class TopicEntries(NamedTuple):
    """What is asked of one topic."""

    encoded: bytes
    """The topic's name with the length before it, or its id: as it stands in the request, and in the answer."""
    name: str | None
    topic_id: bytes | None
    """Since version 13, instead of the name."""
    begin: int
    """Position of the first entry in the frame."""
    partitions: int
    """Number of entries."""


AskedEntries = Sequence[tuple[TopicEntries, Sequence[Entry]]]
"""The topics of a request, each with its entries."""


class FastFetchRequest(NamedTuple):
    """A request that the fast path can read."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: Sequence[TopicEntries]
    """A topic may stand here twice, with others between: librdkafka begins with another partition every time."""
    partitions: int
    """Number of entries of all topics."""
    rack_id: str
    """Where the consumer is; empty where it does not say."""


class FetchLayout:
    """Where the fields of requests and answers stand in one version."""

    __slots__ = (
        "_entry_size",
        "_has_replica_id",
        "_has_topic_ids",
        "_head",
        "_offset_in_entry",
        "_read_entries",
        "_served",
        "_version",
        "has_session",
        "is_flexible",
        "pack_fixed",
    )

    def __init__(self, version: int) -> None:
        self._version = version
        self.is_flexible = version >= FLEXIBLE_SINCE
        self._has_topic_ids = version >= TOPIC_ID_SINCE
        self._has_replica_id = version <= REPLICA_ID_UNTIL
        self.has_session = version >= SESSION_SINCE
        self._head = Struct(">" + "i" * self._has_replica_id + "iiib" + "ii" * self.has_session)
        # Replica id, and session id and epoch, of the requests that are read here.
        self._served = (_CONSUMER if self._has_replica_id else ()), (_NO_SESSION if self.has_session else ())
        entry, self._read_entries = _entries_reader(version)
        self._entry_size = entry.size
        # Behind the partition's index, and the leader epoch where there is one.
        self._offset_in_entry = 8 if version >= LEADER_EPOCH_SINCE else 4
        self.pack_fixed = _fixed_packer(version)

    def read(self, frame: memoryview, position: int) -> FastFetchRequest | None:
        """The request whose body begins at ``position``; None if this layout is not for it, or it is malformed."""
        try:
            return self._read(frame, position)
        except (ValueError, IndexError, StructError):
            return None

    def _read(self, frame: memoryview, position: int) -> FastFetchRequest | None:
        head = self._head.unpack_from(frame, position)
        position += self._head.size
        first = 1 if self._has_replica_id else 0
        if (head[:first], head[first + 4 :]) != self._served:
            return None
        count, position = self._count(frame, position)
        if not 0 < count <= MOST_ENTRIES:
            return None
        topics: list[TopicEntries] = []
        partitions = 0
        for _ in range(count):
            begin = position
            name = topic_id = None
            if self._has_topic_ids:
                position += _TOPIC_ID_SIZE
                topic_id = bytes(frame[begin:position])
            else:
                length, position = self._length(frame, position)
                if length < 0:
                    return None
                name = str(frame[position : position + length], "utf-8")
                position += length
            encoded = bytes(frame[begin:position])
            if topics and topics[-1].encoded == encoded:
                return None  # the slow path makes one topic of both
            entries, begin = self._count(frame, position)
            position = begin + entries * self._entry_size
            if not 0 < entries <= MOST_ENTRIES or position > len(frame):
                return None
            if self.is_flexible:
                if frame[position]:
                    return None
                position += 1
            topics.append(TopicEntries(encoded, name, topic_id, begin, entries))
            partitions += entries
        rack_id = self._rack_behind(frame, position)
        if rack_id is None:
            return None
        max_wait_ms, min_bytes, max_bytes, isolation_level = head[first : first + 4]
        return FastFetchRequest(max_wait_ms, min_bytes, max_bytes, isolation_level, topics, partitions, rack_id)

    def entries(self, frame: memoryview, request: FastFetchRequest) -> AskedEntries | None:
        """The entries in the frame that ``request`` was read from; None if a partition is named twice."""
        entries = []
        named: dict[bytes, set[int]] = {}
        for topic in request.topics:
            of_topic = self._read_entries(frame[topic.begin : topic.begin + topic.partitions * self._entry_size])
            if request.partitions > 1:
                indexes = {entry[0] for entry in of_topic}
                before = named.setdefault(topic.encoded, indexes)
                if len(indexes) < topic.partitions or (before is not indexes and not before.isdisjoint(indexes)):
                    return None
                before |= indexes
            entries.append((topic, of_topic))
        return entries

    def pieces(self, frame: memoryview, topic: TopicEntries) -> Sequence[bytes]:
        """The bytes of each entry of a topic, not yet decoded."""
        return _splitter(self._entry_size, topic.partitions)(frame, topic.begin)

    def entry(self, piece: bytes) -> Entry:
        """Decode one of `pieces`."""
        return self._read_entries(memoryview(piece))[0]

    def offsets_at(self, request: FastFetchRequest) -> list[int]:
        """Positions of the offsets to fetch in the frame that ``request`` was read from, in the order of entries."""
        first, size = self._offset_in_entry, self._entry_size
        return [topic.begin + first + number * size for topic in request.topics for number in range(topic.partitions)]

    def _rack_behind(self, frame: memoryview, position: int) -> str | None:
        """The consumer's rack, which stands behind the topics, at ``position``; None if something there asks for more:
        forgotten topics or tagged fields."""
        rack_id = ""
        if self._version >= SESSION_SINCE:
            forgotten, position = self._count(frame, position)
            if forgotten:
                return None
        if self._version >= RACK_SINCE:
            length, position = self._length(frame, position)
            if length < 0:
                return None
            if length:
                rack_id = str(frame[position : position + length], "utf-8")
                position += length
        ends = not frame[position] if self.is_flexible else position <= len(frame)
        return rack_id if ends else None

    def _count(self, frame: memoryview, position: int) -> tuple[int, int]:
        """The number of elements of an array, and the position behind it."""
        if self.is_flexible:
            count, position = read_uvarint(frame, position)
            return count - 1, position
        return _read_count(frame, position)[0], position + 4

    def _length(self, frame: memoryview, position: int) -> tuple[int, int]:
        """The number of bytes of a string, and the position behind it."""
        if self.is_flexible:
            return self._count(frame, position)
        return _read_length(frame, position)[0], position + 2


@cache
def fetch_layout(version: int) -> FetchLayout:
    """The layout of one version."""
    return FetchLayout(version)


class FetchPattern:
    """The bytes that are the same in all requests of a consumer for the same partitions: all but the correlation id and
    the offsets."""

    __slots__ = ("_same", "_size", "_unpack")

    def __init__(self, frame: memoryview, offsets_at: Sequence[int]) -> None:
        """``frame``: one of these requests, from the API key on; ``offsets_at`` as from `FetchLayout.offsets_at`."""
        fields = [f">{_CORRELATION_ID_AT}si"]
        end = _CORRELATION_ID_AT + 4
        for at in offsets_at:
            fields.append(f"{at - end}sq")
            end = at + 8
        fields.append(f"{len(frame) - end}s")
        self._unpack = Struct("".join(fields)).unpack
        self._size = len(frame)
        self._same = self._unpack(frame)[::2]

    def numbers_in(self, frame: memoryview) -> tuple[int, ...] | None:
        """The correlation id, and the offset of each entry; None for a request that differs in any other byte."""
        if len(frame) != self._size:
            return None
        fields = self._unpack(frame)
        return fields[1::2] if fields[::2] == self._same else None


class FetchAnswer:
    """An answer that is being written: topics, and below each what its partitions give, in the order of the request."""

    __slots__ = ("_aborted", "_chunks", "_is_flexible", "_out", "_pack_fixed")

    def __init__(self, version: int, topics: int, *, is_committed: bool, throttle_time_ms: int) -> None:
        """``topics``: their number; ``is_committed``: the consumer reads with READ_COMMITTED; ``throttle_time_ms``: how
        long the client is throttled (KIP-219)."""
        layout = fetch_layout(version)
        self._is_flexible = layout.is_flexible
        self._pack_fixed = layout.pack_fixed
        self._aborted = 0 if is_committed else -1
        """The number of aborted transactions; -1 (null) for a consumer that is not given them."""
        self._chunks: list[Chunk] = []
        out = begin_response(FetchResponse, version)
        out += _pack_head_with_session(throttle_time_ms, 0, 0) if layout.has_session else _pack_head(throttle_time_ms)
        self._out = out
        self._append_count(topics)

    def begin_topic(self, topic: TopicEntries) -> None:
        """The partitions of ``topic`` come next, all that were asked for."""
        self._out += topic.encoded
        self._append_count(topic.partitions)

    def end_topic(self) -> None:
        """All partitions of the topic have been added."""
        if self._is_flexible:
            self._out += _NO_TAGS

    def add(
        self,
        index: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: SizedRegion | None,
    ) -> None:
        """Add a partition: its offsets, and its records where it has some."""
        size = 0 if records is None else len(records)
        out = self._out
        # Written out: many partitions are most of what a fetch costs (bench-kafka: many-partitions).
        if self._is_flexible:
            out += _pack_flexible(
                index, 0, high_watermark, last_stable_offset, log_start_offset, self._aborted + 1, _NO_REPLICA
            )
            out += encode_uvarint(size + 1) if size else _NO_RECORDS
        else:
            out += self._pack_fixed(index, high_watermark, last_stable_offset, log_start_offset, self._aborted, size)
        if records is not None:
            self._chunks.append(out)
            self._chunks.append(records)
            out = self._out = bytearray()
        if self._is_flexible:
            out += _NO_TAGS

    def add_encoded(self, partitions: Sequence[bytes]) -> None:
        """Add partitions that have been encoded already."""
        self._out += b"".join(partitions)

    def encode_nothing(self, index: int, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> bytes:
        """Encode a partition without records as `add` does, for `add_encoded`."""
        if self._is_flexible:
            fixed = _pack_flexible(
                index, 0, high_watermark, last_stable_offset, log_start_offset, self._aborted + 1, _NO_REPLICA
            )
            return fixed + _NO_RECORDS + _NO_TAGS
        return self._pack_fixed(index, high_watermark, last_stable_offset, log_start_offset, self._aborted, 0)

    def finish(self, correlation_id: int) -> Sequence[Chunk]:
        """The whole answer as chunks, the first beginning with the size of all."""
        if self._is_flexible:
            self._out += _NO_TAGS
        if self._out:
            self._chunks.append(self._out)
        return finish_response(self._chunks, correlation_id)

    def _append_count(self, count: int) -> None:
        self._out += encode_uvarint(count + 1) if self._is_flexible else _pack_count(count)


@lru_cache(16)  # a splitter for ten thousand pieces takes 320 KB
def _splitter(size: int, count: int) -> Callable[[memoryview, int], tuple[bytes, ...]]:
    """The function that cuts ``count`` pieces of ``size`` bytes out of a frame, from a position on."""
    return Struct(f"{size}s" * count).unpack_from


def _entries_reader(version: int) -> tuple[Struct, Callable[[memoryview], Sequence[Entry]]]:
    """The layout of one entry, and the function that decodes a stretch of entries."""
    if version >= FLEXIBLE_SINCE:
        entry = Struct(">iiqi8xiB")
        return entry, lambda stretch: list(entry.iter_unpack(stretch))
    if version >= LEADER_EPOCH_SINCE:
        entry = Struct(">iiq8xi")
        return entry, lambda stretch: [
            (index, epoch, offset, -1, most_bytes, 0) for index, epoch, offset, most_bytes in entry.iter_unpack(stretch)
        ]
    entry = Struct(">iq8xi" if version >= LOG_START_SINCE else ">iqi")
    return entry, lambda stretch: [
        (index, -1, offset, -1, most_bytes, 0) for index, offset, most_bytes in entry.iter_unpack(stretch)
    ]


def _fixed_packer(version: int) -> Callable[[int, int, int, int, int, int], bytes]:
    """The function that encodes a partition of an answer up to its records, before version 12, from: index, high
    watermark, last stable offset, log start, number of aborted transactions (-1: null), bytes of records."""
    if version >= PREFERRED_REPLICA_SINCE:
        pack = Struct(">ihqqqiii").pack
        return lambda index, high, stable, start, aborted, size: pack(
            index, 0, high, stable, start, aborted, _NO_REPLICA, size
        )
    if version >= LOG_START_SINCE:
        pack = Struct(">ihqqqii").pack
        return lambda index, high, stable, start, aborted, size: pack(index, 0, high, stable, start, aborted, size)
    pack = Struct(">ihqqii").pack
    return lambda index, high, stable, start, aborted, size: pack(index, 0, high, stable, aborted, size)
