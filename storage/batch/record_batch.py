r"""The header of a record batch (magic 2): read, stamped and checked in place, never touching the records behind it.

    offset size field
         0    8 base offset             absolute offset of the first record  \
         8    4 batch length            bytes behind this field: size - 12    | not covered by the CRC: the leader
        12    4 partition leader epoch  given by the leader                   | writes offset and epoch in place
        16    1 magic                   2; at this place in every format     /
        17    4 crc                     CRC-32C of everything from attributes to the end
        21    2 attributes              bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
        23    4 last offset delta       last offset - base offset; survives compaction
        27    8 base timestamp          ms; what the records' timestamp deltas are added to
        35    8 max timestamp           ms; with LogAppendTime the time of every record
        43    8 producer id             -1: none
        51    2 producer epoch          -1: none
        53    4 base sequence           -1: none
        57    4 record count
        61      records                 as a whole one compressed stream if a codec is set

All numbers are big-endian and signed but for the crc. (KIP-98, KIP-534)
"""

from enum import Enum, IntEnum
from struct import Struct, calcsize
from struct import error as StructError
from typing import Final, NamedTuple

from storage.batch.checksum import crc32c
from storage.errors import CorruptBatch, UndecodableRecords
from storage.sentinels import NO_SEQUENCE

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 2

CODEC_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_ATTRIBUTES: Final = 0x7F

MAX_SEQUENCE: Final = 2**31 - 1


class Codec(IntEnum):
    """How the records of a batch are compressed: bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(Enum):
    """Whether record timestamps are producers' or the broker's; the values are those of `message.timestamp.type`."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class BatchHeader(NamedTuple):
    """The fields of a batch's header. A tuple, because a header is read for every batch that comes in."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, this header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset of whatever follows this batch, unless compaction left a gap."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 if the batch has none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        """Raises UndecodableRecords for the numbers 5 to 7, which no format gives a meaning."""
        number = self.attributes & CODEC_BITS
        try:
            return Codec(number)
        except ValueError:
            raise UndecodableRecords(
                f"the batch at offset {self.base_offset} names codec {number}; 0 to 4 exist"
            ) from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if the base timestamp says when tombstones and markers of this batch may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0


_FORMATS: Final = "qiibIhiqqqhii"
"""The type of each field of `BatchHeader`, in their order, by the letters that `struct` and numpy share."""


class Field(NamedTuple):
    """A field of the header."""

    position: int
    """Bytes of the header before this field."""
    format: str
    """The field's type: a letter of `_FORMATS`; big-endian."""


def _lay_out() -> dict[str, Field]:
    layout: dict[str, Field] = {}
    position = 0
    for name, letter in zip(BatchHeader._fields, _FORMATS, strict=True):
        layout[name] = Field(position, letter)
        position += calcsize(">" + letter)
    return layout


LAYOUT: Final = _lay_out()
"""The fields by their names, in their order."""


def header_struct(*names: str) -> Struct:
    """A reader of these fields of a header, named in the order of `LAYOUT`, given the position of the header."""
    formats, end = ">", 0
    for name in names:
        position, letter = LAYOUT[name]
        formats += f"{position - end}x{letter}"
        end = position + calcsize(">" + letter)
    return Struct(formats)


_HEADER: Final = header_struct(*LAYOUT)
HEADER_SIZE: Final = _HEADER.size

FRAME: Final = header_struct("base_offset", "batch_length")
"""Base offset and batch length, all that a scan over whole batches needs."""
LOG_OVERHEAD: Final = FRAME.size
"""The bytes of a batch that the field "batch length" does not count."""

MAGIC_POSITION: Final = LAYOUT["magic"].position
ATTRIBUTES_POSITION: Final = LAYOUT["attributes"].position
"""Position in the header from which on the CRC is computed."""
PRODUCER_ID_POSITION: Final = LAYOUT["producer_id"].position

_PLACE: Final = header_struct("base_offset", "batch_length", "partition_leader_epoch")
_CRC: Final = Struct(">" + LAYOUT["crc"].format)
_CRC_POSITION: Final = LAYOUT["crc"].position
_ATTRIBUTES: Final = Struct(">" + LAYOUT["attributes"].format)
_MAX_TIMESTAMP: Final = Struct(">" + LAYOUT["max_timestamp"].format)
_MAX_TIMESTAMP_POSITION: Final = LAYOUT["max_timestamp"].position


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The 61 header bytes at `position`, unchecked but for their presence (CorruptBatch if there are fewer)."""
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    except StructError:
        raise CorruptBatch(
            f"a record batch begins with {HEADER_SIZE} bytes of header, found {max(len(buffer) - position, 0)}"
        ) from None


def write_header(buffer: bytearray | memoryview, header: BatchHeader, position: int = 0) -> None:
    """Write all 61 header bytes at `position`, with the crc of `header`."""
    _HEADER.pack_into(buffer, position, *header)


def stamp(batch: bytearray | memoryview, base_offset: int, partition_leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch, in place. Neither field is covered by the CRC."""
    # Three fields in one call; the one between the two stays what it is.
    _PLACE.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, partition_leader_epoch)


def restamp_time(
    batch: bytearray | memoryview, header: BatchHeader, kind: TimestampType, max_timestamp: int
) -> BatchHeader:
    """Change timestamp type and max timestamp of a batch in place, with a new CRC; returns the new header.

    `batch` is exactly one batch. Attribute bits without a meaning are cleared, as Apache Kafka does
    when it writes the attributes anew.
    """
    attributes = header.attributes & KNOWN_ATTRIBUTES & ~LOG_APPEND_TIME_BIT
    if kind is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=seal(batch))


def seal(batch: bytearray | memoryview) -> int:
    """Write the CRC of `batch`, which is exactly one batch, into its header; returns the CRC."""
    crc = computed_crc(batch, 0, len(batch))
    _CRC.pack_into(batch, _CRC_POSITION, crc)
    return crc


def computed_crc(buffer: Buffer, position: int, size: int) -> int:
    """CRC-32C of the batch of `size` bytes at `position`, to be compared with its header's crc."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size])


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence number `by` records later: 0 follows 2**31 - 1."""
    return (sequence + by) & MAX_SEQUENCE
