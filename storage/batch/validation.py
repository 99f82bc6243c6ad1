"""Validation of produced batches, with the checks, their order and the errors of Apache Kafka 4.4.0.

Walking over every record in Python would cost more than the rest of an append. So records are walked only where needed.

Always checked, whatever the batch holds: that there is exactly one whole batch of magic 2 with base offset 0, its size
against `max.message.bytes` and `segment.bytes`, its CRC, that the codec exists, that the record count is positive,
agrees with the last offset delta and can fit, that it is no control batch, that a producer id comes with a sequence,
and that the header's timestamps are possible and within the topic's limits.

The records themselves are walked where something depends on them:
- the topic is compacted (each record needs a key), or limits how old a record may be (no header field shows that);
- the batch must be recompressed;
- the batch is compressed, and the topic limits what a record may have then (`max.decompressed.message.bytes`);
- the header's max timestamp is below its base timestamp or out of the topic's limits: then the records decide;
- the batch is small, so that walking costs next to nothing: up to WALKED_RECORDS records, and if compressed up to
  WALKED_COMPRESSED_BYTES that open to no more than WALKED_OPENED_BYTES;
- `ottla.records.validation=full`: every batch, and offset deltas other than 0, 1, 2 ... are put right.

What passes unseen otherwise is in docs/decisions/record-validation.md.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Final

from storage.batch.checksum import crc32c
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CONTROL_BIT,
    FRAME,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    TimestampType,
    computed_crc,
    read_header,
    restamp_time,
)
from storage.batch.records import ANY_SIZE, SMALLEST_RECORD, assemble_batch, encode_record, open_records, walk
from storage.batch.varints import VARINT_BYTES, encode_signed, wrap_64
from storage.errors import (
    BatchLargerThanSegment,
    BatchTooLarge,
    CorruptBatch,
    DecompressionTooLarge,
    InvalidOffsetsOrSequence,
    InvalidRecord,
    InvalidTimestamp,
    NotOneBatch,
    RejectedRecords,
    StorageError,
    UndecodableRecords,
)
from storage.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from config.log_config import LogConfig

WALKED_RECORDS: Final = 4
"""A batch of up to this many records is always walked, which costs less than a microsecond a record."""

WALKED_COMPRESSED_BYTES: Final = 16 * 1024
WALKED_OPENED_BYTES: Final = 1024 * 1024
"""A compressed batch above these sizes is not walked, however few its records: decompressing costs by the byte."""

LEAST_OPENED_BYTES: Final = 64 * 1024 * 1024
MOST_GAIN: Final = 16
LEAST_RECORDS: Final = 1_000_000
"""Bounds on what one batch may cost in memory and time (64 MiB and about a second); Kafka has none for a batch.

A batch may open to max(LEAST_OPENED_BYTES, MOST_GAIN * max.message.bytes) where it is walked, and hold
max(LEAST_RECORDS, what fits uncompressed into max.message.bytes) records and as many headers. Clients do not meet that:
librdkafka and kafka-python count uncompressed bytes and stop at 1 MB, and the Java client, which counts its estimate of
the compressed ones, would need a `batch.size` near `max.message.bytes` *and* records that shrink 64 times. If one does,
the answer is MESSAGE_TOO_LARGE, on which producers split the batch and try again.
"""

MOST_RECORD_ERRORS: Final = 1000
"""Records named in one refusal. Kafka names all, and its answer can outgrow the batch a hundred times."""

# Plain integers, for the path that every batch takes: comparing with an enum's member costs three times as much.
_NO_CODEC: Final = int(Codec.NONE)
_ZSTD: Final = int(Codec.ZSTD)

_EVERY_CODEC: Final = sum(1 << codec for codec in Codec)

NO_RECORD_LIMIT: Final = 2_147_483_639
"""Kafka's default of `max.decompressed.message.bytes`: nothing that is opened here has so many bytes."""

_FOREVER_MS: Final = 2**63 - 1
_LEGACY_SMALLEST: Final = 14


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AppendRules:
    """The rules of one topic for produced batches. Made once for each version of the topic's configuration."""

    max_message_bytes: int = 1024 * 1024 + LOG_OVERHEAD
    max_decompressed_message_bytes: int = NO_RECORD_LIMIT
    segment_bytes: int = 1024 * 1024 * 1024
    target_codec: Codec | None = None
    """The codec that records are stored with; None: whatever the producer chose."""
    compression_level: int | None = None
    """Compression level of `target_codec`, in the codec's own scale; None: the codec's default."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = _FOREVER_MS
    timestamp_after_max_ms: int = 3_600_000
    is_compacted: bool = False
    walks_all_records: bool = False
    """`ottla.records.validation=full`."""
    gives_log_append_time: bool = field(init=False)
    walked_codecs: int = field(init=False)
    """A bit for each codec: whether something on this topic depends on the records of each batch in it."""
    most_opened_bytes: int = field(init=False)
    """Bytes that a compressed batch may decompress to."""
    most_records: int = field(init=False)
    """Records that one batch may hold, and headers that may be walked over in it."""

    def __post_init__(self) -> None:
        # The last four follow from the others and are kept because they are asked for every batch.
        gives_log_append_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        limits_age = not gives_log_append_time and self.timestamp_before_max_ms < _FOREVER_MS
        put = object.__setattr__
        put(self, "gives_log_append_time", gives_log_append_time)
        walked = 0
        if self.walks_all_records or self.is_compacted or limits_age:
            walked = _EVERY_CODEC
        elif self.max_decompressed_message_bytes < NO_RECORD_LIMIT:
            walked = _EVERY_CODEC & ~(1 << Codec.NONE)
        if self.target_codec is not None:
            walked |= _EVERY_CODEC & ~(1 << self.target_codec)
        put(self, "walked_codecs", walked)
        put(self, "most_opened_bytes", max(LEAST_OPENED_BYTES, MOST_GAIN * self.max_message_bytes))
        put(self, "most_records", max(LEAST_RECORDS, self.max_message_bytes // SMALLEST_RECORD))

    @classmethod
    @lru_cache(maxsize=64)  # the partitions of a topic share them
    def of(cls, config: "LogConfig", *, walk_all: bool) -> "AppendRules":
        """Derive the rules from a topic's configuration; `walk_all` is `ottla.records.validation=full`."""
        match config.compression_type:
            case "producer":
                target, level = None, None
            case "uncompressed":
                target, level = Codec.NONE, None
            case "gzip":
                target, level = Codec.GZIP, config.compression_gzip_level
            case "lz4":
                target, level = Codec.LZ4, config.compression_lz4_level
            case "zstd":
                target, level = Codec.ZSTD, config.compression_zstd_level
            case other:
                target, level = Codec[other.upper()], None
        return cls(
            max_message_bytes=config.max_message_bytes,
            max_decompressed_message_bytes=config.max_decompressed_message_bytes,
            segment_bytes=config.segment_bytes,
            target_codec=target,
            compression_level=level,
            timestamp_type=TimestampType(config.message_timestamp_type),
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            is_compacted=config.is_compacted,
            walks_all_records=walk_all,
        )


class ValidatedBatch:
    """A batch that may be appended, offsets and leader epoch still to be stamped into `data`."""

    __slots__ = ("data", "header", "log_append_time_ms")

    def __init__(self, header: BatchHeader, data: memoryview, log_append_time_ms: int) -> None:
        self.header = header
        """The batch's header, as it stands in `data`."""
        self.data = data
        """Exactly the batch, writable: the received bytes, or a buffer of its own if it had to be rebuilt."""
        self.log_append_time_ms = log_append_time_ms
        """The time given to all records on a LogAppendTime topic, -1 on a CreateTime one: what the response carries."""


def validate_produced(records: memoryview | None, rules: AppendRules, now_ms: int) -> ValidatedBatch:
    """Check the batch that a producer sent for one partition, and make of it the batch that the log stores.

    Bytes behind the batch are dropped.

    Timestamps and their type are put right in the received bytes. Raises, in this order: NotOneBatch or CorruptBatch
    for what is not one whole batch; InvalidRecord for a base offset, BatchTooLarge, CorruptBatch for a CRC,
    UndecodableRecords for an unknown codec; InvalidRecord for counts and marks of the header, BatchTooLarge for more
    records than we walk; where records are walked UndecodableRecords and BatchTooLarge for what cannot be opened,
    InvalidRecord, InvalidTimestamp; then BatchTooLarge for what recompression gave and BatchLargerThanSegment.
    """
    if records is None or len(records) < HEADER_SIZE:
        raise _refused_for_shape(records)
    header = read_header(records)
    (
        base_offset, batch_length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, _, base_sequence, record_count,
    ) = header  # fmt: skip
    size = batch_length + LOG_OVERHEAD
    codec = attributes & CODEC_BITS
    if size != len(records) or magic != MAGIC:
        records = _only_batch(records)
    if base_offset != 0:
        raise InvalidRecord(f"a produced batch has base offset 0, this one has {base_offset}")
    if size > rules.max_message_bytes:
        raise BatchTooLarge(f"a batch of {size} bytes; max.message.bytes is {rules.max_message_bytes}")
    if size < HEADER_SIZE or crc32c(records[ATTRIBUTES_POSITION:]) != crc:
        raise _corrupt(records, crc)
    if codec > _ZSTD:
        raise UndecodableRecords(f"the batch names codec {codec}; 0 to 4 exist")
    if record_count <= 0 or last_offset_delta != record_count - 1:
        raise InvalidOffsetsOrSequence(
            f"the batch counts {record_count} records, its last offset delta is {last_offset_delta}"
        )
    if attributes & CONTROL_BIT:
        raise InvalidRecord("the batch is a control batch, which a client may not write")
    if producer_id >= 0 and base_sequence < 0:
        raise InvalidOffsetsOrSequence(f"the batch has producer id {producer_id} and base sequence {base_sequence}")
    if codec == _NO_CODEC and record_count > (size - HEADER_SIZE) // SMALLEST_RECORD:
        raise InvalidRecord(f"the batch counts {record_count} records in {size - HEADER_SIZE} bytes")
    if record_count > rules.most_records:
        raise BatchTooLarge(f"a batch of {record_count} records; up to {rules.most_records} are taken")

    if records.readonly:
        records = memoryview(bytearray(records))
    section: bytes | None = None
    if rules.walked_codecs >> codec & 1 or (
        not rules.gives_log_append_time
        and (
            max_timestamp < base_timestamp
            or max_timestamp < NO_TIMESTAMP
            or max_timestamp - now_ms > rules.timestamp_after_max_ms
        )
    ):
        section = _opened(records, header, rules)
    elif record_count <= WALKED_RECORDS:
        if codec != _NO_CODEC:
            section = _opened_if_small(records, header)
        else:
            section = bytes(records[HEADER_SIZE:])
            if record_count == 1 and max_timestamp == base_timestamp:
                # Where there is no key, how such a record begins and ends follows from its size.
                if section.startswith(_plain_beginning(len(section))):
                    is_plain = not section[-1]
                else:
                    is_plain = _is_plain_record(section)
                if is_plain:
                    section = None  # walked, and the header says the same
    if section is None:
        if rules.gives_log_append_time or attributes & LOG_APPEND_TIME_BIT:
            header = _settled_by_header(records, header, rules, now_ms)
    else:
        header, records = _settled_by_records(records, header, section, rules, now_ms)
    if len(records) > rules.segment_bytes:
        raise BatchLargerThanSegment(f"a batch of {len(records)} bytes; segment.bytes is {rules.segment_bytes}")
    return ValidatedBatch(header, records, now_ms if rules.gives_log_append_time else -1)


# The shape: one whole batch of magic 2 --------------------------------------------------------------------------------


def _size_of_first(records: memoryview) -> int | None:
    """Size of the batch that `records` begin with, None if they end before it does.

    The checks and their places are those of Kafka's reader of batches, which looks at the size as soon as it is there
    and at the magic as soon as that is, whole batch or not. Raises CorruptBatch.
    """
    if len(records) < LOG_OVERHEAD:
        return None
    _, length = FRAME.unpack_from(records)
    if length < _LEGACY_SMALLEST:
        message = f"Record size {length} is less than the minimum record overhead ({_LEGACY_SMALLEST})"
        raise CorruptBatch(message, message_for_client=message)
    if len(records) <= MAGIC_POSITION:
        return None
    magic = records[MAGIC_POSITION]
    if magic > MAGIC:
        message = f"Invalid magic found in record: {magic if magic < 0x80 else magic - 0x100}"
        raise CorruptBatch(message, message_for_client=message)
    size: int = length + LOG_OVERHEAD
    return size if size <= len(records) else None


def _only_batch(records: memoryview) -> memoryview:
    """The one batch that `records` begin with; a part of a batch behind it is cut off."""
    size = _size_of_first(records)
    if size is None:
        raise NotOneBatch(f"{len(records)} bytes of records hold no whole batch")
    magic = records[MAGIC_POSITION]
    if magic != MAGIC:
        raise NotOneBatch(f"the batch has magic {magic}, a produced one has {MAGIC}")
    if _size_of_first(records[size:]) is not None:
        raise NotOneBatch(f"another batch follows the first one of {size} bytes; a partition is sent one at a time")
    return records[:size]


def _refused_for_shape(records: memoryview | None) -> StorageError:
    """The error for produced bytes that are too short for any batch of magic 2."""
    if records is None:
        return NotOneBatch("the request holds no records for the partition")
    try:
        batch = _only_batch(records)
    except StorageError as error:
        return error
    base_offset, _ = FRAME.unpack_from(batch)
    if base_offset != 0:
        return InvalidRecord(f"a produced batch has base offset 0, this one has {base_offset}")
    return _corrupt(batch, None)


def _corrupt(batch: memoryview, crc: int | None) -> CorruptBatch:
    if crc is None or len(batch) < HEADER_SIZE:
        return CorruptBatch(f"a batch of {len(batch)} bytes; its header alone has {HEADER_SIZE}")
    found = computed_crc(batch, 0, len(batch))
    return CorruptBatch(f"a batch of {len(batch)} bytes has the CRC {found:#010x}, its header says {crc:#010x}")


# Settling timestamps, offsets and codec -------------------------------------------------------------------------------


def _opened(batch: memoryview, header: BatchHeader, rules: AppendRules) -> bytes:
    """The batch's records section, decompressed up to the limit of the rules."""
    most_bytes = header.record_count * (rules.max_decompressed_message_bytes + VARINT_BYTES)
    try:
        return open_records(batch, header, min(most_bytes, rules.most_opened_bytes))
    except DecompressionTooLarge as error:
        if most_bytes < rules.most_opened_bytes:
            raise InvalidRecord(
                f"{header.record_count} records open to more than {most_bytes} bytes; "
                f"max.decompressed.message.bytes is {rules.max_decompressed_message_bytes}"
            ) from None
        raise BatchTooLarge(str(error)) from None


@lru_cache(maxsize=4096)
def _plain_beginning(size: int) -> bytes:
    """The first bytes of a record of ``size`` bytes without key and headers, whose two deltas are 0.

    Value and header count follow them. Returns more than ``size`` bytes where no such record has that size.
    """
    widths = range(1, VARINT_BYTES + 1)
    for length_width, value_width in product(widths, widths):
        # Attributes and the two differences are 0, the length of the key is -1.
        value_length = size - length_width - 4 - value_width - 1
        if value_length >= 0:
            length = encode_signed(size - length_width)
            of_value = encode_signed(value_length)
            if len(length) == length_width and len(of_value) == value_width:
                return length + b"\0\0\0\1" + of_value
    return bytes(size + 1)


def _is_plain_record(section: bytes) -> bool:
    """Whether a batch's only record is whole, without headers, and both of its deltas are 0.

    Most batches of one record are, and all lengths in them take one byte or two: this check costs a third of
    the full walk, which judges all other records (bench: produce-one-record).
    """
    try:
        length = section[0]
        position = 1
        if length > 0x7F:
            length += (section[1] - 1) << 7
            position = 2
            if length > 0x3FFF:
                return False
        # A length is even where it is not negative; zig-zag leaves the sign in the lowest bit.
        if length & 1 or position + (length >> 1) != len(section) or section[position + 1] or section[position + 2]:
            return False
        length = section[position + 3]
        position += 4
        if length > 0x7F:
            length += (section[position] - 1) << 7
            position += 1
            if length > 0x3FFF:
                return False
        if not length & 1:
            position += length >> 1
        elif length != 1:
            return False
        length = section[position]
        position += 1
        if length > 0x7F:
            length += (section[position] - 1) << 7
            position += 1
            if length > 0x3FFF:
                return False
        if not length & 1:
            position += length >> 1
        elif length != 1:
            return False
        return position == len(section) - 1 and not section[position]
    except IndexError:
        return False


def _opened_if_small(batch: memoryview, header: BatchHeader) -> bytes | None:
    if len(batch) > WALKED_COMPRESSED_BYTES:
        return None
    try:
        return open_records(batch, header, WALKED_OPENED_BYTES)
    except DecompressionTooLarge:
        return None


def _settled_by_header(batch: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int) -> BatchHeader:
    """Apply the topic's timestamp type by the header alone; the topic or the header says LogAppendTime."""
    claims_log_append_time = header.attributes & LOG_APPEND_TIME_BIT != 0
    if claims_log_append_time:
        # All records of such a batch have the header's max timestamp, so the header speaks for each of them.
        wrong = _wrong_time(0, header.max_timestamp, header, rules, now_ms)
        if wrong is not None:
            errors = [
                (index, _wrong_time(index, header.max_timestamp, header, rules, now_ms) or wrong)
                for index in range(min(header.record_count, MOST_RECORD_ERRORS))
            ]
            raise _rejected(errors, header.record_count, 1)
    if rules.gives_log_append_time:
        return restamp_time(batch, header, TimestampType.LOG_APPEND_TIME, now_ms)
    return restamp_time(batch, header, TimestampType.CREATE_TIME, header.max_timestamp)


def _settled_by_records(
    batch: memoryview, header: BatchHeader, section: bytes, rules: AppendRules, now_ms: int
) -> tuple[BatchHeader, memoryview]:
    """Judge every record, then return the batch to store: the received bytes or, if need be, a rebuilt batch."""
    max_timestamp, in_order = _judged(section, header, rules, now_ms)
    codec = header.attributes & CODEC_BITS
    target = codec if rules.target_codec is None else rules.target_codec
    if target != codec or (not in_order and rules.walks_all_records):
        return _rebuilt(header, section, Codec(target), max_timestamp, rules, now_ms)
    if not in_order and codec != _NO_CODEC:
        # Kafka tries to rebuild such a batch and fails; uncompressed ones it stores as they are.
        raise UndecodableRecords(
            f"the offset deltas inside a batch of {header.record_count} records are not 0, 1, 2 ..."
        )
    if rules.gives_log_append_time:
        return restamp_time(batch, header, TimestampType.LOG_APPEND_TIME, now_ms), batch
    if max_timestamp != header.max_timestamp or header.attributes & LOG_APPEND_TIME_BIT:
        return restamp_time(batch, header, TimestampType.CREATE_TIME, max_timestamp), batch
    return header, batch


def _judged(section: bytes, header: BatchHeader, rules: AppendRules, now_ms: int) -> tuple[int, bool]:
    """Judge every record; returns their greatest timestamp and whether their offset deltas are 0, 1, 2 ..."""
    claims_log_append_time = header.attributes & LOG_APPEND_TIME_BIT != 0
    checks_time = claims_log_append_time or not rules.gives_log_append_time
    oldest = max(now_ms - rules.timestamp_before_max_ms, -_FOREVER_MS)
    newest = min(now_ms + rules.timestamp_after_max_ms, _FOREVER_MS)
    is_compacted = rules.is_compacted
    base_timestamp = header.base_timestamp
    most_record_bytes = rules.max_decompressed_message_bytes if header.attributes & CODEC_BITS else ANY_SIZE
    max_timestamp = NO_TIMESTAMP
    in_order = True
    errors: list[tuple[int, str]] = []
    faults = time_faults = index = 0
    try:
        for timestamp_delta, offset_delta, key_is_null, _, _ in walk(
            section, header.record_count, rules.most_records, most_record_bytes
        ):
            timestamp = header.max_timestamp if claims_log_append_time else base_timestamp + timestamp_delta
            if key_is_null and is_compacted:
                faults += 1
                if faults <= MOST_RECORD_ERRORS:
                    # Kafka names the partition here; programs look for the words before it.
                    errors.append((index, f"Compacted topic cannot accept message without key: record {index}"))
            elif checks_time and (claims_log_append_time or not oldest <= timestamp <= newest):
                timestamp = wrap_64(timestamp)
                wrong = _wrong_time(index, timestamp, header, rules, now_ms)
                if wrong is not None:
                    faults += 1
                    time_faults += 1
                    if faults <= MOST_RECORD_ERRORS:
                        errors.append((index, wrong))
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if offset_delta != index:
                in_order = False
            index += 1
    except DecompressionTooLarge as too_large:
        raise BatchTooLarge(str(too_large)) from None
    except UndecodableRecords as undecodable:
        raise InvalidRecord(str(undecodable)) from None
    if faults:
        raise _rejected(errors, faults, time_faults)
    return max_timestamp, in_order


def _wrong_time(index: int, timestamp: int, header: BatchHeader, rules: AppendRules, now_ms: int) -> str | None:
    """What is wrong with a record's timestamp in Kafka's words, None for nothing. -1 means "no timestamp" and is within
    all limits."""
    if not rules.gives_log_append_time and timestamp != NO_TIMESTAMP:
        oldest = now_ms - rules.timestamp_before_max_ms
        newest = now_ms + rules.timestamp_after_max_ms
        if oldest <= timestamp <= newest:
            return None
        return (
            f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp should be within "
            f"[{oldest}, {newest}]"
        )
    if header.attributes & LOG_APPEND_TIME_BIT:
        return f"Invalid timestamp type in message {index}. Producer should not set timestamp type to LogAppendTime."
    return None


def _rejected(errors: list[tuple[int, str]], faults: int, time_faults: int) -> RejectedRecords:
    """The error of a batch of which no record is written. What clients are told are Kafka's words, which its tests
    compare; the log has the details too."""
    rejected = "One or more records have been rejected due to "
    kind: type[RejectedRecords]
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{why}')" for index, why in errors[:3])
    if time_faults:
        told = f"{rejected}invalid timestamp"
        kind, message = InvalidTimestamp, f"{told}: [{shown}]"
    else:
        told = f"{rejected}{faults} record errors in total, and only showing the first three errors at most: [{shown}]"
        kind, message = InvalidRecord, told
    return kind(message, record_errors=errors, records_without_key=faults - time_faults, message_for_client=told)


def _rebuilt(
    header: BatchHeader, section: bytes, target: Codec, max_timestamp: int, rules: AppendRules, now_ms: int
) -> tuple[BatchHeader, memoryview]:
    """Rebuild the batch in codec `target`, with offset deltas 0, 1, 2 ..., and the first record's time as base."""
    claims_log_append_time = header.attributes & LOG_APPEND_TIME_BIT != 0
    base_timestamp = NO_TIMESTAMP
    encoded: list[bytes] = []
    for timestamp_delta, _, _, fields, end in walk(section, header.record_count, rules.most_records):
        timestamp = header.max_timestamp if claims_log_append_time else header.base_timestamp + timestamp_delta
        if not encoded:
            base_timestamp = wrap_64(timestamp)
        encoded.append(encode_record(wrap_64(timestamp - base_timestamp), len(encoded), section[fields:end]))
    attributes = target | header.attributes & TRANSACTIONAL_BIT
    if rules.gives_log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = now_ms
    level = rules.compression_level if target is rules.target_codec else None
    batch = assemble_batch(
        header._replace(attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp),
        b"".join(encoded),
        level,
    )
    if len(batch) > rules.max_message_bytes:
        raise BatchTooLarge(
            f"a batch of {header.size} bytes has {len(batch)} in {target.name.lower()}; "
            f"max.message.bytes is {rules.max_message_bytes}"
        )
    return read_header(batch), memoryview(batch)
